"""A study on the simulated engine, as a user has it on disk, and the real command line over it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

Json = Mapping[str, Any]

GOOD = {"acceptance": [0.97, 0.96, 0.95, 0.94, 0.01], "t_draft": 0.003}
"""A draft that is right four times and then never: the best K is 4."""
BAD = {"acceptance": [0.02, 0.01], "t_draft": 0.02}
"""A draft that halves the speed."""
POOR = {"acceptance": [0.2, 0.1], "t_draft": 0.0}
BEST_K = 4
TIMEOUT_S = 250.0
_BYTECODE = Path(__file__).parents[2] / ".pytest_cache" / "pycache"


def world(**changes: object) -> dict[str, object]:
    """A noiseless world, 4 ms a step: `good` pays, `bad` never does, `suffix` hardly."""
    base = {
        "time_scale": 0.2,
        "startup_s": 0.1,
        "noise": {"launch_sigma": 0.0, "step_sigma": 0.0},
        "reply": {"low": 60, "high": 60},
        "drafts": {"good": GOOD, "bad": BAD, "suffix": POOR},
    }
    return base | changes


def fault(what: str | Mapping[str, object], **when: object) -> dict[str, object]:
    """One fault of a world."""
    return {"what": what, "when": when}


def draft(name: str) -> dict[str, object]:
    """A candidate whose draft is a model."""
    return {"name": name, "method": "draft_model", "model": f"./{name}"}


def candidates(*entries: Json, **sections: Json) -> dict[str, Any]:
    """A file small enough for a test: one stream, three blocks, K = 1, 4 and 8."""
    file: dict[str, Any] = {
        "study": "s",
        "target": {"model": "./target", "engine": "simulated"},
        "workload": {
            "prompts": "prompts.jsonl",
            "concurrency": 1,
            "max_tokens": 30,
            "sampling": {"temperature": 0},
        },
        "candidates": list(entries) or [draft("good")],
        "search": {
            "num_speculative_tokens": [1, BEST_K, 8],
            "gpu_memory_utilization": 0.9,
            "min_blocks": 2,
            "max_blocks": 3,
            "confirm_rounds": 1,
        },
        "tracking": {"mlflow": False},
    }
    for name, section in sections.items():
        kept = file.get(name)
        file[name] = {**kept, **section} if isinstance(kept, dict) else section
    return file


@dataclass(frozen=True, slots=True)
class Done:
    """What a command has left behind."""

    code: int
    text: str
    """stdout and stderr together."""


@dataclass(frozen=True, slots=True)
class Desk:
    """A folder with a candidates file, models, prompts and a world."""

    folder: Path

    @property
    def launches(self) -> list[Path]:
        """The launch folders, in order."""
        return sorted((self.folder / "studies" / "s" / "launches").glob("[0-9]*"))

    def report(self, name: str) -> str:
        """The text of a file in the report's folder."""
        return (self.folder / "reports" / "s" / name).read_text(encoding="utf-8")

    def write(self, file: Json, settings: Json) -> None:
        """Write the candidates file and the world anew."""
        text = yaml.safe_dump(file, sort_keys=False)
        (self.folder / "candidates.yaml").write_text(text, encoding="utf-8")
        (self.folder / "world.yaml").write_text(json.dumps(settings), encoding="utf-8")

    def autotune(self, *words: str) -> Done:
        """Run `autotune` in the folder and wait for it."""
        with self.started(*words) as process:
            text = process.communicate(timeout=TIMEOUT_S)[0]
        return Done(process.returncode, text)

    def run(self, *options: str) -> Done:
        """`autotune run candidates.yaml`."""
        return self.autotune("run", "candidates.yaml", *options)

    @contextmanager
    def started(self, *words: str) -> Iterator["subprocess.Popen[str]"]:
        """An `autotune` that is not waited for; killed if it still runs at the end."""
        process = subprocess.Popen(
            [sys.executable, "-m", "autotune", *words],
            cwd=self.folder,
            env=_environment(self.folder / "world.yaml"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.communicate(timeout=10)

    def wait_for(self, pattern: str, count: int = 1) -> None:
        """Return when that many files below studies/ match."""
        deadline = time.monotonic() + TIMEOUT_S
        while len(list((self.folder / "studies").glob(pattern))) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pattern} did not appear in {TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def wait_for_passes(self, launch: int, count: int) -> None:
        """Return when a launch has that many passes on disk."""
        file = self.folder / "studies" / "s" / "launches" / f"{launch:03d}" / "passes.jsonl"
        deadline = time.monotonic() + TIMEOUT_S
        while not file.exists() or file.read_bytes().count(b"\n") < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{file} has not {count} passes after {TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def servers(self) -> Sequence[int]:
        """Process ids of simulated servers of this folder that still live."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words = process.info["cmdline"] or []
            ours = any(str(self.folder) in word for word in words)
            if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        return found


def desk(
    folder: Path, file: Json | None = None, settings: Json | None = None, *, prompts: int = 16
) -> Desk:
    """Lay a study out in a folder, with so many prompts in each split."""
    file = candidates() if file is None else file
    models = [entry["model"] for entry in file["candidates"] if "model" in entry]
    for model in ("target", *models):
        (folder / model).mkdir(parents=True, exist_ok=True)
        (folder / model / "config.json").write_text("{}", encoding="utf-8")
    with (folder / "prompts.jsonl").open("w", encoding="utf-8") as lines:
        for split in ("search", "confirmation"):
            for i in range(prompts):
                message = {"role": "user", "content": f"Question {i} of the {split} split, please?"}
                row = {"id": f"{split}-{i}", "split": split, "messages": [message]}
                lines.write(json.dumps(row) + "\n")
    laid = Desk(folder)
    laid.write(file, world() if settings is None else settings)
    return laid


def _environment(world_file: Path) -> dict[str, str]:
    # Compiled modules are kept also where PYTHONDONTWRITEBYTECODE is set: each start of `autotune`
    # would compile numpy, optuna and matplotlib anew, for many seconds.
    ours = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(_BYTECODE)}
    return os.environ | ours | {"AUTOTUNE_SIM_WORLD": str(world_file)}
