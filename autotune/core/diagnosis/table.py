"""The shape of a diagnosis, and what all of them are judged by.

Rules: a diagnosis is a row (sign, remedy, check) and never fires without numbers; its own figure is
beyond a threshold with the whole of its interval, or it says nothing; a threshold is a constant
with its source.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autotune.core.diagnosis.case import Case, Cases

LOW_ACCEPTANCE = 0.5
"""Acceptance below which a draft is in question: practice with vLLM, where half of the tokens
drafted are expected to be accepted."""
FIFTH = 0.2
"""Share of the target's step: a draft whose own step takes more seldom pays (practice; at a
constant acceptance of 0.7 and K = 3 theorem 3.8 of Leviathan et al. 2023 leaves 1.6 there)."""
TENTH = 0.1
"""Share of the target's step at which a draft pays: an order of magnitude less (practice; the same
theorem gives 1.9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a check found."""

    numbers: str
    concurrency: int | None = None
    """None: at every level, or of all together."""
    promise: float | None = None
    """The overall speedup to expect once this is remedied, by the cost model or by what was
    measured; None where neither says.
    """
    change: str = ""
    """The one thing to change, in the words of candidates.yaml; empty where nothing is to be."""
    another_draft: bool = False
    """Whether that takes another draft: more to do than a setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One row: what is the matter, how it shows, what to do."""

    id: str
    sign: str
    remedy: str
    check: Callable[[Case], Iterable[Seen]] | None = None
    """Of a candidate."""
    study_check: Callable[[Cases], Iterable[Seen]] | None = None
    """Of the study as a whole: what no candidate is to blame for."""

    def __post_init__(self) -> None:
        if (self.check is None) == (self.study_check is None):
            raise ValueError(f"{self.id}: need a check of a candidate or one of the study")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A diagnosis that holds, with its numbers."""

    diagnosis: Diagnosis
    candidate: str | None
    """None: of the study."""
    seen: Seen

    @property
    def where(self) -> str:
        """` at concurrency 4`, or nothing."""
        c = self.seen.concurrency
        return "" if c is None else f" at concurrency {c}"
