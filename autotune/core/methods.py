"""One row per speculative method: the only file that knows methods apart.

Rule: a difference between methods is a column here, never an `if` elsewhere. The names are vLLM's
`SpeculativeMethod` (vllm/config/speculative.py, 0.32).
"""

import difflib
from dataclasses import dataclass
from enum import StrEnum


class KCeiling(StrEnum):
    """What bounds K beyond the sampler and the context."""

    NONE = "none"
    HEADS = "heads"  # one trained head per position
    BLOCK = "block"  # drafts of one trained length
    LAYERS = "layers"  # further positions run a layer again: legal, worse with each
    TREE = "tree"  # the depth of the suffix trees


class Stages(StrEnum):
    """What a draft on the last pipeline stage wants from the other stages."""

    NOTHING = "nothing"
    EMBEDDINGS = "embeddings"  # shares them with the target, whose own are on the first stage
    HIDDEN_STATES = "hidden_states"  # of layers that are on other stages


class Runner(StrEnum):
    """Which of vLLM's model runners has the method."""

    BOTH = "both"
    V1 = "v1"
    V2 = "v2"


class Drafting(StrEnum):
    """How the K tokens of one draft come about, and so how its cost grows with K."""

    SEQUENTIAL = "sequential"  # one forward pass of the draft per token
    PARALLEL = "parallel"  # one forward pass for all K tokens
    LOOKUP = "lookup"  # no model at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """How a checkpoint shows that it is a draft of a method, any of them; patterns are searched."""

    architecture: str
    keys: tuple[str, ...]
    """Of its config.json."""
    tensor: str
    class_prefix: str = ""
    """What vLLM puts before the name of its architecture (transformers_utils/configs/eagle.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What the tuner must know about one speculative method."""

    name: str
    summary: str
    drafting: Drafting
    needs_model: bool
    live_k: bool
    """Whether vLLM takes another K at every step; the others get one launch per K."""
    fixed_length: bool
    """Whether every draft has exactly K tokens (but for trimming at the context limit)."""
    target_owns_draft: bool = False
    """Whether the draft layers are part of the target's own checkpoint."""
    lookup_window: tuple[str, str] | None = None
    """The settings of the shortest and the longest match that it looks for; None: none."""
    learns: bool = False
    """Whether it drafts from the replies to earlier requests, and so gets better as it serves."""
    head: bool = False
    """Whether it is a head over the target's hidden states, trained for that target alone."""
    aux_layers: bool = False
    """Whether it reads the hidden states of several of the target's layers."""
    block: bool = False
    """Whether it always drafts a block in one pass, which needs the id of a mask token."""
    same_vocabulary: bool = False
    """Whether its vocabulary must be the target's; heads may draft from a smaller one."""
    stretched: bool = False
    """Whether vLLM sizes its positions to the target's context, whatever it was trained for."""
    own_slot: bool = False
    """Whether the first drafted token takes a slot of the batch, beside those of the K."""
    target_tensor_parallel: bool = False
    """Whether vLLM runs it under the target's tensor parallel size and no other."""
    named_by_path: bool = False
    """Whether vLLM takes it for another method when the path of its model says so."""
    signs: Signs | None = None
    async_scheduling: bool = True
    k_ceiling: KCeiling = KCeiling.NONE
    stages: Stages = Stages.NOTHING
    runner: Runner = Runner.BOTH
    needs_gpu: bool = False
    package: str = ""
    """What the engine's interpreter must have beside vLLM, as it is installed."""
    gone: str = ""
    """Why vLLM 0.32 does not run it, though it knows the name."""

    def extra_slots(self, num_speculative_tokens: int, *, parallel: bool) -> int:
        """Slots of the token budget that drafting takes for each request.

        SpeculativeConfig.max_num_new_slots_for_drafting (vllm/config/speculative.py).
        """
        if not (self.head or self.own_slot):
            return 0
        queries = num_speculative_tokens if parallel or self.block else 1
        return queries - (0 if self.own_slot else 1)

    @property
    def has_weights(self) -> bool:
        """Whether deploying it costs memory for a draft; ties go to methods that do not."""
        return self.drafting is not Drafting.LOOKUP

    @property
    def drafting_rank(self) -> int:
        """Rank by what it takes to load and run: a lookup 0, a head 1, a model of its own 2."""
        if not self.has_weights:
            return 0
        return 1 if self.head else 2


# live_k: suffix_decoding.py and medusa.py (vllm/v1/spec_decode) assert K == K_max, custom_class is
# never told K, and parallel drafters are trained for one block length.
# head: use_eagle() in config/speculative.py, and medusa (v1/spec_decode/medusa.py).
# aux_layers: compute_hash() in config/speculative.py. async_scheduling: config/vllm.py, "Currently,
# async scheduling is only supported with". runner: _get_v1/v2_model_runner_unsupported_features
# there. same_vocabulary: verify_equal_vocab_size_if_draft_model. target_tensor_parallel:
# _raise_if_draft_tp_mismatch in v1/spec_decode/draft_model.py. stretched: eagle and eagle3 get
# the target's positions by _maybe_override_draft_max_position_embeddings. stages:
# _maybe_share_embeddings in llm_base_proposer.py shares on one stage only, and
# verify_supports_aux_hidden_states_over_pp in v1/worker/gpu/spec_decode/eagle/eagle3_utils.py.
# k_ceiling: MedusaConfig.num_lookahead_tokens makes as many heads as K
# (transformers_utils/configs/medusa.py), mtp warns "multiple times of forward on same MTP layer".
_FUSION = r"(^|\.)fc\."
"""What joins the target's hidden states with the embedding: every EAGLE-like head has it."""
_OF_HEADS = ("draft_vocab_size", "target_hidden_size", "speculators_model_type")

_ROWS = (
    Method(
        name="ngram",
        summary="looks the last tokens up in the prompt and reply so far",
        drafting=Drafting.LOOKUP,
        needs_model=False,
        live_k=True,
        fixed_length=False,
        lookup_window=("prompt_lookup_min", "prompt_lookup_max"),
        async_scheduling=False,
    ),
    Method(
        name="ngram_gpu",
        summary="n-gram lookup on the GPU",
        drafting=Drafting.LOOKUP,
        needs_model=False,
        live_k=False,
        fixed_length=False,
        lookup_window=("prompt_lookup_min", "prompt_lookup_max"),
        needs_gpu=True,  # memory is pinned for it (v1/worker/gpu_model_runner.py)
    ),
    Method(
        name="suffix",
        summary="suffix tree over the prompt and past replies (needs arctic-inference)",
        drafting=Drafting.LOOKUP,
        needs_model=False,
        live_k=False,
        fixed_length=False,
        learns=True,
        async_scheduling=False,
        k_ceiling=KCeiling.TREE,
        runner=Runner.V1,
        package="arctic-inference==0.1.1",
    ),
    Method(
        name="draft_model",
        summary="a smaller model with the same vocabulary",
        drafting=Drafting.SEQUENTIAL,
        needs_model=True,
        live_k=True,
        fixed_length=True,
        same_vocabulary=True,
        own_slot=True,
        target_tensor_parallel=True,
        named_by_path=True,
    ),
    Method(
        name="eagle",
        summary="EAGLE head: one layer over the target's hidden states",
        drafting=Drafting.SEQUENTIAL,
        needs_model=True,
        live_k=True,
        fixed_length=True,
        head=True,
        stretched=True,
        signs=Signs(
            architecture=r"^Eagle", keys=("eagle_config",), tensor=_FUSION, class_prefix="Eagle"
        ),
        stages=Stages.EMBEDDINGS,
    ),
    Method(
        name="eagle3",
        summary="EAGLE-3 head: fuses hidden states of three depths",
        drafting=Drafting.SEQUENTIAL,
        needs_model=True,
        live_k=True,
        fixed_length=True,
        head=True,
        stretched=True,
        signs=Signs(
            architecture=r"^P?[Ee]agle3?|Eagle3$",
            keys=(*_OF_HEADS, "eagle_config", "eagle_aux_hidden_state_layer_ids"),
            tensor=_FUSION,
            class_prefix="Eagle3",
        ),
        aux_layers=True,
        stages=Stages.HIDDEN_STATES,
    ),
    Method(
        name="mtp",
        summary="multi-token-prediction layers of the target's own checkpoint",
        drafting=Drafting.SEQUENTIAL,
        needs_model=False,
        live_k=True,
        fixed_length=True,
        target_owns_draft=True,
        head=True,
        named_by_path=True,
        k_ceiling=KCeiling.LAYERS,
        stages=Stages.EMBEDDINGS,
    ),
    Method(
        name="medusa",
        summary="Medusa heads: one head per position",
        drafting=Drafting.PARALLEL,
        needs_model=True,
        live_k=False,
        fixed_length=True,
        head=True,
        signs=Signs(
            architecture=r"Medusa",
            keys=("medusa_num_heads",),
            tensor=r"medusa_heads\.|(^|\.)blocks\.\d|^\d+\.\d+\.linear\.",
        ),
        named_by_path=True,
        async_scheduling=False,
        k_ceiling=KCeiling.HEADS,
        runner=Runner.V1,
    ),
    Method(
        name="mlp_speculator",
        summary="MLP speculator",
        drafting=Drafting.SEQUENTIAL,
        needs_model=True,
        live_k=False,
        fixed_length=True,
        async_scheduling=False,
        k_ceiling=KCeiling.HEADS,
        runner=Runner.V1,
        # MLPSpeculatorPreTrainedModel is commented out in model_executor/models/registry.py, and
        # v1/worker/gpu_model_runner.py has no proposer of that name.
        gone="its V1 engine has no MLP speculator",
    ),
    Method(
        name="dflash",
        summary="DFlash block drafter",
        drafting=Drafting.PARALLEL,
        needs_model=True,
        live_k=False,
        fixed_length=True,
        head=True,
        signs=Signs(
            architecture=r"DFlash|LiLiCorr|MuseGlimmerAssistant",
            keys=(*_OF_HEADS, "dflash_config"),
            tensor=_FUSION,
            class_prefix="DFlash",
        ),
        aux_layers=True,
        block=True,
        own_slot=True,
        k_ceiling=KCeiling.BLOCK,
        stages=Stages.HIDDEN_STATES,
    ),
    Method(
        name="dspark",
        summary="DSpark block drafter",
        drafting=Drafting.PARALLEL,
        needs_model=True,
        live_k=False,
        fixed_length=True,
        head=True,
        signs=Signs(
            architecture=r"DSpark",
            keys=(*_OF_HEADS, "dspark_block_size", "dspark_target_layer_ids", "markov_rank"),
            tensor=r"markov_head|" + _FUSION,
        ),
        aux_layers=True,
        block=True,
        k_ceiling=KCeiling.BLOCK,
        stages=Stages.HIDDEN_STATES,
        runner=Runner.V2,
    ),
)

METHODS = {row.name: row for row in _ROWS}

FIXED_BLOCK_SETTINGS = ("parallel_drafting",)
"""Settings under which a method of any row drafts a block of one trained length."""

PATH_MARKS = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
"""Words in a model's path from which vLLM makes another method of one that is `named_by_path`, in
the order in which it looks (vllm/config/speculative.py, "Automatically detect the method")."""

MAX_SPECULATIVE_TOKENS = 128
"""The rejection sampler's ceiling, asserted at run time (vllm/v1/sample/rejection_sampler.py)."""


def taken_for(method: Method, model: str) -> str:
    """The method that vLLM runs for this one with a draft at this path."""
    if not method.named_by_path:
        return method.name
    return next((name for mark, name in PATH_MARKS.items() if mark in model.lower()), method.name)


def find_method(name: str) -> Method:
    """The row of a method; raises ValueError that names the nearest known one."""
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown method {name!r}{hint} (known: {', '.join(METHODS)})")
