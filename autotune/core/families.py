"""Drafts that are known to exist: heads trained for one target, small models of its family.

Rule: a row names a repository that its source lists; whether a draft pays is measured, never
known. A family's models share one tokenizer, the vocabulary sizes are those of their configs.
"""

import re
from dataclasses import dataclass

from autotune.core.checkpoint import Checkpoint

_EAGLE = "SafeAILab/EAGLE, README.md"
_SPECULATORS = "vllm-project/speculators, README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A draft that was trained for one target."""

    target: str
    method: str
    model: str
    source: str
    """The repository and page that list it."""


def _eagle3(source: str, *pairs: tuple[str, str]) -> tuple[Head, ...]:
    return tuple(Head(target=t, method="eagle3", model=m, source=source) for t, m in pairs)


HEADS: tuple[Head, ...] = (
    *_eagle3(
        _SPECULATORS,
        ("meta-llama/Llama-3.1-8B-Instruct", "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"),
        ("meta-llama/Llama-3.3-70B-Instruct", "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3"),
        ("Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3"),
        ("Qwen/Qwen3-14B", "RedHatAI/Qwen3-14B-speculator.eagle3"),
        ("Qwen/Qwen3-32B", "RedHatAI/Qwen3-32B-speculator.eagle3"),
        (
            "Qwen/Qwen3-30B-A3B-Instruct-2507",
            "RedHatAI/Qwen3-30B-A3B-Instruct-2507-speculator.eagle3",
        ),
        (
            "Qwen/Qwen3-235B-A22B-Instruct-2507",
            "RedHatAI/Qwen3-235B-A22B-Instruct-2507-speculator.eagle3",
        ),
        ("Qwen/Qwen3-235B-A22B", "RedHatAI/Qwen3-235B-A22B-speculator.eagle3"),
        ("openai/gpt-oss-20b", "RedHatAI/gpt-oss-20b-speculator.eagle3"),
    ),
    *_eagle3(
        _EAGLE,
        ("meta-llama/Llama-3.1-8B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
        ("meta-llama/Llama-3.3-70B-Instruct", "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"),
        (
            "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
            "yuhuili/EAGLE3-DeepSeek-R1-Distill-LLaMA-8B",
        ),
        ("lmsys/vicuna-13b-v1.3", "yuhuili/EAGLE3-Vicuna1.3-13B"),
        ("Qwen/Qwen3-1.7B", "AngelSlim/Qwen3-1.7B_eagle3"),
        ("Qwen/Qwen3-4B", "AngelSlim/Qwen3-4B_eagle3"),
        ("Qwen/Qwen3-8B", "AngelSlim/Qwen3-8B_eagle3"),
        ("Qwen/Qwen3-14B", "AngelSlim/Qwen3-14B_eagle3"),
        ("Qwen/Qwen3-32B", "AngelSlim/Qwen3-32B_eagle3"),
        ("openai/gpt-oss-120b", "nvidia/gpt-oss-120b-Eagle3"),
    ),
    Head(
        target="meta-llama/Meta-Llama-3-8B-Instruct",
        method="eagle",
        model="yuhuili/EAGLE-LLaMA3-Instruct-8B",
        source=_EAGLE,
    ),
    Head(
        target="meta-llama/Meta-Llama-3-70B-Instruct",
        method="eagle",
        model="yuhuili/EAGLE-LLaMA3-Instruct-70B",
        source=_EAGLE,
    ),
)

_QUANTIZED = re.compile(
    r"-(fp8|fp4|nvfp4|mxfp4|awq|gptq|bnb|int[48]|w\d+a\d+|quantized|\d+bit|4-bit|8-bit)\b.*",
    re.IGNORECASE,
)
"""What the names of quantized copies add: their hidden states are near enough to the original's."""


def heads_for(target: str) -> list[Head]:
    """The heads trained for a target, by the last part of its name; quantized copies included."""
    return [head for head in HEADS if same_model(head.target, target)]


def same_model(one: str, other: str) -> bool:
    """Whether two names, of folders or on the hub, are of one model or its quantized copy."""
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    return _QUANTIZED.sub("", name.rstrip("/").rpartition("/")[2]).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """A small model of a family."""

    model: str
    billions: float
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models of one tokenizer, and those of them that are small enough to draft."""

    name: str
    model_types: tuple[str, ...]
    vocab_sizes: tuple[int, ...]
    """What the configs of its models say; they differ where some pad their embedding further."""
    pattern: str
    """What its names on the hub begin with, for a target of which nothing else is known."""
    siblings: tuple[Sibling, ...]

    def has(self, target: Checkpoint) -> bool:
        """Whether a target is one of them: by its config, else by its name."""
        if target.config:
            return target.model_type in self.model_types and target.vocab_size in self.vocab_sizes
        return re.match(self.pattern, target.label, re.IGNORECASE) is not None


FAMILIES: tuple[Family, ...] = (
    Family(
        name="Llama 3",
        model_types=("llama",),
        vocab_sizes=(128256,),
        pattern=r"(meta-)?llama-3(\.\d)?-",
        siblings=(
            Sibling(model="meta-llama/Llama-3.2-1B-Instruct", billions=1.24, vocab_size=128256),
            Sibling(model="meta-llama/Llama-3.2-3B-Instruct", billions=3.21, vocab_size=128256),
        ),
    ),
    Family(
        name="Qwen3",
        model_types=("qwen3", "qwen3_moe"),
        vocab_sizes=(151936,),
        pattern=r"qwen3-\d",
        siblings=(
            Sibling(model="Qwen/Qwen3-0.6B", billions=0.6, vocab_size=151936),
            Sibling(model="Qwen/Qwen3-1.7B", billions=1.7, vocab_size=151936),
            Sibling(model="Qwen/Qwen3-4B", billions=4.0, vocab_size=151936),
        ),
    ),
    Family(
        name="Qwen2.5",
        model_types=("qwen2",),
        vocab_sizes=(151936, 152064),  # from 7B on the embedding is padded further
        pattern=r"qwen2\.5-",
        siblings=(
            Sibling(model="Qwen/Qwen2.5-0.5B-Instruct", billions=0.5, vocab_size=151936),
            Sibling(model="Qwen/Qwen2.5-1.5B-Instruct", billions=1.5, vocab_size=151936),
            Sibling(model="Qwen/Qwen2.5-7B-Instruct", billions=7.6, vocab_size=152064),
        ),
    ),
    Family(
        name="SmolLM2",
        model_types=("llama",),
        vocab_sizes=(49152,),
        pattern=r"smollm2-",
        siblings=(
            Sibling(model="HuggingFaceTB/SmolLM2-135M-Instruct", billions=0.135, vocab_size=49152),
            Sibling(model="HuggingFaceTB/SmolLM2-360M-Instruct", billions=0.36, vocab_size=49152),
        ),
    ),
)


def family_of(target: Checkpoint) -> Family | None:
    """The family of a target; None for one that the table does not know."""
    return next((family for family in FAMILIES if family.has(target)), None)


SMALLER = 0.5
"""A draft of more than half the target's size cannot pay: its steps cost too much."""
RATIO = 5.0
"""A step of the target should cost at least so many of the draft's; advice, not a limit."""
_CEILINGS = ((10.0, 1.75), (30.0, 4.0), (float("inf"), 7.6))
"""Billions of the target, of its draft at most: 7B -> 0.5-1B, 13B -> 1-3B, 70B -> at most 7B, each
with room for what is sold under that name."""


def small_enough(draft_b: float, target_b: float) -> bool:
    """Whether a draft is of a size that is worth a launch beside a target, in billions."""
    ceiling = next(most for size, most in _CEILINGS if target_b <= size)
    return draft_b <= min(ceiling, SMALLER * target_b)
