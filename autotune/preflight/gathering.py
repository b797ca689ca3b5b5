"""From a study to its Facts: the models are read side by side, the rest is handed in.

Rule: reading is bounded (hub.TIMEOUT_S for each model that is not here) and starts nothing.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from autotune.core.adapters import lora_modules
from autotune.core.jsontype import JSON
from autotune.core.study import Candidate, StudySpec
from autotune.preflight import hub
from autotune.preflight.checkpoint import Checkpoint
from autotune.preflight.facts import Device, Facts
from autotune.preflight.reading import Named, read, read_adapter

READERS = 8


def gather(
    spec: StudySpec,
    probe: Mapping[str, str],
    devices: tuple[Device, ...],
    ask: hub.Hub = hub.ask,
    environ: Mapping[str, str] | None = None,
) -> Facts:
    """Everything that the rules look at."""
    env = {**(os.environ if environ is None else environ), **spec.target.env}
    drafts = [c for c in spec.candidates if c.model is not None]
    tokens = any(c.row.same_vocabulary for c in drafts)
    wanted = [_target(spec, env, tokens=tokens), *(_draft(c, env) for c in drafts)]
    with ThreadPoolExecutor(READERS) as pool:
        target, *found = pool.map(partial(read, ask=ask), wanted)
    return Facts(
        spec=spec,
        target=target,
        drafts={c.name: checkpoint for c, checkpoint in zip(drafts, found, strict=True)},
        probe=probe,
        devices=devices,
        env=env,
        adapters=_adapters(spec.target.engine_args),
    )


def _target(spec: StudySpec, env: Mapping[str, str], *, tokens: bool) -> Named:
    args = spec.target.engine_args
    return Named(
        model=spec.target.model,
        revision=_text(args.get("revision")),
        tokenizer=_text(args.get("tokenizer")) or "",
        vocabulary=tokens,
        env=env,
    )


def _draft(candidate: Candidate, env: Mapping[str, str]) -> Named:
    return Named(
        model=str(candidate.model),
        revision=_text(candidate.settings.get("revision")),
        vocabulary=candidate.row.same_vocabulary,
        env=env,
    )


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) else None


def _adapters(engine_args: Mapping[str, JSON]) -> dict[str, Checkpoint]:
    """The adapters in local folders."""
    found = {}
    for module in lora_modules(engine_args):
        path = Path(str(module.get("path", "")))
        if path.is_absolute():
            found[str(module.get("name"))] = read_adapter(path)
    return found
