"""A small study of the demo's target on a real vLLM, as a user has it on disk."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.live.real import MEMORY, MODELS, ROOT

Json = Mapping[str, Any]
PROMPTS = ROOT / "studies" / "smollm2-135m" / "prompts.jsonl"
NGRAM = {"method": "ngram", "name": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 3}
ENDED_S = 60.0


def draft(name: str, model: Path, method: str = "draft_model") -> dict[str, object]:
    """A candidate whose draft is a model."""
    return {"name": name, "method": method, "model": str(model)}


def study(name: str, *candidates: Json, **search: object) -> dict[str, Any]:
    """A candidates file: one stream, two blocks, K = 1 and 2."""
    return {
        "study": name,
        "target": {
            "model": str(MODELS / "target"),
            "engine_args": {
                "max_model_len": 1024,
                "max_num_seqs": 4,
                "dtype": os.environ.get("AUTOTUNE_DEMO_DTYPE", "bfloat16"),  # as make chooses
                "enforce_eager": True,
            },
        },
        "workload": {
            "prompts": str(PROMPTS),
            "concurrency": 1,
            "max_tokens": 16,
            "sampling": {"temperature": 0},
        },
        "candidates": list(candidates),
        "search": {
            "num_speculative_tokens": [1, 2],
            "gpu_memory_utilization": MEMORY,
            "budget": "20m",  # a bound for a busy machine: blocks end the study long before
            "min_blocks": 2,
            "max_blocks": 2,
            "confirm_rounds": 1,
            **search,
        },
        "tracking": {"mlflow": False},
    }


def to_copy(file: Path) -> Path:
    """Write prompts to copy a text, where a lookup is right so often that it pays anywhere."""
    rows = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    with file.open("w", encoding="utf-8") as lines:
        for row in rows:
            if row["task"] in {"summarise", "extract"}:  # those that bring a text along
                text = row["messages"][-1]["content"]
                asked = f"Copy this text word for word, and say nothing else.\n\n{text}"
                lines.write(json.dumps({**row, "messages": [{"role": "user", "content": asked}]}))
                lines.write("\n")
    return file


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A folder with a candidates file."""

    folder: Path
    name: str

    @property
    def launches(self) -> list[Path]:
        """The launch folders, in order."""
        return sorted((self.folder / "studies" / self.name / "launches").glob("[0-9]*"))

    def report(self, file: str) -> Path:
        """A file of the report's folder."""
        return self.folder / "reports" / self.name / file

    def best_config(self) -> dict[str, Any]:
        """What the study recommends."""
        found: dict[str, Any] = yaml.safe_load(self.report("best-config.yaml").read_text())
        return found

    def launch(self, folder: Path) -> dict[str, Any]:
        """What was asked of a launch."""
        found: dict[str, Any] = json.loads((folder / "launch.json").read_text())["launch"]
        return found

    @contextmanager
    def started(self, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        """An `autotune` that is not waited for; ended, its servers with it, if it still runs."""
        with self._said.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "autotune", *words],
                cwd=self.folder,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=ENDED_S)

    @property
    def said(self) -> str:
        """All that the last command has said."""
        return self._said.read_text(encoding="utf-8")

    @property
    def _said(self) -> Path:
        return self.folder / "said.log"

    def living(self) -> Sequence[str]:
        """Processes that were started here and are still there."""
        found = []
        for process in psutil.process_iter(["cwd", "cmdline", "status"]):
            here = process.info["cwd"] or ""
            if here.startswith(str(self.folder)) and process.info["status"] != "zombie":
                found.append(f"{process.pid}: {' '.join(process.info['cmdline'] or [])}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a command has left behind."""

    desk: Desk
    code: int
    said: str


def ended(laid: Desk, *words: str) -> Ended:
    """Run `autotune` there and wait for it."""
    with laid.started(*words) as process:
        process.wait()
    return Ended(desk=laid, code=process.returncode, said=laid.said)


def desk(folder: Path, file: Json) -> Desk:
    """Lay a study out in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(dict(file), sort_keys=False)
    (folder / "candidates.yaml").write_text(text, encoding="utf-8")
    return Desk(folder=folder, name=file["study"])
