"""docs/checks.md: every rule, and what the table of methods says of each method.

Rule: nothing is written by hand; `python -m autotune.preflight.reference` renews the page, and a
test fails when it is old.
"""

from collections.abc import Iterator
from pathlib import Path

from autotune.core.methods import METHODS, KCeiling, Method, Runner, Stages
from autotune.preflight.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "checks.md"

_HEAD = """\
# What is checked before the first launch

This page is made by `python -m autotune.preflight.reference`. `autotune check FILE` asks every rule
below and prints what each has to say, with evidence and remedy; `run` and `plan` begin with it.

- *study refused*: nothing could be measured. *candidate refused*: it is not launched, the others
  are, and the report says why. *K skipped*: it is launched without these. *warning*: it runs.
- What the file alone tells is refused when it is read, and is no rule here: see
  [candidates.md](candidates.md).
- Configurations, tokenizers and the headers of weight files are read; no model is loaded, nothing
  is downloaded. The hub is asked once about a model that is not on this machine; without it the
  model "could not be checked", which refuses nothing.
- Memory is an estimate. What a launch really has is measured.
"""

_KS = {
    KCeiling.NONE: "",
    KCeiling.HEADS: "its heads",
    KCeiling.BLOCK: "its trained block",
    KCeiling.LAYERS: "multiples of the MTP layers",
    KCeiling.TREE: "depth of the tree",
}
_STAGES = {
    Stages.NOTHING: "yes",
    Stages.EMBEDDINGS: "with embeddings of its own",
    Stages.HIDDEN_STATES: "V2 runner, some targets",
}
_RUNNERS = {Runner.BOTH: "V1, V2", Runner.V1: "V1", Runner.V2: "V2"}


def page() -> str:
    """The page, whole."""
    return "\n".join([_HEAD, *_rules(), "", *_methods(), ""])


def _rules() -> Iterator[str]:
    yield "## Rules"
    yield ""
    yield "| rule | what should hold |"
    yield "|---|---|"
    for rule in RULES:
        yield f"| `{rule.__name__}` | {' '.join((rule.__doc__ or '').split())} |"


def _methods() -> Iterator[str]:
    yield "## Methods"
    yield ""
    yield "As vLLM 0.32 has them (`autotune/core/methods.py`)."
    yield ""
    yield (
        "| method | fits one target | same vocabulary | K is bound by | pipeline stages | "
        "async scheduling | model runner | K changes live |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for row in METHODS.values():
        yield f"| {' | '.join(_cells(row))} |"


def _cells(row: Method) -> Iterator[str]:
    yield f"`{row.name}`"
    yield _yes(said=row.head)
    yield _yes(said=row.same_vocabulary)
    yield _KS[row.k_ceiling]
    yield _STAGES[row.stages]
    yield _yes(said=row.async_scheduling)
    yield "none" if row.gone else _RUNNERS[row.runner]
    yield _yes(said=row.live_k)


def _yes(*, said: bool) -> str:
    return "yes" if said else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
