"""The recorded demo as a study: 210 passes of a real vLLM, with the candidates that they are of."""

from dataclasses import replace
from functools import cache

from recording import quiet_records

from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import Record, Trial
from tests.builders import make_spec, make_workload

CANDIDATES = (
    Candidate(name="draft-2l", method="draft_model", model="/models/draft-2l"),
    Candidate(name="draft-4l", method="draft_model", model="/models/draft-4l"),
    Candidate(name="eagle", method="eagle", model="/models/eagle"),
    Candidate(
        name="ngram", method="ngram", settings={"prompt_lookup_min": 1, "prompt_lookup_max": 3}
    ),
)
NAMES = {
    "draft of 002": "draft-2l",
    "draft of 003": "draft-4l",
    "draft of 004": "eagle",
    "draft of 005": "ngram",
    "winner": "ngram",
}
"""What its live launches were of, as its report has it, and the winner."""

DEMO: StudySpec = make_spec(
    name="smollm2-135m",
    candidates=CANDIDATES,
    workload=make_workload(concurrencies={1: 3.0, 4: 1.0}, prompts=162, max_tokens=32),
)


@cache
def demo_study() -> list[Record]:
    """Its records; only to be read."""
    return [replace(r, trial=_named(r.trial)) for r in quiet_records()]


def _named(trial: Trial) -> Trial:
    """With the candidate's name and the memory of the specification."""
    name = NAMES.get(trial.candidate, trial.candidate)
    share = DEMO.search.gpu_memory_utilization[0]
    return replace(trial, candidate=name, gpu_memory_utilization=share)
