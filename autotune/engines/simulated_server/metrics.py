"""The counters of /metrics, under vLLM's names.

Rule: counters only go up, but by the fault that says otherwise; speculation's exist only where
speculation is on, as in vllm/v1/spec_decode/metrics.py.
"""

import time
from collections.abc import Iterator, Mapping

from autotune.engines.simulated_server.launch import BLOCK_SIZE, Launch

_COUNTERS = {
    "vllm:num_preemptions": "Cumulative number of preemption from the engine.",
    "vllm:prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "vllm:prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "vllm:prompt_tokens": "Number of prefill tokens processed.",
    "vllm:generation_tokens": "Number of generation tokens processed.",
}
_SPEC_COUNTERS = {
    "vllm:spec_decode_num_drafts": "Number of spec decoding drafts.",
    "vllm:spec_decode_num_draft_tokens": "Number of draft tokens.",
    "vllm:spec_decode_num_accepted_tokens": "Number of accepted tokens.",
}
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
_SUCCESS = "vllm:request_success"
_GAUGES = {
    "vllm:num_requests_running": "Number of requests in model execution batches.",
    "vllm:num_requests_waiting": "Number of requests waiting to be processed.",
    "vllm:kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
_TTFT = "vllm:time_to_first_token_seconds"
_TTFT_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0,
                 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip


class Metrics:
    """Every counter of one launch."""

    def __init__(self, launch: Launch) -> None:
        self._labels = {"engine": "0", "model_name": launch.options.served_model_name}
        self._info = _cache_config(launch)
        self._k_max = launch.k_max
        self._frozen = launch.fault("counters_frozen") is not None
        self.reset()

    def reset(self) -> None:
        """Start again from nothing, as a restarted engine does."""
        self._created = time.time()
        self._help = _COUNTERS | (_SPEC_COUNTERS if self._k_max else {})
        self._counts = dict.fromkeys(self._help, 0.0)
        self._accepted = [0.0] * self._k_max
        self._finished = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0.0)
        self._ttft: list[float] = []
        self.gauges: dict[str, float] = dict.fromkeys(_GAUGES, 0.0)

    def add(self, name: str, amount: float = 1.0) -> None:
        """Count on a counter, named without `vllm:` and `_total`."""
        if not self._frozen:
            self._counts[f"vllm:{name}"] += amount

    def observe_draft(self, *, drafted: int, accepted: int) -> None:
        """One request's draft of one step."""
        self.add("spec_decode_num_drafts")
        self.add("spec_decode_num_draft_tokens", drafted)
        self.add("spec_decode_num_accepted_tokens", accepted)
        for position in range(0 if self._frozen else accepted):
            self._accepted[position] += 1.0

    def observe_first_token(self, seconds: float) -> None:
        """One time to first token."""
        self._ttft.append(seconds)

    def observe_finish(self, reason: str) -> None:
        """One finished request."""
        if not self._frozen:
            self._finished[reason] += 1.0

    def render(self) -> str:
        """The Prometheus text."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _family("process_start_time_seconds", "Start time.", "gauge", {"": _START})
        for name, text in _GAUGES.items():
            yield from _family(name, text, "gauge", {_tags(self._labels): self.gauges[name]})
        text = "Information of the LLMEngine CacheConfig"
        yield from _family("vllm:cache_config_info", text, "gauge", {_tags(self._info): 1.0})
        for name, text in self._help.items():
            yield from self._counter(name, text, {_tags(self._labels): self._counts[name]})
        if self._k_max:
            yield from self._counter(
                _PER_POSITION,
                "Accepted tokens per draft position.",
                {
                    _tags(self._labels | {"position": str(position)}): count
                    for position, count in enumerate(self._accepted)
                },
            )
        yield from self._counter(
            _SUCCESS,
            "Count of successfully processed requests.",
            {
                _tags(self._labels | {"finished_reason": reason}): count
                for reason, count in self._finished.items()
            },
        )
        yield from self._histogram()

    def _counter(self, name: str, text: str, samples: Mapping[str, float]) -> Iterator[str]:
        yield from _family(f"{name}_total", text, "counter", samples)
        yield from _family(f"{name}_created", text, "gauge", dict.fromkeys(samples, self._created))

    def _histogram(self) -> Iterator[str]:
        yield f"# HELP {_TTFT} Histogram of time to first token in seconds."
        yield f"# TYPE {_TTFT} histogram"
        for bound in (*_TTFT_BUCKETS, float("inf")):
            tags = _tags(self._labels | {"le": "+Inf" if bound == float("inf") else str(bound)})
            yield f"{_TTFT}_bucket{tags} {float(sum(t <= bound for t in self._ttft))}"
        yield f"{_TTFT}_count{_tags(self._labels)} {float(len(self._ttft))}"
        yield f"{_TTFT}_sum{_tags(self._labels)} {float(sum(self._ttft))}"
        created = {_tags(self._labels): self._created}
        yield from _family(
            f"{_TTFT}_created", "Histogram of time to first token in seconds.", "gauge", created
        )


_START = time.time()


def _family(name: str, text: str, kind: str, samples: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for tags, value in samples.items():
        yield f"{name}{tags} {value!r}"


def _tags(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{labels[name]}"' for name in sorted(labels)) + "}"


def _cache_config(launch: Launch) -> dict[str, str]:
    options = launch.options
    return {
        "block_size": str(BLOCK_SIZE),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(options.prefix_caching),
        "engine": "0",
        "gpu_memory_utilization": str(options.gpu_memory_utilization),
        "kv_cache_max_concurrency": str(launch.kv_tokens / options.max_model_len),
        "kv_cache_size_tokens": str(launch.kv_tokens),
        "num_gpu_blocks": str(launch.kv_tokens // BLOCK_SIZE),
    }
