"""How long the context of a model is, by its config.json.

Rule: as vLLM derives it when max_model_len is not given (derive_max_model_len_and_key in
transformers_utils/model_arch_config_convertor.py, and the RoPE kinds in vllm/config/model.py).
"""

from collections.abc import Mapping

from autotune.core.jsontype import JSON

LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
SCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
"""Kinds of RoPE whose scaling is part of the length already."""


def context_of(config: Mapping[str, JSON]) -> int | None:
    """Longest sequence that the positions of a text config reach; None when it does not say."""
    found = [v for k in LENGTHS if isinstance(v := config.get(k), int) and v is not True]
    if not found:
        return None
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        return min(found)
    kind, factor = rope.get("rope_type") or rope.get("type"), rope.get("factor")
    if kind in SCALED or not isinstance(factor, int | float):
        return min(found)
    return int(min(found) * factor)
