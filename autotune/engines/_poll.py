"""How full the KV cache gets during a pass: a gauge that keeps no maximum, so it is read again and
again.

Rules: a reading makes the engine's API server render all its metrics, so it is taken about once a
second, a little oftener in the beginning, alike in every arm; the peak is the highest reading, and
what lay between two of them is not known. A poll ends with its server, whoever forgets it.
"""

import threading

from autotune.engines import _metrics
from autotune.engines._http import HttpGoneError, get

FIRST_GAP_S = 0.1
LONGEST_GAP_S = 1.0
PATIENCE_S = 5.0


class KvCachePoll:
    """Reads the gauge in a thread of its own from when it is made until `end`."""

    def __init__(self, base_url: str) -> None:
        self._url = base_url + "/metrics"
        self._peak: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="kv-cache-poll", daemon=True)
        self._thread.start()

    def end(self) -> float | None:
        """The highest share in use that was seen, a fraction; None when it was not shown."""
        self._over.set()
        self._thread.join()
        return self._peak

    def _read(self) -> None:
        gap = FIRST_GAP_S
        while not self._over.wait(gap):
            try:
                usage = _metrics.kv_cache_usage(get(self._url, timeout_s=PATIENCE_S))
            except HttpGoneError:
                # Of a pass that was watched in part the peak is not known.
                self._peak = None
                return
            if usage is not None:
                self._peak = max(self._peak or 0.0, usage)
            gap = min(2 * gap, LONGEST_GAP_S)
