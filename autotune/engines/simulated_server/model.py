"""The cost model, the acceptance and the text, as pure functions of seeds and keys.

Rule: nothing here has state or reads a clock. Every draw is a hash of its key, so a prompt drafts,
is accepted and is answered the same way in every launch and at every K: one uniform number per
(prompt, position), compared with P(at least i accepted), decides how many tokens pass.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from autotune.engines.simulated_server.world import Draft, Noise, Replies, StepTimes

_SYLLABLES = tuple(c + v for c in "bdfgklmnprstvwyz" for v in "aeiou")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What vLLM's code does with K for one method."""

    passes_per_token: bool = False
    """One draft pass per token, as opposed to one per step."""
    lookup: bool = False
    asserts_k: bool = False
    """Crashes when a step asks for another K than K_max (suffix_decoding.py, medusa.py)."""
    hears_k: bool = True
    keeps_cache: bool = False
    """Runs one pass at K = 0, too, to keep its KV cache in step."""


_MODEL = Method(passes_per_token=True, keeps_cache=True)
METHODS = {
    "ngram": Method(lookup=True),
    "ngram_gpu": Method(lookup=True),
    "suffix": Method(lookup=True, asserts_k=True),
    "draft_model": _MODEL,
    "eagle": _MODEL,
    "eagle3": _MODEL,
    "mtp": _MODEL,
    "mlp_speculator": Method(passes_per_token=True),
    "medusa": Method(asserts_k=True),
    "dflash": Method(hears_k=False),
    "dspark": Method(hears_k=False),
    "custom_class": Method(passes_per_token=True, hears_k=False),
}


def unit(*key: object) -> float:
    """A uniform number in [0, 1) that is always the same for the same key."""
    digest = blake2b(repr(key).encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / 2**53


def normal(*key: object) -> float:
    """A standard normal number for a key (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - unit(*key, "radius")))
    return radius * math.cos(2.0 * math.pi * unit(*key, "angle"))


def noise_factor(noise: Noise, *, launch: Sequence[object], step: int, at_s: float) -> float:
    """By how much a step of this launch is slower than the model says."""
    sigmas = noise.launch_sigma * normal(*launch) + noise.step_sigma * normal(*launch, step)
    wave = math.sin(2.0 * math.pi * (at_s / noise.drift_period_s + unit(*launch, "phase")))
    return math.exp(sigmas) * (1.0 + noise.drift * wave)


def step_seconds(
    times: StepTimes, *, batch: int, drafted: int, prefill: int, draft_s: float
) -> float:
    """One engine step: `batch` sequences, `drafted` tokens to verify, `prefill` to compute."""
    return (
        times.t_base
        + times.t_seq * batch
        + times.t_verify_token * drafted
        + times.t_prefill_token * prefill
        + draft_s
    )


def draft_seconds(method: Method, draft: Draft, k: int) -> float:
    """What drafting K tokens adds to a step."""
    if method.passes_per_token:
        return draft.t_draft * max(k, 1 if method.keeps_cache else 0)
    return draft.t_draft if k > 0 else 0.0


def draft_length(method: Method, draft: Draft, k: int, key: Sequence[object]) -> int:
    """How many tokens are drafted: K, but for lookups that find fewer or nothing."""
    if not method.lookup or k == 0:
        return k
    if unit(*key, "covered") >= draft.coverage:
        return 0
    if unit(*key, "short") < draft.short:
        return 1 + int((k - 1) * unit(*key, "length"))
    return k


def acceptance_rates(draft: Draft, k: int, *, scale: float = 1.0) -> tuple[float, ...]:
    """P(at least i accepted) for i = 1..k; past the profile its last ratio goes on."""
    rates = list(draft.acceptance)
    before = rates[-2] if len(rates) > 1 else 1.0
    ratio = rates[-1] / before if before > 0 else 0.0
    while len(rates) < k:
        rates.append(rates[-1] * ratio)
    return tuple(min(1.0, rate * scale) for rate in rates[:k])


def prompt_scale(draft: Draft, prompt: Sequence[object]) -> float:
    """How much easier than the mean this prompt is to draft for."""
    return 1.0 + draft.spread * (2.0 * unit(*prompt, "spread") - 1.0)


def accepted_tokens(rates: Sequence[float], draw: float) -> int:
    """How many drafted tokens pass, from one uniform draw."""
    return sum(draw < rate for rate in rates)


def reply_tokens(replies: Replies, prompt: Sequence[object]) -> int:
    """Words of the reply, the end-of-sequence token not counted."""
    return replies.low + int((replies.high - replies.low + 1) * unit(*prompt, "reply"))


def word(replies: Replies, prompt: Sequence[object], position: int, *, speculating: bool) -> str:
    """The word at a position; greedy text may part ways where speculation changes batch shapes."""
    parted = (
        speculating
        and unit(*prompt, "parts") < replies.divergence
        and position >= 10 + int(60 * unit(*prompt, "where"))
    )
    draw = unit(*prompt, "word", position, parted)
    return _spell(int(replies.vocab * draw * draw))


def _spell(index: int) -> str:
    spelled = _SYLLABLES[index % len(_SYLLABLES)]
    while index >= len(_SYLLABLES):
        index = index // len(_SYLLABLES) - 1
        spelled = _SYLLABLES[index % len(_SYLLABLES)] + spelled
    return spelled
