"""Speed against memory: who is on the front, and what a point needs."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.memory import HEADROOM
from autotune.core.noise import noise_of
from autotune.core.pareto import Tradeoff, front, memory_bytes, tradeoffs
from autotune.core.speedup import curves
from autotune.core.statistics import Interval
from autotune.core.trial import BASELINE, Stage
from autotune.reporting.pareto import pareto_figure
from autotune.reporting.tables import pareto_table
from tests.builders import make_spec
from tests.builders_memory import GIB, launched


def point(speed: float, gib: float, k: int = 1) -> Tradeoff:
    """A point."""
    return Tradeoff(
        candidate="eagle",
        num_speculative_tokens=k,
        speedup=Interval(mean=speed, low=speed, high=speed),
        memory_bytes=gib * GIB,
    )


def on_front(*points: Tradeoff) -> list[tuple[float, float]]:
    """Speed and GiB of those on it."""
    return [(p.speedup.mean, p.memory_gib) for p in front(points) if p.on_front]


def test_who_is_beaten_in_both_is_not_on_the_front() -> None:
    """More memory must buy speed."""
    assert on_front(point(1.0, 4), point(1.3, 6), point(1.2, 7), point(0.9, 5)) == [
        (1.0, 4.0),
        (1.3, 6.0),
    ]
    assert on_front(point(1.2, 5), point(1.2, 5)) == [(1.2, 5.0)] * 2
    assert on_front(point(1.2, 5), point(1.2, 6)) == [(1.2, 5.0)]
    assert on_front() == []


@given(st.lists(st.tuples(st.floats(0.5, 3.0), st.floats(1.0, 80.0)), min_size=1, max_size=12))
def test_the_front_beats_everything_and_nothing_on_it(pairs: Sequence[tuple[float, float]]) -> None:
    """Each point off it is beaten by one on it; none on it is beaten at all."""
    points = front([point(speed, gib) for speed, gib in pairs])
    best = [p for p in points if p.on_front]
    assert best
    for p in points:
        assert any(q.beats(p) for q in best) is not p.on_front


def test_what_a_point_needs() -> None:
    """All that is no KV cache, and cache for the peak with headroom."""
    # 0.9 of 10 GiB, 5 of which are cache for 5000 tokens; half of it was in use.
    record = launched(0.9, 5000, 0.5, gib=(5.0, 10.0))
    needed = memory_bytes([record], "eagle", 2)
    assert needed == pytest.approx((4.0 + 2.5 * (1 + HEADROOM)) * GIB)
    assert memory_bytes([launched(0.9, 5000, 0.5)], "eagle", 2) is None
    assert memory_bytes([launched(0.9, 5000, None, gib=(5.0, 10.0))], "eagle", 2) is None


def test_plain_decoding_is_a_point_like_any_other() -> None:
    """With the least memory; the draft's weights and speed beside it, in table and picture."""
    records = [
        launched(0.9, 6000, 0.4, name=BASELINE, k=0, stage=Stage.BASELINE, gib=(6.0, 10.0)),
        *(launched(0.9, 5000, 0.5, k=k, gib=(5.0, 10.0)) for k in (1, 2)),
    ]
    spec = make_spec()
    found = tradeoffs(records, curves(spec, records, noise_of(records, spec.workload.levels)))
    assert (found[0].candidate, found[0].num_speculative_tokens) == (BASELINE, 0)
    assert len(found) == 3
    assert found[0].on_front
    rows = pareto_table(found)
    assert len(rows) == 4
    assert rows[1][:2] == [BASELINE, "0"]
    assert pareto_table(found[:1]) == []
    (ax,) = pareto_figure(spec, found).axes
    assert {text.get_text() for text in ax.texts} == {"1", "2"}
