"""What a launch had measured survives whatever ends it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.trial import Launch, Measurement
from autotune.ports import Counters, Surroundings
from autotune.tuning.journal import (
    LAUNCH_FILE,
    PASSES_FILE,
    Journal,
    mark_told,
    passes,
    salvage,
)
from autotune.tuning.passes import Readings
from tests.builders import make_facts, make_pass, make_spec
from tests.tuning.fakes import make_launch

SPEC = make_spec()
LAUNCH: Launch = make_launch(SPEC)
PASSES = [
    make_pass(k=k, concurrency=1, block=block, order=order, invalid=invalid)
    for order, (k, block, invalid) in enumerate(
        ((0, 0, None), (2, 0, "1 of 4 requests failed"), (2, 0, None), (5, 0, "loop"), (0, 1, None))
    )
]


COUNTERS = Counters(
    spec=None,
    generation_tokens=100,
    prompt_tokens=0,
    prefix_queries=0,
    prefix_hits=0,
    preemptions=0,
    running=0,
    waiting=0,
    kv_cache_usage=0.0,
)
READ = Readings(
    before=COUNTERS,
    after=replace(COUNTERS, generation_tokens=356),
    steps_by_k=None,
    around=Surroundings(),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a launch that was killed after five passes."""
    folder = tmp_path / "007"
    folder.mkdir()
    with Journal(folder, LAUNCH, "f0f0") as journal:
        journal.facts(make_facts(k=5))
        for measured in PASSES:
            journal.add(measured, READ)
            assert passes(folder)[-1] == measured, "a pass is on disk when it was added"
    return folder


def test_salvage_gives_what_was_measured(folder: Path) -> None:
    """Each K with a valid pass becomes a record, all of its passes in it, marked as cut short."""
    records = {r.trial.num_speculative_tokens: r for r in salvage(folder)}
    assert list(records) == [0, 2]
    for k, record in records.items():
        mine = tuple(p for p in PASSES if p.num_speculative_tokens == k)
        assert record.outcome == Measurement(passes=mine, cut_short=True)
        assert record.trial == LAUNCH.trial(k)
        assert (record.launch_id, record.fingerprint, record.why) == ("007", "f0f0", LAUNCH.why)
        assert record.facts == make_facts(k=5)


@pytest.mark.parametrize("torn", [1, 20, 200])
def test_a_torn_last_line_is_no_pass(folder: Path, torn: int) -> None:
    """A kill in the middle of a line costs that line and no other."""
    file = folder / PASSES_FILE
    file.write_bytes(file.read_bytes()[:-torn])
    # Without its newline alone the last line is still whole.
    assert passes(folder) == (PASSES if torn == 1 else PASSES[:-1])
    assert [r.trial.num_speculative_tokens for r in salvage(folder)] == [0, 2]


def test_nothing_after_a_torn_line_counts(folder: Path) -> None:
    """What follows garbage cannot be trusted to be what it seems."""
    file = folder / PASSES_FILE
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join((lines[0], lines[1][:30], *lines[2:])))
    assert passes(folder) == PASSES[:1]


def test_a_told_launch_is_not_salvaged_again(folder: Path) -> None:
    """What the ledger has is not given a second time."""
    mark_told(folder)
    assert list(salvage(folder)) == []
    assert passes(folder) == PASSES


def test_a_launch_that_measured_nothing_gives_nothing(tmp_path: Path) -> None:
    """Killed before its first pass, before its header, or before its folder had anything."""
    assert list(salvage(tmp_path)) == []
    assert passes(tmp_path) == []
    with Journal(tmp_path, LAUNCH, "f0f0"):
        assert list(salvage(tmp_path)) == []
    assert list(salvage(tmp_path)) == []


def test_without_facts_the_passes_are_kept(folder: Path) -> None:
    """What the engine said of itself is welcome, not needed."""
    (folder / "facts.json").unlink()
    assert [r.facts for r in salvage(folder)] == [None, None]


def test_header_is_whole_or_absent(tmp_path: Path) -> None:
    """The header is written beside its place and moved there, so that no kill leaves half."""
    with Journal(tmp_path, LAUNCH, "f0f0"):
        inode = (tmp_path / LAUNCH_FILE).stat().st_ino
    with Journal(tmp_path, LAUNCH, "f0f0"):
        assert (tmp_path / LAUNCH_FILE).stat().st_ino != inode


def test_the_counters_around_each_pass_are_kept(folder: Path) -> None:
    """Both readings stand beside the pass, for whoever doubts a difference."""
    lines = (folder / PASSES_FILE).read_text(encoding="utf-8").splitlines()
    counters = json.loads(lines[0])["counters"]
    assert counters["before"]["generation_tokens"] == 100
    assert counters["after"]["generation_tokens"] == 356
