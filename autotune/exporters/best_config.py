"""best-config.yaml: the contract with deploy tooling.

Rules: what to deploy, the evidence for it and when that goes stale, in one document of plain YAML;
an absent key means unknown; `unverified` is there unless the exported file itself was launched and
measured.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from autotune.core.evidence import LevelEvidence
from autotune.core.goodput import Goodput
from autotune.core.jsontype import JSON
from autotune.core.latency import FIGURES, Latencies
from autotune.core.objective import FIGURES as FIGURES_COMPARED
from autotune.core.proportion import CONFIDENCE
from autotune.core.recommendation import Basis, Recommendation
from autotune.core.redaction import shown, withheld
from autotune.core.study import Objective, StudySpec
from autotune.core.wording import headline
from autotune.core.workload import Prompt
from autotune.exporters._figures import figure, interval
from autotune.exporters._schedule import schedule_section
from autotune.exporters._yaml import dump, without_nulls
from autotune.exporters.vllm_yaml import deployment, engine_args, render_engine_args
from autotune.ports import Exporter

SCHEMA_VERSION = 1
STALE = (
    "device",
    "driver",
    "engine.version",
    "engine.env",
    "engine.args.model",
    "engine.speculative_config.model",
    "models",
    "evidence.workload.sampling",
    "evidence.workload.prompts_sha256",
    "evidence.workload.lora",
    "evidence.workload.response_format",
)
"""Paths in the document; where one of them differs, the evidence no longer holds."""

_ELSEWHERE = ("engine_env", "models")
"""Provenance that has a place of its own in the document."""

_HEAD = """\
Written by autotune: what to deploy, the evidence for it, and when that goes stale.
The engine reads vllm.yaml beside this file, not this one. A speedup of 1.2: plain decoding takes
1.2 times as long for a reply of the same length. by_steps has it from tokens per step and seconds
per step, by_throughput is the plain ratio of output tokens per second, idle ends of passes
included; a level goes by steps wherever all its passes tell them. Throughputs are tokens per
second, all streams together."""
_HEAD_OTHER = """
Where a level has speedup_in, its speedup is the ratio of that figure instead: of a latency baseline
over candidate, of goodput (good requests per second) candidate over baseline. A request_rate is in
requests per second."""

Entry = Mapping[str, object]


def document(
    spec: StudySpec, result: Recommendation, provenance: Mapping[str, JSON]
) -> dict[str, object]:
    """The whole document, keys in reading order."""
    text = render_engine_args(spec, *deployment(spec, result))
    values = {
        "schema_version": SCHEMA_VERSION,
        "verdict": result.verdict.value,
        "summary": headline(spec, result),
        "basis": result.basis.value,
        "unverified": True if unverified(result) else None,
        "engine": _engine(spec, result, provenance),
        "vllm_yaml_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "device": provenance.get("device") or None,
        "driver": provenance.get("driver") or None,
        "models": provenance.get("models") or None,
        "kv_cache_tokens": provenance.get("kv_cache_tokens"),
        "evidence": _evidence(spec, result),
        "schedule": schedule_section(spec, result),
        "reasons": list(result.reasons),
        "provenance": {k: v for k, v in provenance.items() if k not in _ELSEWHERE},
    }
    known = without_nulls(values)
    return known | {"goes_stale_when_changed": [p for p in STALE if _has(known, p)]}


def unverified(result: Recommendation) -> bool:
    """Whether the exported file was not itself launched and measured.

    A baseline that the search measured was launched from exactly the file that is exported.
    """
    if result.basis is Basis.SEARCH:
        return result.speculates
    return result.basis is Basis.NOTHING


def prompts_sha256(prompts: Sequence[Prompt]) -> str:
    """A hash of what is sent, in order; ids and tasks do not matter."""
    text = json.dumps([_sent(p) for p in prompts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _sent(prompt: Prompt) -> list[dict[str, JSON]]:
    later: list[dict[str, JSON]] = [{"later_turn": turn} for turn in prompt.later_turns]
    own = {"response_format": prompt.response_format, "max_tokens": prompt.max_tokens}
    given: dict[str, JSON] = {
        key: dict(value) if isinstance(value, Mapping) else value
        for key, value in own.items()
        if value is not None
    }
    return [*map(dict, prompt.messages), *later, *([given] if given else [])]


def _engine(
    spec: StudySpec, result: Recommendation, provenance: Mapping[str, JSON]
) -> dict[str, object]:
    candidate, k, gmu = deployment(spec, result)
    speculation = candidate.speculative_config(k) if candidate else None
    given = provenance.get("engine_env")
    env = {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}
    env |= spec.target.env
    return without_nulls(
        {
            "name": spec.target.engine,
            "version": provenance.get("engine_version") or None,
            "launcher": list(spec.target.launcher) or None,
            "args": {
                "model": spec.target.model,
                **engine_args(spec, candidate),
                "gpu_memory_utilization": gmu,
            },
            "speculative_config": without_nulls(speculation) if speculation else None,
            "env": shown(env),
            "env_withheld": withheld(env) or None,
        }
    )


def _evidence(spec: StudySpec, result: Recommendation) -> dict[str, object]:
    best = result.finalist
    return without_nulls(
        {
            "candidate": best.candidate if best else None,
            "num_speculative_tokens": best.num_speculative_tokens if best else None,
            "confidence": CONFIDENCE,
            "speedup": interval(result.speedup) if result.speedup else None,
            "levels": [_level(level) for level in result.levels],
            "launch_effect": {
                "sd": figure(result.noise.launch.sd),
                "launches": result.noise.launch.launches,
                "source": "prior and launches" if result.noise.launch.launches else "prior",
            },
            "memory": _memory(result),
            "workload": _workload(spec, result),
            "objective": _objective(spec.objective),
        }
    )


def _objective(objective: Objective) -> Entry:
    """What the verdict was asked for."""
    bounds = {bound.metric: bound.upper for bound in objective.constraints}
    return {
        "metric": objective.metric,
        "tolerance": objective.tolerance,
        "min_gain": objective.min_gain,
        **({"constraints": bounds} if bounds else {}),
    }


def _memory(result: Recommendation) -> Entry | None:
    """What the load took of the KV cache; of the finalist, where that is what is deployed."""
    choice = result.memory
    if choice is None or choice.need_tokens is None or not result.speculates:
        return None
    return without_nulls(
        {
            "kv_cache_need_tokens": choice.need_tokens,
            "kv_cache_headroom": figure(choice.headroom),
            "confirmed_kv_cache_peak": figure(choice.confirmed_peak),
        }
    )


def _level(level: LevelEvidence) -> Entry:
    profile = level.acceptance
    acceptance = (
        {
            "acceptance_rate": figure(profile.rate),
            "acceptance_length": figure(profile.length),
            "acceptance_per_position": [figure(p) for p in profile.per_position],
        }
        if profile
        else {}
    )
    return {
        "concurrency": level.concurrency,
        **without_nulls({"request_rate": figure(level.request_rate)}),
        "weight": level.weight,
        "blocks": level.blocks,
        "speedup": interval(level.speedup),
        **_estimates(level),
        "baseline": _arm(level.baseline_throughput, level.baseline_latencies)
        | _load(level.compared, level.baseline_value, level.baseline_goodput),
        "candidate": _arm(level.throughput, level.latencies)
        | _load(level.compared, level.value, level.goodput)
        | without_nulls(acceptance),
    }


def _estimates(level: LevelEvidence) -> Entry:
    """Both estimates of the speed of replies; of another figure there is one, which is neither."""
    if level.compared != "output_throughput":
        return {"speedup_in": FIGURES_COMPARED[level.compared].gain}
    estimates = {"by_steps": level.by_steps, "by_throughput": level.by_throughput}
    return {name: interval(found) for name, found in estimates.items() if found}


def _arm(throughput: float, latencies: Latencies | None) -> dict[str, object]:
    figures: dict[str, object] = {"output_throughput": figure(throughput)}
    for name in FIGURES if latencies else ():
        figures[name] = figure(getattr(latencies, name))
    return without_nulls(figures | {"requests": latencies.requests if latencies else None})


def _load(compared: str, value: float | None, found: Goodput | None) -> dict[str, object]:
    """What only a request rate, another objective, or service level objectives give a meaning."""
    latency = FIGURES_COMPARED[compared] if compared in {"tpot", "e2e"} else None
    return without_nulls(
        {
            **({latency.key: figure(value)} if latency else {}),
            "goodput": figure(found.rate) if found else None,
            "good_share": interval(found.share) if found else None,
        }
    )


def _workload(spec: StudySpec, result: Recommendation) -> Entry:
    work = spec.workload
    split = "confirmation" if result.basis is Basis.CONFIRMED else "search"
    form = work.response_format
    optional = {"lora": work.lora, "response_format": dict(form) if form else None}
    return {
        "prompts": split,
        "prompts_sha256": prompts_sha256(work.prompts(split)),
        "max_tokens": work.max_tokens,
        "ignore_eos": work.ignore_eos,
        **({"slo": without_nulls(asdict(work.slo))} if work.slo else {}),
        "requests_per_stream": work.requests_per_stream,
        "sampling": {"temperature": work.sampling.temperature, **work.sampling.params},
        "chat_template_kwargs": dict(work.chat_template_kwargs),
        **without_nulls(optional),
    }


def _has(values: object, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


class BestConfig:
    """Renders the recommended deployment with its evidence."""

    filename = "best-config.yaml"

    def render(
        self, spec: StudySpec, result: Recommendation, provenance: Mapping[str, JSON]
    ) -> str:
        """The document as YAML."""
        other = any(level.compared != "output_throughput" for level in result.levels)
        head = _HEAD + _HEAD_OTHER if other else _HEAD
        return dump(document(spec, result, provenance), head=head)


PLUGIN: Exporter = BestConfig()
