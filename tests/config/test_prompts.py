"""Prompts keep their split and their order, whatever is added beside them."""

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.config.prompts import Prompts, read_prompts


def write(path: Path, ids: list[str]) -> Path:
    """A prompts file with these ids, without splits."""
    rows = ({"id": i, "messages": [{"role": "user", "content": i}], "note": 1} for i in ids)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def ids(prompts: Prompts) -> tuple[set[str], set[str]]:
    """The ids of both splits."""
    return {p.id for p in prompts.search}, {p.id for p in prompts.confirmation}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 999), min_size=20, max_size=60, unique=True), st.integers(0, 3))
def test_added_prompts_move_no_other(tmp_path: Path, numbers: list[int], seed: int) -> None:
    """What the search has seen can never become a prompt of the confirmation."""
    names = [f"p{number}" for number in numbers]
    few = ids(read_prompts(write(tmp_path / "few", names[: len(names) // 2]), seed=seed))
    all_of_them = ids(read_prompts(write(tmp_path / "all", names), seed=seed))
    assert few[0] <= all_of_them[0]
    assert few[1] <= all_of_them[1]
    assert not all_of_them[0] & all_of_them[1]


def test_the_split_is_about_60_to_40_and_seeded(tmp_path: Path) -> None:
    """A thousand prompts come close to 600; another seed splits them otherwise."""
    path = write(tmp_path / "p", [f"p{i}" for i in range(1000)])
    first, second = (ids(read_prompts(path, seed=seed))[0] for seed in (0, 1))
    assert 550 < len(first) < 650
    assert first != second


def test_the_hash_is_of_the_bytes(tmp_path: Path) -> None:
    """Any change of the file is another workload."""
    one = read_prompts(write(tmp_path / "a", ["x", "y"]), seed=0)
    two = read_prompts(write(tmp_path / "b", ["y", "x"]), seed=0)
    assert one.sha256 != two.sha256
