"""Who is confirmed, and who is the answer after that."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autotune.core.estimate import pass_s
from autotune.core.finalists import FURTHER, chosen, panels
from autotune.core.plan import next_launch, pending
from autotune.core.recommendation import Basis, recommend
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import BASELINE, Record, Stage
from autotune.core.verdict import Verdict
from tests.builders import BASE, make_candidates, make_record, make_spec

SPEC = make_spec()
Gains = Mapping[str, Mapping[int, float]]


def searched(table: Gains) -> list[Record]:
    """A search with these speedups, the same at every level; each candidate in one launch."""
    return [make_record(stage=Stage.BASELINE)] + [
        make_record(name, k, tput={c: v * gain for c, v in BASE.items()}, launch_id=name, live=True)
        for name, row in table.items()
        for k, gain in _curve(row).items()
    ]


def _curve(row: Mapping[int, float]) -> dict[int, float]:
    best = max(row.values())
    return {1: 0.9 * best, **row, 3: 0.85 * best, 5: 0.8 * best}


def cold(gains: Mapping[tuple[str, int], float], first: int = 0, rounds: int = 2) -> list[Record]:
    """Rounds of a confirmation: a baseline, and these points."""
    found = []
    for repeat in range(first, first + rounds):
        for (name, k), gain in {(BASELINE, 0): 1.0, **gains}.items():
            tput = {c: v * gain for c, v in BASE.items()}
            found.append(
                make_record(
                    name,
                    k,
                    Stage.CONFIRM,
                    tput=tput,
                    launch_id=f"c{repeat}{name}",
                    repeat=repeat,
                )
            )
    return found


def names(spec: StudySpec, records: list[Record]) -> list[list[str]]:
    """The candidates of each panel."""
    return [[e.finalist.candidate for e in panel] for panel in panels(spec, records)]


CLOSE = searched({"eagle": {2: 1.33}, "draft-4l": {2: 1.31}, "ngram": {2: 1.10}})
CLEAR = searched({"eagle": {2: 1.40}, "draft-4l": {2: 1.20}, "ngram": {2: 1.15}})


def test_a_runner_up_that_is_close_is_confirmed_as_well() -> None:
    """A B C A B C, and its launch says why."""
    ahead = [x for x in pending(SPEC, CLOSE) if x.stage is Stage.CONFIRM]
    assert [x.name for x in ahead] == [BASELINE, "draft-4l", "eagle"] * 2
    assert ahead[0].why.startswith("a fresh baseline beside the finalists")
    assert ahead[2].why.endswith(": the search cannot tell it from draft-4l")


@pytest.mark.parametrize(
    ("launches", "rounds", "made"),
    [
        pytest.param(6, 2, [BASELINE, "draft-4l", "eagle"] * 2, id="time enough"),
        pytest.param(4, 2, [BASELINE, "draft-4l"] * 2, id="without the runner-up"),
        pytest.param(6, 3, [BASELINE, "draft-4l"] * 3, id="three rounds without the runner-up"),
        pytest.param(4, 3, [BASELINE, "draft-4l"] * 2, id="two of three rounds"),
    ],
)
def test_short_of_time_the_best_one_is_proved_alone(
    launches: int, rounds: int, made: list[str]
) -> None:
    """Four launches with blocks enough are a proof, six with too few are none."""
    spec = replace(SPEC, search=replace(SPEC.search, confirm_rounds=rounds))
    whole = 45.0 + 2 * 3 * pass_s(CLOSE)
    left, known, found = (launches + 0.1) * whole, list(CLOSE), list[str]()
    while launch := next_launch(spec, known, remaining_s=left):
        found.append(launch.name)
        gain = 1.0 if launch.name == BASELINE else 1.3
        tput = {c: v * gain for c, v in BASE.items()}
        known.append(
            make_record(launch.name, launch.k_max, launch.stage, tput=tput, repeat=launch.repeat)
        )
        left -= whole
    assert found == made


def test_one_that_is_clearly_better_is_confirmed_alone() -> None:
    """There is nothing to decide."""
    ahead = [x.name for x in pending(SPEC, CLEAR) if x.stage is Stage.CONFIRM]
    assert ahead == [BASELINE, "eagle"] * 2


@pytest.mark.parametrize(
    ("eagle", "draft", "winner"),
    [(1.40, 1.30, "eagle"), (1.30, 1.40, "draft-4l"), (1.31, 1.30, "draft-4l")],
)
def test_the_confirmation_decides_between_them(eagle: float, draft: float, winner: str) -> None:
    """Better beyond the tolerance wins; else the simpler one, by name where all else is equal."""
    records = [*CLOSE, *cold({("draft-4l", 2): draft, ("eagle", 2): eagle})]
    result = recommend(SPEC, records)
    assert next_launch(SPEC, records) is None
    assert (result.verdict, result.basis) == (Verdict.SPECULATE, Basis.CONFIRMED)
    assert result.finalist
    assert result.finalist.candidate == winner
    [other] = {"eagle", "draft-4l"} - {winner}
    assert any(
        reason.startswith(f"{other} at K = 2 was confirmed, too") for reason in result.reasons
    )


@pytest.mark.parametrize(
    ("gain", "ahead"),
    [
        pytest.param(1.01, [[2], [3], []], id="open, but not for ever"),
        pytest.param(1.30, [[], [], []], id="a gain"),
        pytest.param(0.80, [[], [], []], id="a loss"),
    ],
)
def test_an_open_confirmation_gets_more_rounds(gain: float, ahead: list[list[int]]) -> None:
    """One that may as well be a gain as a loss is no answer."""
    spec = make_spec(candidates=make_candidates()[:1])
    name = spec.candidates[0].name
    head = searched({name: {2: max(gain, 1.02)}})
    left = [
        sorted({x.repeat for x in pending(spec, [*head, *cold({(name, 2): gain}, rounds=rounds)])})
        for rounds in (2, 3, 4)
    ]
    assert left == ahead


def test_half_a_round_decides_nothing() -> None:
    """One that has fewer cold launches than the other is not compared with it."""
    records = [*CLOSE, *cold({("draft-4l", 2): 1.30}), *cold({("eagle", 2): 1.5}, rounds=1)[1:]]
    best = chosen(SPEC, records)
    assert best
    assert best.candidate == "draft-4l"


def test_one_that_does_not_hold_its_promise_makes_room_for_the_next() -> None:
    """1.40x in the search and 1.05x cold: it is said, and the next one is confirmed."""
    records = [*CLEAR, *cold({("eagle", 2): 1.05})]
    ahead = list(pending(SPEC, records))
    assert [(x.name, x.repeat) for x in ahead] == [
        (BASELINE, 4),
        ("draft-4l", 4),
        (BASELINE, 5),
        ("draft-4l", 5),
    ]
    assert ahead[1].why.endswith(": eagle did not hold what the search promised")
    records += cold({("draft-4l", 2): 1.20}, first=4)
    result = recommend(SPEC, records)
    assert next_launch(SPEC, records) is None
    assert result.finalist
    assert (result.finalist.candidate, result.basis) == ("draft-4l", Basis.CONFIRMED)
    assert any(
        reason.startswith("eagle at K = 2: the confirmation (1.05x") and "disagree" in reason
        for reason in result.reasons
    )


def test_the_next_is_not_confirmed_if_it_promises_less_than_what_was_confirmed() -> None:
    """1.28x cold where the search had 1.40x is less, but nobody else promises as much."""
    assert names(SPEC, [*CLEAR, *cold({("eagle", 2): 1.28})]) == [["eagle"]]


def test_no_more_than_two_further_finalists() -> None:
    """A search that all confirmations contradict ends all the same."""
    spec = make_spec(
        candidates=[*make_candidates(), *(_another(i) for i in range(3))],
    )
    table = {"eagle": {2: 1.40}, "draft-4l": {2: 1.30}, "ngram": {2: 1.25}}
    table |= {f"more-{i}": {2: 1.2 - i / 100} for i in range(3)}
    records = searched(table)
    for _ in range(20):
        launch = next_launch(spec, records)
        if launch is None:
            break
        gain = 1.0 if launch.name == BASELINE else 0.9
        made = cold({(launch.name, launch.k_max): gain}, first=launch.repeat, rounds=1)
        records += [r for r in made if r.trial.candidate == launch.name]
    assert next_launch(spec, records) is None
    assert len(names(spec, records)) == 1 + FURTHER
    result = recommend(spec, records)
    assert result.verdict is Verdict.DO_NOT_SPECULATE


def _another(number: int) -> Candidate:
    return replace(make_candidates()[1], name=f"more-{number}", model=f"/models/{number}")


def test_better_than_promised_is_no_reason_to_look_further() -> None:
    """It is said, and that is all."""
    records = [*CLEAR, *cold({("eagle", 2): 1.70})]
    assert names(SPEC, records) == [["eagle"]]
    assert any("disagree beyond their intervals" in r for r in recommend(SPEC, records).reasons)
