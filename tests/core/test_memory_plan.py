"""The plan and the answer over several utilizations: search at the largest, confirm at enough."""

from dataclasses import replace

from autotune.core.memory_bounds import in_force
from autotune.core.plan import baseline_failed, next_launch
from autotune.core.recommendation import Basis, recommend
from autotune.core.trial import BASELINE, Cause, Launch, Measurement, Record, Stage
from autotune.core.verdict import Verdict
from autotune.exporters.vllm_yaml import deployment
from tests.builders import GMU
from tests.builders_memory import failed, spec_with
from tests.builders_study import make_confirmation, make_study_records

SPEC = spec_with(0.5, 0.7, 0.9)
CAPACITY = {0.5: 500, 0.7: 700, 0.9: 900}


def at(record: Record, share: float, peak: float | None) -> Record:
    """The record as of a launch at another utilization."""
    found = replace(record, trial=replace(record.trial, gpu_memory_utilization=share))
    if not isinstance(found.outcome, Measurement) or found.facts is None:
        return found
    passes = tuple(replace(p, kv_cache_peak=peak) for p in found.outcome.passes)
    return replace(
        found,
        outcome=replace(found.outcome, passes=passes),
        facts=replace(found.facts, kv_cache_tokens=CAPACITY[share]),
    )


def searched(peak: float | None = 0.55) -> list[Record]:
    """A whole search at 0.9; a need of 495 tokens, which wants 0.7."""
    return [at(r, 0.9, peak) for r in make_study_records(confirmed=False)]


def confirmed(share: float, peak: float = 0.7) -> list[Record]:
    """The confirmation at a utilization."""
    return [at(r, share, peak) for r in make_confirmation("eagle", 2)]


def launch(records: list[Record]) -> Launch:
    """The next one."""
    found = next_launch(SPEC, records)
    assert found is not None
    return found


def test_the_search_runs_at_the_largest() -> None:
    """Baseline and candidates alike."""
    assert launch([]).gpu_memory_utilization == 0.9
    first = launch(searched()[:1])
    assert (first.stage, first.gpu_memory_utilization) == (Stage.SCREEN, 0.9)


def test_the_confirmation_runs_at_what_is_enough_beside_a_baseline_at_the_same() -> None:
    """0.7 for a need of 495 tokens; both arms, and both say it."""
    records = searched()
    plain = launch(records)
    assert (plain.stage, plain.name, plain.gpu_memory_utilization) == (Stage.CONFIRM, BASELINE, 0.7)
    winner = launch([*records, *confirmed(0.7)[:1]])
    assert (winner.name, winner.gpu_memory_utilization) == ("eagle", 0.7)
    assert "gpu_memory_utilization 0.7" in winner.why
    assert next_launch(SPEC, [*records, *confirmed(0.7)]) is None


def test_the_answer_is_what_was_confirmed_at_its_utilization() -> None:
    """The evidence of another utilization is not that of the file that is exported."""
    result = recommend(SPEC, [*searched(), *confirmed(0.7)])
    assert (result.verdict, result.basis) == (Verdict.SPECULATE, Basis.CONFIRMED)
    assert deployment(SPEC, result)[1:] == (2, 0.7)
    assert any("0.7 is the smallest of 0.5, 0.7 and 0.9" in reason for reason in result.reasons)
    elsewhere = recommend(SPEC, [*searched(), *confirmed(0.9)])
    assert elsewhere.basis is Basis.SEARCH


def test_a_confirmation_that_fails_for_memory_tries_the_next_utilization() -> None:
    """Too little at 0.7: 0.9 is launched; a crash there would end the candidate."""
    small = failed(0.7, Cause.KV_CACHE_TOO_SMALL, name="eagle", k=2, stage=Stage.CONFIRM)
    records = [*searched(), *confirmed(0.7)[:1], small]
    again = launch(records)
    assert (again.stage, again.name, again.gpu_memory_utilization) == (Stage.CONFIRM, BASELINE, 0.9)
    result = recommend(SPEC, [*records, *confirmed(0.9, peak=0.5)])
    assert result.basis is Basis.CONFIRMED
    assert deployment(SPEC, result)[2] == 0.9


def test_a_baseline_without_memory_is_tried_with_less() -> None:
    """An out-of-memory start bounds the range; only when nothing is left is it the end."""
    records = [failed(0.9)]
    assert baseline_failed(in_force(SPEC, records)) is None
    assert launch(records).gpu_memory_utilization == 0.7
    records += [failed(0.7), failed(0.5)]
    assert baseline_failed(in_force(SPEC, records)) is not None
    assert next_launch(SPEC, records) is None


def test_a_baseline_between_too_much_and_too_little_is_found() -> None:
    """Steps down that double go over what would do; the way back is never the same launch again."""
    spec = spec_with(0.01, 0.2, 0.3, 0.8, 0.9)
    records: list[Record] = []
    tried: list[float] = []
    while (found := next_launch(spec, records)) and len(tried) < 9:
        tried.append(found.gpu_memory_utilization)
        if tried[-1] == 0.3:
            break
        cause = Cause.KV_CACHE_TOO_SMALL if tried[-1] < 0.3 else Cause.UTILIZATION_TOO_HIGH
        records.append(failed(tried[-1], cause))
    assert tried == [0.9, 0.8, 0.2, 0.3]


def test_a_k_without_memory_is_tried_with_less() -> None:
    """The live launch for all K failed at its largest: it is made again with less memory."""
    spec = replace(SPEC, candidates=SPEC.candidates[:1])
    found = next_launch(spec, [*searched()[:1], failed(0.9, name="eagle", k=5)])
    assert found
    assert (found.name, found.k_max, found.gpu_memory_utilization) == ("eagle", 5, 0.7)


def test_plain_decoding_is_exported_as_it_was_launched() -> None:
    """Where it was confirmed beside a finalist, at that utilization; else at the search's."""
    slow = [at(r, 0.9, 0.55) for r in make_study_records(confirmed=False, scale=0.6)]
    assert deployment(SPEC, recommend(SPEC, slow)) == (None, 0, 0.9)
    lost = [at(r, 0.7, 0.7) for r in make_confirmation("eagle", 2, scale=0.6)]
    result = recommend(SPEC, [*searched(), *lost])
    assert result.verdict is Verdict.DO_NOT_SPECULATE
    assert deployment(SPEC, result) == (None, 0, 0.7)


def test_one_utilization_is_what_it_always_was() -> None:
    """No word of memory where there is no choice and nothing was measured of it."""
    spec = spec_with(GMU)
    result = recommend(spec, make_study_records())
    assert deployment(spec, result)[2] == GMU
    assert not any("gpu_memory_utilization" in reason for reason in result.reasons)
