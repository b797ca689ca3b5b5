"""What is known of one model before it is loaded: values only.

Rule: an empty mapping or None means that it was not read, and no rule refuses anything for that.
Names of keys are those of config.json; in a multimodal model the text part is what counts.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.context import context_of
from autotune.core.jsontype import JSON

INNER = ("thinker_config", "text_config", "llm_config", "transformer_layer_config")
"""Where a config keeps its text part (vllm/transformers_utils/config.py; the last one is that of
speculators, configs/speculators/base.py)."""

BITS = {"F64": 64, "F32": 32, "I64": 64, "I32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16}
EIGHT_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor as the header of its safetensors file describes it."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes; types of four bits and less are packed into bytes, and count as those."""
        return self.elements * BITS.get(self.dtype, EIGHT_BITS) // EIGHT_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The tokens of a tokenizer with their ids."""

    tokens: Mapping[str, int]
    """All of them, added ones included."""
    special: Mapping[str, int]
    """Those that a tokenizer does not find in plain text."""

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.tokens.values(), default=-1) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why the engine could not load it, and what to do."""

    evidence: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model's folder or repository, as far as it was read."""

    name: str
    """As the engine is given it."""
    config: Mapping[str, JSON] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    weight_bytes: int | None = None
    """Of the weight files; None: not known."""
    vocabulary: Vocabulary | None = None
    generation: Mapping[str, JSON] = field(default_factory=dict)
    """Its generation_config.json."""
    troubles: tuple[Trouble, ...] = ()
    unchecked: str = ""
    """What could not be looked at, and why; empty: everything was."""

    @property
    def text(self) -> Mapping[str, JSON]:
        """The config of its language model; keys of the outer one fill in."""
        found = dict(self.config)
        for name in INNER:
            inner = found.get(name)
            if isinstance(inner, dict):
                found = {**found, **inner}
        return found

    def number(self, *names: str) -> int | None:
        """The first of these keys that holds a whole number."""
        return next((v for name in names if (v := whole(self.text.get(name))) is not None), None)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The classes that its config names."""
        found = self.config.get("architectures")
        return tuple(str(name) for name in found) if isinstance(found, list) else ()

    @property
    def model_type(self) -> str:
        """The kind of its language model."""
        return str(self.text.get("model_type") or "")

    @property
    def speculators(self) -> Mapping[str, JSON]:
        """What makes it a speculators repository; empty for others."""
        found = self.config.get("speculators_config")
        return found if isinstance(found, dict) else {}

    @property
    def hidden_size(self) -> int | None:
        """Width of its hidden states."""
        return self.number("hidden_size", "emb_dim", "n_embd", "d_model")

    @property
    def layers(self) -> int | None:
        """Depth of its language model."""
        return self.number("num_hidden_layers", "n_layer", "num_layers")

    @property
    def vocab_size(self) -> int | None:
        """Rows of its embedding, padding included."""
        return self.number("vocab_size")

    @property
    def quantization(self) -> str:
        """How its weights are quantized; empty: they are not, or it is not known."""
        for config in (self.config, self.text):
            found = config.get("quantization_config") or config.get("compression_config")
            if isinstance(found, dict):
                return str(found.get("quant_method") or found.get("quant_algo") or "unknown")
        return ""

    @property
    def context(self) -> int | None:
        """Longest sequence that its positions reach."""
        return context_of(self.text)

    @property
    def mrope(self) -> bool:
        """Whether its positions have several dimensions (M-RoPE)."""
        ropes = (self.text.get("rope_scaling"), self.text.get("rope_parameters"))
        return any(isinstance(rope, dict) and "mrope_section" in rope for rope in ropes)

    @property
    def multimodal(self) -> bool:
        """Whether it takes more than text."""
        return any(key in self.config for key in ("vision_config", "audio_config", "visual"))

    @property
    def parameters(self) -> int | None:
        """Numbers in its weights; None where they are packed or not known."""
        if not self.tensors or self.quantization:
            return None
        return sum(tensor.elements for tensor in self.tensors.values())

    def has_tensor(self, pattern: str) -> bool:
        """Whether a tensor's name matches."""
        return any(re.search(pattern, name) for name in self.tensors)


def whole(value: JSON) -> int | None:
    """A whole number, or None; `true` is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
