"""What a model's own files say of it: size, vocabulary, the layers it drafts with, what it heads.

Rule: config.json and the headers of safetensors only; what they do not say is None or empty, never
guessed. The keys are those that vLLM reads (vllm/config/speculative.py, hf_config_override).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autotune.core.jsontype import JSON
from autotune.core.methods import METHODS

_MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_MTP_TYPES = frozenset(
    {
        *("bailing_hybrid", "deepseek_v3", "deepseek_v32", "deepseek_v4", "dots3_note"),
        *("ernie4_5_moe", "exaone4_5", "exaone_moe", "glm5_next", "glm_moe_dsa", "hy_v3", "hy_v4"),
        *("inkling_mm_model", "inkling_model", "intern_s2_preview", "interns2_mobius", "kimi_k3"),
        *("longcat_flash", "minimax_m3_vl", "nemotron_h", "nemotron_h_puzzle", "pangu_ultra_moe"),
        *("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen4_exp"),
        *("qwen4_exp_text", "step3p5", "step3p7"),
    }
)
"""The `model_type` of targets whose own MTP layers vLLM 0.32 drafts with."""
_MTP_ARCHITECTURES = frozenset(
    {
        *("BailingMoeV2_5ForCausalLM", "BailingMoeV3ForCausalLM"),
        *("BailingMoeV3VLForConditionalGeneration", "Glm4MoeForCausalLM"),
        *("Glm4MoeLiteForCausalLM", "GlmOcrForConditionalGeneration", "MiMoForCausalLM"),
        *("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM"),
        *("MiniMaxM3SparseForConditionalGeneration", "NemotronH_Omni_Reasoning_V3"),
        *("NemotronH_Super_Omni_Reasoning_V3", "Step3p5ForCausalLM"),
        "Step3p7ForConditionalGeneration",
    }
)
"""The same by architecture, where vLLM goes by that."""
_FIRST_LAYER_ONLY = ("MiMoV2",)
"""Architectures, by their beginning, of which vLLM 0.32 uses the first MTP layer alone."""

_SIZE = re.compile(r"(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])", re.IGNORECASE)
_BILLION = 1e9
_FC = "fc.weight"
"""The layer with which an EAGLE head joins hidden states; no other model has it."""
_FUSED = 3
"""Hidden states that an EAGLE-3 head joins; an EAGLE head joins two (vllm, llama_eagle*.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model as far as its files are at hand; without any it is a name."""

    name: str
    """As a candidates file names it: a folder or the id on the hub."""
    config: Mapping[str, JSON] = field(default_factory=dict)
    """config.json; empty: not at hand."""
    generation: Mapping[str, JSON] = field(default_factory=dict)
    """generation_config.json."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of each tensor; empty: no safetensors at hand."""
    vocabulary: str = ""
    """A digest of what each token id stands for; empty: no tokenizer.json at hand."""

    @property
    def label(self) -> str:
        """The last part of the name."""
        return self.name.rstrip("/").rpartition("/")[2]

    @property
    def model_type(self) -> str:
        """What transformers calls its kind; empty if not at hand."""
        return str(self.config.get("model_type") or "")

    @property
    def architecture(self) -> str:
        """Its first architecture; empty if not at hand."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    @property
    def vocab_size(self) -> int | None:
        """Rows of its embedding, padding included."""
        return self.number("vocab_size")

    @property
    def billions(self) -> float | None:
        """Billions of parameters: by its name, as people say them, else as counted."""
        for part in re.split(r"[-_]", self.label):
            if found := _SIZE.fullmatch(part):
                times, number, unit = found.groups()
                return int(times or 1) * float(number) / (1 if unit in "bB" else 1000)
        counted = sum(_product(shape) for shape in self.shapes.values())
        return counted / _BILLION if counted else None

    def number(self, key: str) -> int | None:
        """A whole number of the config; of the language model's part where there are several."""
        for section in self._sections():
            value = section.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    @property
    def mtp_layers(self) -> int:
        """Multi-token-prediction layers that the config tells of."""
        found = [n for key in _MTP_KEYS if (n := self.number(key))]
        if found and self.architecture.startswith(_FIRST_LAYER_ONLY):
            return 1
        return max(found, default=0)

    @property
    def mtp_known(self) -> bool:
        """Whether vLLM drafts with the MTP layers of this kind of model."""
        return self.model_type in _MTP_TYPES or self.architecture in _MTP_ARCHITECTURES

    @property
    def heads(self) -> str | None:
        """The method of a head that drafts from a target's hidden states; None for others."""
        told = str(self.config.get("speculators_model_type") or "")
        if told in METHODS and METHODS[told].needs_model:
            return told
        joined = next((s for n, s in self.shapes.items() if f".{n}".endswith(f".{_FC}")), None)
        if joined is None or len(joined) != len(("out", "in")):
            return None
        return "eagle3" if joined[1] >= _FUSED * joined[0] else "eagle"

    @property
    def verifier(self) -> str:
        """The target that a head says it was trained for; empty if it does not."""
        found: JSON = dict(self.config)
        for key in ("speculators_config", "verifier", "name_or_path"):
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, str) else ""

    def _sections(self) -> Iterator[Mapping[str, JSON]]:
        yield self.config
        for key in ("text_config", "mtp_config", "transformer_layer_config"):
            section = self.config.get(key)
            if isinstance(section, dict):
                yield section


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count
