"""From the samples of launches to the replies of a study."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.replies import Reply
from autotune.core.textcheck import compare_texts
from autotune.core.trial import Measurement, Record
from autotune.core.workload import Workload
from autotune.ports import Arrivals, LoadResult, Request, Server
from autotune.tuning.paths import StudyPaths
from autotune.tuning.replies import replies_of, reply_key
from autotune.tuning.samples import LINES, PARQUET
from tests.builders import make_failure, make_record, make_spec
from tests.tuning.fakes import World, crash, make_launch, make_rig, run_one

SPEC = make_spec()


class Speaking(World):
    """A world whose replies say which prompt they answer."""

    def run(
        self,
        server: Server,
        workload: Workload,
        requests: Sequence[Request],
        concurrency: int,
        arrivals: Arrivals | None = None,
    ) -> LoadResult:
        """One pass with words in it."""
        result = World.run(self, server, workload, requests, concurrency, arrivals)
        said = tuple(replace(s, text=f"the reply to {s.prompt_id}") for s in result.samples)
        return replace(result, samples=said)


def measured(root: Path, world: World | None = None) -> tuple[StudyPaths, list[Record]]:
    """A baseline and a live launch of the head, on disk."""
    rig = make_rig(world or Speaking(), SPEC, root)
    records = run_one(rig, make_launch(SPEC, "baseline", (0,)))
    return rig.paths, records + run_one(rig, make_launch(SPEC, "eagle", (0, 2)))


def test_every_request_of_every_record_is_a_reply(tmp_path: Path) -> None:
    """Three blocks of 4 and of 16 requests at each K, under the K and block they belong to."""
    paths, records = measured(tmp_path)
    replies = replies_of(paths, records)
    assert len(replies) == 3 * 3 * (4 + 16)
    one = next(r for r in replies if r.num_speculative_tokens == 2)
    assert (one.split, one.candidate, one.launch_id) == ("search", "eagle", "002")
    assert all(m.rate == 1.0 for m in compare_texts(replies))


def test_a_launch_that_was_not_compacted_is_read_as_well(tmp_path: Path) -> None:
    """A crash leaves lines; K = 0 was measured before it."""

    def dies(call: object) -> str | None:
        if len([c for c in world.passes if c.candidate == "eagle"]) == 3:
            raise crash("gone")
        return None

    world = Speaking(trouble=dies)
    paths, records = measured(tmp_path, world)
    assert (paths.launches / "002" / LINES).exists()
    assert (paths.launches / "001" / PARQUET).exists()
    assert {r.candidate for r in replies_of(paths, records)} == {"baseline", "eagle"}


def test_an_invalid_pass_has_no_replies_here(tmp_path: Path) -> None:
    """As it has no place in a curve."""
    paths, (baseline, *_) = measured(tmp_path)
    assert baseline.measurement
    passes = tuple(
        replace(p, invalid="a test") if p.block == 1 else p for p in baseline.measurement.passes
    )
    found = replies_of(paths, [replace(baseline, outcome=Measurement(passes=passes))])
    assert {r.block for r in found} == {0, 2}


def without_marks(replies: list[Reply]) -> int:
    """How many replies cannot be compared by their text."""
    return sum(r.said is None for r in replies)


def test_samples_of_an_older_autotune_have_costs_and_no_marks(tmp_path: Path) -> None:
    """They are stratified by length, not compared."""
    paths, records = measured(tmp_path)
    folder = paths.launches / "001"
    (folder / PARQUET).unlink()
    (folder / LINES).write_text(
        '{"num_speculative_tokens":0,"concurrency":1,"block":0,"order":0,"invalid":null,'
        '"prompt_id":"search-000","prompt_tokens":10,"output_tokens":64,"sent_s":0.0,'
        '"first_token_s":0.01,"end_s":2.0,"finish_reason":"stop","error":null,'
        '"text_sha1":"ab","chunk_ms":[],"chunk_tokens":[]}\n'
    )
    replies = replies_of(paths, records[:1])
    assert [r.seconds for r in replies] == [2.0]
    assert without_marks(replies) == 1
    assert compare_texts(replies_of(paths, records)) == ()


def test_damaged_samples_cost_themselves_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning; the other launch is read, and a launch without a folder says nothing."""
    paths, records = measured(tmp_path)
    (paths.launches / "002" / PARQUET).write_bytes(b"PAR1 no more")
    gone = make_record("ngram", 2, launch_id="009")
    failed = make_record("ngram", 3, launch_id="008", outcome=make_failure())
    assert len(replies_of(paths, [*records, gone, failed])) == 3 * (4 + 16)
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "002 are not compared" in warning.getMessage()


def test_the_key_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    """A resumed study marks as before; another study has another key."""
    paths = StudyPaths(root=tmp_path, name="demo")
    key = reply_key(paths)
    assert len(key) == 32
    assert reply_key(paths) == key
    assert paths.reply_key.stat().st_mode & 0o077 == 0
    assert reply_key(StudyPaths(root=tmp_path, name="other")) != key
