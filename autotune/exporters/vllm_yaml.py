"""vllm.yaml: the engine arguments, for `vllm serve --config vllm.yaml` as it is.

Rules: every launch of the tuner starts from a file rendered here, so the exported file is the one
that was launched, byte for byte; it holds the target's arguments, those of the candidate before
them, the memory share and the speculation, nothing that belongs to one launch (port, scheduler), no
evidence and no credentials.
"""

from collections.abc import Mapping, Sequence

from autotune.core.jsontype import JSON
from autotune.core.recommendation import Recommendation
from autotune.core.redaction import is_secret
from autotune.core.study import Candidate, StudySpec
from autotune.exporters._yaml import dump, without_nulls
from autotune.ports import Exporter

RESERVED = frozenset({"config", "gpu_memory_utilization", "model", "speculative_config"})
"""Arguments that the study decides; a value in the target's engine_args does not count."""

MAX_BATCH_SIZE = 1 << 16


def render_engine_args(
    spec: StudySpec,
    candidate: Candidate | None,
    num_speculative_tokens: int,
    gpu_memory_utilization: float,
    graphs_for: Sequence[int] = (),
) -> str:
    """The text of a `--config` file; no candidate, or K = 0, is plain decoding.

    `graphs_for` names every K that a live launch will be asked for, see `graph_schedule`.
    """
    speculation = candidate.speculative_config(num_speculative_tokens) if candidate else None
    if speculation and graphs_for:
        speculation["num_speculative_tokens_per_batch_size"] = graph_schedule(graphs_for)
    values = {
        "model": spec.target.model,
        **engine_args(spec, candidate),
        "gpu_memory_utilization": gpu_memory_utilization,
        "speculative_config": without_nulls(speculation) if speculation else None,
    }
    dashed = {key.replace("_", "-"): value for key, value in without_nulls(values).items()}
    return dump(dashed, head=_head(spec.name))


def engine_args(spec: StudySpec, candidate: Candidate | None) -> dict[str, JSON]:
    """The arguments of target and candidate as they are written, by name; no credentials."""
    own = candidate.engine_args if candidate else {}
    both = {**spec.target.engine_args, **own}
    given = {key.replace("-", "_"): value for key, value in both.items()}
    return {
        key: given[key]
        for key in sorted(given)
        if given[key] is not None and key not in RESERVED and not is_secret(key)
    }


def graph_schedule(ks: Sequence[int]) -> list[JSON]:
    """A schedule per batch size that names every K once, so that each gets its CUDA graphs.

    vLLM captures decode graphs for the query lengths of its schedule
    (vllm/v1/worker/gpu/cudagraph_utils.py); our scheduler then decides K by itself. Ranges are
    [first batch size, last batch size, K], begin at 1 and do not overlap.
    """
    last = len(ks) - 1
    return [[i + 1, i + 1 if i < last else MAX_BATCH_SIZE, k] for i, k in enumerate(ks)]


def deployment(spec: StudySpec, result: Recommendation) -> tuple[Candidate | None, int, float]:
    """Candidate, K and memory share to deploy; plain decoding if the verdict is another."""
    best = result.finalist
    if not result.speculates or best is None:
        return None, 0, result.plain_utilization
    return (
        spec.candidate(best.candidate),
        best.num_speculative_tokens,
        best.gpu_memory_utilization,
    )


def _head(name: str) -> str:
    # One launch and the export must agree to the byte: only the study's name may vary here.
    return (
        f"vLLM engine arguments, written by autotune for the study {' '.join(name.split())}.\n"
        "What was measured with them, and where they hold: best-config.yaml beside the exported "
        "file.\nUse: vllm serve --config vllm.yaml"
    )


class VllmYaml:
    """Renders the recommended deployment as vLLM's own configuration file."""

    filename = "vllm.yaml"

    def render(
        self, spec: StudySpec, result: Recommendation, provenance: Mapping[str, JSON]
    ) -> str:
        """The engine arguments of the recommended deployment."""
        return render_engine_args(spec, *deployment(spec, result))


PLUGIN: Exporter = VllmYaml()
