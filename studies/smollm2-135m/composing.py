"""Model folders that vLLM loads: the target from its GGUF file, drafts from trained layers.

models.py decides what to build and checks what came out; this file does the building.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import rawtensors
from rawtensors import RawTensor

WEIGHTS = "model.safetensors"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
EMBEDDINGS = "model.embed_tokens.weight"


class ModelsError(Exception):
    """A model cannot be built; the text says why and what to do."""


@dataclass(frozen=True)
class Draft:
    """A trained draft: its folder and file name, its depth, and whether it brings embeddings.

    An EAGLE head borrows the target's embeddings inside vLLM; a draft model carries its own.
    """

    name: str
    layers: int
    embeddings: bool


DRAFTS = (
    Draft("draft-2l", layers=2, embeddings=True),
    Draft("draft-4l", layers=4, embeddings=True),
    Draft("eagle", layers=1, embeddings=False),
)


def build_target(gguf: Path, folder: Path) -> None:
    """Write the dequantised bf16 target, its tokenizer and its chat template to `folder`."""
    torch, transformers = _torch_and_transformers()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **source,
        dtype=torch.bfloat16,
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
    (folder / WEIGHTS).chmod(0o644)  # save_pretrained leaves it to the owner alone
    _tidy_config(folder)


def _torch_and_transformers() -> tuple[ModuleType, ModuleType]:
    try:
        import torch  # noqa: PLC0415  # seconds to import, and only the first build needs them
        import transformers  # noqa: PLC0415
    except ImportError as error:
        raise ModelsError(
            f"Building the target needs torch, transformers, gguf and accelerate ({error}). "
            "Run this with the Python that vLLM is installed in."
        ) from error
    return torch, transformers


def _tidy_config(folder: Path) -> None:
    """Keep what vLLM reads, and no sampling default: temperature 0 must mean greedy, no more."""
    config = json.loads((folder / "config.json").read_text())
    for passing in ("_model_name_or_path", "transformers_version"):
        config.pop(passing, None)
    write_json(folder / "config.json", config)
    stops = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    write_json(folder / "generation_config.json", stops)


def compose(draft: Draft, target: Path, trained: Mapping[str, RawTensor], folder: Path) -> None:
    """Write a draft that vLLM loads: trained layers, the target's embeddings and tokenizer."""
    tensors = dict(trained)
    if draft.embeddings:
        tensors[EMBEDDINGS] = rawtensors.read(target / WEIGHTS)[EMBEDDINGS]
    _write_model(target, folder, tensors, draft.layers)


def untrained_draft(target: Path, folder: Path, layers: int) -> None:
    """Write a draft that is bad on purpose: the target cut off after its first `layers` layers.

    It loads and drafts like any other and has next to nothing accepted. Tests use it as the
    known answer "speculation does not pay here".
    """
    kept = tuple(f"model.layers.{index}." for index in range(layers))
    tensors = {
        name: tensor
        for name, tensor in rawtensors.read(target / WEIGHTS).items()
        if name.startswith(kept) or not name.startswith("model.layers.")
    }
    with whole(folder) as partial:
        _write_model(target, partial, tensors, layers)


def _write_model(target: Path, folder: Path, tensors: Mapping[str, RawTensor], layers: int) -> None:
    config = json.loads((target / "config.json").read_text())
    write_json(folder / "config.json", {**config, "num_hidden_layers": layers})
    for name in ("generation_config.json", *TOKENIZER):
        shutil.copyfile(target / name, folder / name)
    rawtensors.write(folder / WEIGHTS, tensors)


@contextlib.contextmanager
def whole(home: Path) -> Iterator[Path]:
    """A folder that takes the name `home` only when the block ends well: all or nothing."""
    partial = home.with_name(f".{home.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # what a killed run left
    partial.mkdir(parents=True)
    try:
        yield partial
        shutil.rmtree(home, ignore_errors=True)
        partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Equal content gives equal files."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
