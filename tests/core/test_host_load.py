"""Which passes of a launch had less of their machine than the others."""

import pytest

from autotune.core.host import HostLoad, shortfalls


def test_stolen_time_is_told() -> None:
    """Above a tenth; up to it every cloud machine may be."""
    loads = [HostLoad(steal=0.14), HostLoad(steal=0.10), None, HostLoad()]
    assert shortfalls(loads) == [
        "14% of the CPU time went to other machines of the same host",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(("field", "name"), [("cpu_mhz", "CPU"), ("gpu_mhz", "GPU")])
def test_a_clock_far_below_the_others_is_told(field: str, name: str) -> None:
    """A pass at less than four fifths of the launch's median ran on another machine, so to say."""
    clocks = [2000.0, 1590.0, 2000.0, 1610.0, 2010.0]
    found = shortfalls([HostLoad(**{field: clock}) for clock in clocks])
    assert found == [
        None,
        f"the {name} ran at 1590 MHz, in the launch's median pass at 2000",
        None,
        None,
        None,
    ]


def test_what_nobody_reads_is_no_shortfall() -> None:
    """No clock, no steal: nothing is said."""
    assert shortfalls([None, HostLoad(), HostLoad(load_1m=40.0)]) == [None] * 3
    assert shortfalls([]) == []
