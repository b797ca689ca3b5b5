"""What vLLM 0.32 calls its heads and the models with MTP layers: tables only.

Rule: copied from vLLM's source, which each table names; nothing here decides.
"""

HEAD_CLASSES = frozenset(
    [
        "EagleCohereForCausalLM",
        "EagleLlamaForCausalLM",
        "EagleLlama4ForCausalLM",
        "EagleMiniCPMForCausalLM",
        "EagleMistralForCausalLM",
        "EagleMistralLarge3ForCausalLM",
        "EagleDeepSeekMTPModel",
        "Eagle3LlamaForCausalLM",
        "Eagle3MiniMaxM2ForCausalLM",
        "LlamaForCausalLMEagle3",
        "Eagle3Qwen2_5vlForCausalLM",
        "Eagle3Qwen3vlForCausalLM",
        "Eagle3Qwen3ForCausalLM",
        "Eagle3DeepseekV2ForCausalLM",
        "Eagle3DeepseekV3ForCausalLM",
        "PEagleDraftModel",
        "PeagleLlamaForCausalLM",
        "PeagleQwen3ForCausalLM",
        "DFlashDraftModel",
        "LiLiCorrDraftModel",
        "DFlash2DraftModel",
        "DFlashMuseGlimmerAssistantModel",
        "DFlashLagunaForCausalLM",
    ]
)
"""vLLM 0.32's own heads (_SPECULATIVE_DECODING_MODELS in model_executor/models/registry.py)."""

SPECULATORS = {
    "eagle3": "eagle3",
    "peagle": "eagle3",
    "dflash": "dflash",
    "dflash2": "dflash",
    "dspark": "dspark",
}
"""Kinds of speculators repositories, and the method of each
(vllm/transformers_utils/configs/speculators/algos.py and base.py)."""

MTP_KINDS = frozenset(
    [
        "dots3_note",
        "deepseek_v3",
        "deepseek_v32",
        "glm_moe_dsa",
        "deepseek_v4",
        "pangu_ultra_moe",
        "kimi_k3",
        "ernie4_5_moe",
        "nemotron_h",
        "nemotron_h_puzzle",
        "qwen3_next",
        "qwen4_exp",
        "qwen4_exp_text",
        "bailing_hybrid",
        "exaone_moe",
        "exaone4_5",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_5_text",
        "qwen3_5_moe_text",
        "intern_s2_preview",
        "interns2_mobius",
        "longcat_flash",
        "step3p5",
        "step3p7",
        "hy_v3",
        "hy_v4",
        "inkling_mm_model",
        "inkling_model",
        "gemma4_assistant",
        "gemma4_unified_assistant",
        "minimax_m3_vl",
        "glm5_next",
        "MiMoForCausalLM",
        "MiMoV2ForCausalLM",
        "MiMoV2OmniForCausalLM",
        "MiMoV2FlashForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmOcrForConditionalGeneration",
        "NemotronH_Super_Omni_Reasoning_V3",
        "NemotronH_Omni_Reasoning_V3",
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
        "MiniMaxM3SparseForConditionalGeneration",
        "MiniMaxM3MTP",
    ]
)
"""model_type or architecture of models whose MTP layers vLLM 0.32 runs (hf_config_override in
vllm/config/speculative.py)."""
MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
ONE_MTP_LAYER = frozenset(
    [
        "dots3_note",
        "longcat_flash",
        "step3p5",
        "step3p7",
        "minimax_m3_vl",
        "gemma4_assistant",
        "gemma4_unified_assistant",
        "MiMoV2ForCausalLM",
        "MiMoV2OmniForCausalLM",
        "MiMoV2FlashForCausalLM",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
        "MiniMaxM3SparseForConditionalGeneration",
        "MiniMaxM3MTP",
    ]
)
"""Those that have one where their config does not say how many."""
