"""One is not many."""

import pytest

from autotune.core.counting import counted


@pytest.mark.parametrize(("number", "told"), [(0, "0 faults"), (1, "1 fault"), (2, "2 faults")])
def test_a_number_of_things(number: int, told: str) -> None:
    """Nothing and many have an s, one has none."""
    assert counted(number, "fault") == told


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 launches"), (1, "1 launch"), (2, "2 launches")]
)
def test_a_plural_of_its_own(number: int, told: str) -> None:
    """Words that take more than an s."""
    assert counted(number, "launch", "launches") == told
