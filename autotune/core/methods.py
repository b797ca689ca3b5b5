"""One row per speculative method: the only file that knows methods apart.

Rule: a difference between methods is a column here, never an `if` elsewhere. The names are vLLM's
`SpeculativeMethod` (vllm/config/speculative.py, 0.32).
"""

import difflib
from dataclasses import dataclass
from enum import StrEnum


class Drafting(StrEnum):
    """How the K tokens of one draft come about, and so how its cost grows with K."""

    SEQUENTIAL = "sequential"  # one forward pass of the draft per token
    PARALLEL = "parallel"  # one forward pass for all K tokens
    LOOKUP = "lookup"  # no model at all


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
    whole_draft_parallel: bool = False
    """Whether the draft must be as tensor parallel as the target (spec_decode/draft_model.py)."""

    @property
    def has_weights(self) -> bool:
        """Whether deploying it costs memory for a draft; ties go to methods that do not."""
        return self.drafting is not Drafting.LOOKUP


# live_k: suffix_decoding.py and medusa.py (vllm/v1/spec_decode) assert K == K_max, custom_class is
# never told K, and parallel drafters are trained for one block length.
_ROWS = (
    Method(
        name="ngram",
        summary="looks the last tokens up in the prompt and reply so far",
        drafting=Drafting.LOOKUP,
        needs_model=False,
        live_k=True,
        fixed_length=False,
        lookup_window=("prompt_lookup_min", "prompt_lookup_max"),
    ),
    Method(
        name="ngram_gpu",
        summary="n-gram lookup on the GPU",
        drafting=Drafting.LOOKUP,
        needs_model=False,
        live_k=False,
        fixed_length=False,
        lookup_window=("prompt_lookup_min", "prompt_lookup_max"),
    ),
    Method(
        name="suffix",
        summary="suffix tree over the prompt and past replies (needs arctic-inference)",
        drafting=Drafting.LOOKUP,
        needs_model=False,
        live_k=False,
        fixed_length=False,
        learns=True,
    ),
    Method(
        name="draft_model",
        summary="a smaller model with the same vocabulary",
        drafting=Drafting.SEQUENTIAL,
        needs_model=True,
        live_k=True,
        fixed_length=True,
        whole_draft_parallel=True,
    ),
    Method(
        name="eagle",
        summary="EAGLE head: one layer over the target's hidden states",
        drafting=Drafting.SEQUENTIAL,
        needs_model=True,
        live_k=True,
        fixed_length=True,
    ),
    Method(
        name="eagle3",
        summary="EAGLE-3 head: fuses hidden states of three depths",
        drafting=Drafting.SEQUENTIAL,
        needs_model=True,
        live_k=True,
        fixed_length=True,
    ),
    Method(
        name="mtp",
        summary="multi-token-prediction layers of the target's own checkpoint",
        drafting=Drafting.SEQUENTIAL,
        needs_model=False,
        live_k=True,
        fixed_length=True,
        target_owns_draft=True,
    ),
    Method(
        name="medusa",
        summary="Medusa heads: one head per position",
        drafting=Drafting.PARALLEL,
        needs_model=True,
        live_k=False,
        fixed_length=True,
    ),
    Method(
        name="mlp_speculator",
        summary="MLP speculator",
        drafting=Drafting.SEQUENTIAL,
        needs_model=True,
        live_k=False,
        fixed_length=True,
    ),
    Method(
        name="dflash",
        summary="DFlash block drafter",
        drafting=Drafting.PARALLEL,
        needs_model=True,
        live_k=False,
        fixed_length=True,
    ),
    Method(
        name="dspark",
        summary="DSpark block drafter",
        drafting=Drafting.PARALLEL,
        needs_model=True,
        live_k=False,
        fixed_length=True,
    ),
)

METHODS = {row.name: row for row in _ROWS}

FIXED_BLOCK_SETTINGS = ("parallel_drafting",)
"""Settings under which a method of any row drafts a block of one trained length."""

MAX_SPECULATIVE_TOKENS = 128
"""The rejection sampler's ceiling, asserted at run time (vllm/v1/sample/rejection_sampler.py)."""


def find_method(name: str) -> Method:
    """The row of a method; raises ValueError that names the nearest known one."""
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown method {name!r}{hint} (known: {', '.join(METHODS)})")
