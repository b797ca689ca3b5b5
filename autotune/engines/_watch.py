"""An eye on one pass: what the engine's log says meanwhile, and what its machine gives.

Rule: nothing but the fill of the KV cache (_poll.py) is read while requests are under way: a watch
remembers where the log ended and what the machine's counters were, and looks again when the pass is
over.
"""

from dataclasses import dataclass
from pathlib import Path

from autotune.engines import _logs
from autotune.engines._host import HostReading, host_load
from autotune.engines._poll import KvCachePoll
from autotune.ports import Surroundings


@dataclass(frozen=True, slots=True)
class LogAndHost:
    """The watch over a server on this machine."""

    log: Path
    read_to: int
    host: HostReading
    gpu: bool
    visible: str
    """CUDA_VISIBLE_DEVICES of the engine."""
    cache: KvCachePoll | None = None

    @classmethod
    def begin(
        cls, log: Path, *, gpu: bool, visible: str, cache: KvCachePoll | None = None
    ) -> "LogAndHost":
        """From now on."""
        return cls(log, log.stat().st_size, HostReading.now(), gpu, visible, cache)

    def end(self) -> Surroundings:
        """What went on since then."""
        peak = self.cache.end() if self.cache else None
        load = host_load(self.host, gpu=self.gpu, visible=self.visible)
        with self.log.open("rb") as file:
            file.seek(self.read_to)
            text = file.read().decode("utf-8", errors="replace")
        spoiling, warnings = _logs.events(text)
        return Surroundings(
            disturbances=tuple(spoiling),
            warnings=dict(warnings),
            host=load,
            kv_cache_peak=peak,
        )
