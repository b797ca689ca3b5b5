"""Orders for engines, on the simulated one or any other."""

import json
from collections.abc import Mapping
from pathlib import Path

from autotune.ports import ServeOrder


def order(
    folder: Path,
    *,
    draft: Mapping[str, object] | None = None,
    live: bool = False,
    env: Mapping[str, str] | None = None,
    launcher: tuple[str, ...] = (),
    timeout_s: float = 60.0,
) -> ServeOrder:
    """A launch of /models/t, with a draft if one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, object] = {"model": "/models/t", "gpu-memory-utilization": 0.9}
    if draft is not None:
        values["speculative-config"] = dict(draft)
    config = folder / "vllm.yaml"
    config.write_text(json.dumps(values), encoding="utf-8")
    return ServeOrder(
        config_file=config,
        folder=folder,
        launcher=launcher,
        env=env or {},
        live=live,
        model="/models/t",
        start_timeout_s=timeout_s,
    )


def world_env(folder: Path, **settings: object) -> dict[str, str]:
    """The environment of a simulated launch in a fast, noiseless world."""
    world = {"time_scale": 0.05, "startup_s": 0.1, **settings}
    file = folder / "world.yaml"
    file.write_text(json.dumps(world), encoding="utf-8")
    return {"AUTOTUNE_SIM_WORLD": str(file)}
