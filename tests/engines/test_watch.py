"""An eye on a pass: what the log says in the meantime, no more and no less."""

from pathlib import Path

import pytest

from autotune.engines import _host
from autotune.engines._watch import LogAndHost

COMPILED = b"Triton kernel JIT compilation during inference: _k. This causes a latency spike\n"
REJECTED = b"Failed to advance FSM for request r for tokens 1. Please file an issue.\n"


def watching(log: Path) -> LogAndHost:
    """A watch on a machine without a GPU."""
    return LogAndHost.begin(log, gpu=False, visible="")


def test_only_what_is_written_during_the_watch_counts(tmp_path: Path) -> None:
    """Warm-ups may compile as much as they like, and the next pass is another one."""
    log = tmp_path / "engine.log"
    log.write_bytes(COMPILED * 3)
    first = watching(log)
    with log.open("ab") as file:
        file.write(b"INFO: 127.0.0.1 - POST 200\n" + COMPILED + REJECTED * 2)
    seen = first.end()
    assert len(seen.disturbances) == 1
    assert seen.warnings == {"the grammar refused tokens of a reply": 2}
    quiet = watching(log).end()
    assert (quiet.disturbances, quiet.warnings) == ((), {})


def test_torn_bytes_in_the_log_do_not_matter(tmp_path: Path) -> None:
    """A log may hold anything."""
    log = tmp_path / "engine.log"
    log.touch()
    watch = watching(log)
    log.write_bytes(b"\xff\xfe" + COMPILED)
    assert len(watch.end().disturbances) == 1


def test_the_host_is_read_along(tmp_path: Path) -> None:
    """Load and shares are there on any Linux; a GPU that was not asked for is not known."""
    log = tmp_path / "engine.log"
    log.touch()
    before = _host.HostReading(cpu_s=0.0, stolen_s=0.0, mhz=None)
    host = LogAndHost(log, 0, before, gpu=False, visible="").end().host
    assert host is not None
    assert host.load_1m is not None
    assert host.load_1m >= 0
    assert host.steal is not None
    assert 0 <= host.steal < 1
    assert (host.gpu_mhz, host.gpu_celsius, host.gpu_watts) == (None, None, None)


def test_no_time_passed_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two readings of the same moment: stolen time is not known, and not 0."""
    moment = _host.HostReading(cpu_s=5.0, stolen_s=1.0, mhz=2000.0)
    monkeypatch.setattr(_host.HostReading, "now", classmethod(lambda _: moment))
    load = _host.host_load(moment, gpu=False)
    assert load.steal is None
    assert load.cpu_mhz == 2000.0
