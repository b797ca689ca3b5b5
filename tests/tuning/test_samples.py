"""Per-request samples on disk."""

import json
from pathlib import Path

import pandas as pd
import pytest

from autotune.core.jsontype import JSON
from autotune.core.replies import print_of
from autotune.ports import RequestSample
from autotune.tuning.samples import LINES, PARQUET, SampleWriter, compact, read, rows

KEY = b"a key of this test"
HEADER: dict[str, JSON] = {
    "num_speculative_tokens": 3,
    "concurrency": 4,
    "block": 1,
    "order": 2,
}


def sample(prompt_id: str = "p0", error: str | None = None) -> RequestSample:
    """A request of two chunks, or one that failed before the first."""
    return RequestSample(
        prompt_id=prompt_id,
        prompt_tokens=0 if error else 7,
        output_tokens=0 if error else 3,
        sent_s=1.0,
        first_token_s=None if error else 1.0123456,
        end_s=1.5,
        finish_reason=None if error else "stop",
        error=error,
        text="" if error else "a secret reply",
        chunk_s=() if error else (1.0123456, 1.2),
        chunk_tokens=() if error else (1, 2),
    )


def write(folder: Path, *passes: list[RequestSample]) -> Path:
    """A samples file with these passes."""
    path = folder / LINES
    with SampleWriter(path, KEY) as writer:
        for order, samples in enumerate(passes):
            writer.append(HEADER | {"order": order}, samples)
    return path


def test_line_has_the_pass_and_the_request(tmp_path: Path) -> None:
    """One JSON line per request: which pass, which prompt, tokens and times."""
    said = print_of("a secret reply", KEY)
    (line,) = write(tmp_path, [sample()]).read_text().splitlines()
    assert json.loads(line) == HEADER | {
        "order": 0,
        "prompt_id": "p0",
        "prompt_tokens": 7,
        "output_tokens": 3,
        "sent_s": 1.0,
        "waited_s": 0.0,
        "first_token_s": 1.012346,
        "end_s": 1.5,
        "finish_reason": "stop",
        "error": None,
        "reply_words": said.words,
        "reply_marks": said.marks,
        "reply_whole": said.whole,
        "distinct_2": 1.0,
        "chunk_ms": [12.35, 200.0],
        "chunk_tokens": [1, 2],
    }


def test_no_reply_is_written(tmp_path: Path) -> None:
    """A reply stays out of the lines and out of the Parquet file."""
    path = write(tmp_path, [sample()])
    assert b"secret" not in path.read_bytes()
    assert b"secret" not in compact(path).read_bytes()


def test_pass_is_on_disk_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When append returns the lines have been synced, with the file still open."""
    synced: list[int] = []
    monkeypatch.setattr("autotune.tuning.samples.os.fsync", synced.append)
    with SampleWriter(tmp_path / LINES, KEY) as writer:
        writer.append(HEADER, [sample(), sample("p1")])
        assert len(synced) == 1
        assert len((tmp_path / LINES).read_text().splitlines()) == 2


def test_lines_and_parquet_read_the_same(tmp_path: Path) -> None:
    """Reading does not tell whether the launch has ended."""
    path = write(tmp_path, [sample(), sample("p1", error="HTTP 500: no")], [sample("p2")])
    before, requests = read(tmp_path), rows(tmp_path)
    assert [row["error"] for row in requests] == [None, "HTTP 500: no", None]
    assert compact(path) == tmp_path / PARQUET
    assert [path.name for path in tmp_path.iterdir()] == [PARQUET]
    after = read(tmp_path)
    pd.testing.assert_frame_equal(before, after)
    assert rows(tmp_path) == requests
    assert list(after["order"]) == [0, 0, 1]
    assert list(after["chunk_tokens"].iloc[0]) == [1, 2]


@pytest.mark.parametrize("kept", [0, 1, 40, 150])
def test_torn_line_costs_only_itself(tmp_path: Path, kept: int) -> None:
    """After a kill in the middle of a write all whole lines are read, and appending goes on."""
    path = write(tmp_path, [sample(), sample("p1")])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept])
    assert list(read(tmp_path)["prompt_id"]) == ["p0", "p1"]
    write(tmp_path, [sample("p2")])
    assert list(read(tmp_path)["prompt_id"]) == ["p0", "p1", "p2"]


def test_parquet_wins_when_both_are_there(tmp_path: Path) -> None:
    """A kill between putting the Parquet in place and removing the lines loses nothing."""
    path = write(tmp_path, [sample()])
    lines = path.read_bytes()
    compact(path)
    path.write_bytes(lines)
    assert len(read(tmp_path)) == 1


def test_interrupted_compaction_leaves_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the Parquet is whole and in place the lines stay, and it can be tried again."""
    path = write(tmp_path, [sample()])

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("autotune.files.os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            compact(path)
    assert path.exists()
    assert not (tmp_path / PARQUET).exists()
    assert len(read(tmp_path)) == 1
    assert compact(path).exists()


def test_launch_without_samples_is_an_empty_table(tmp_path: Path) -> None:
    """A launch that measured nothing has the columns and no rows."""
    path = write(tmp_path)
    assert read(tmp_path).empty
    compact(path)
    assert "prompt_id" in read(tmp_path).columns


def test_a_launch_without_a_samples_file_has_no_rows(tmp_path: Path) -> None:
    """One that could not start, or whose folder is gone."""
    assert rows(tmp_path / "nowhere") == []


def test_the_rows_of_a_torn_file_are_its_whole_lines(tmp_path: Path) -> None:
    """A launch that runs is read between two writes."""
    path = write(tmp_path, [sample(), sample("p1")])
    path.write_bytes(path.read_bytes()[:-30])
    assert [row["prompt_id"] for row in rows(tmp_path)] == ["p0"]
