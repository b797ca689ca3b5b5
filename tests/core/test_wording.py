"""The verdict in words: quotable alone, whatever it is."""

import pytest

from autotune.core.noise import LaunchEffect
from autotune.core.recommendation import Recommendation, recommend
from autotune.core.wording import effect_words, headline, sampling_words, short_headline
from autotune.core.workload import Sampling
from tests.builders import make_spec, make_workload
from tests.builders_study import make_study_records

SPEC = make_spec()


@pytest.mark.parametrize("scale", [1.0, 0.785, 0.6])
@pytest.mark.parametrize("confirmed", [True, False])
def test_a_speedup_never_stands_alone(scale: float, *, confirmed: bool) -> None:
    """Interval, concurrency levels and sampling are in the same sentence."""
    result = recommend(SPEC, make_study_records(scale=scale, confirmed=confirmed))
    assert result.speedup is not None
    text = headline(SPEC, result)
    assert f"{result.speedup.show()} (95% interval) the speed of plain decoding, " in text
    assert "throughput" not in text
    assert "concurrency 1 and 4" in text
    assert "temperature 0, seed 0" in text
    assert ("confirmed by" if confirmed else "unverified") in text


@pytest.mark.parametrize(
    ("scale", "opening"), [(1.0, "Speculate"), (0.785, "Inconclusive"), (0.6, "Do not speculate")]
)
def test_the_verdict_comes_first(scale: float, opening: str) -> None:
    """A reader who stops after three words knows what to do."""
    result = recommend(SPEC, make_study_records(scale=scale))
    assert headline(SPEC, result).startswith(opening)
    assert short_headline(SPEC, result).startswith(f"{opening}: ")


def test_without_any_measurement_it_says_so() -> None:
    """No number is made up."""
    nothing: Recommendation = recommend(SPEC, [])
    assert headline(SPEC, nothing) == "Inconclusive: no candidate could be measured."


def test_one_level_is_named_without_weights() -> None:
    """Nothing is weighted over one level."""
    spec = make_spec(workload=make_workload(concurrencies={4: 1.0}))
    assert "at concurrency 4" in short_headline(spec, recommend(spec, make_study_records()))


def test_sampling_names_every_parameter() -> None:
    """Two studies that sampled differently never read the same."""
    sampling = Sampling(temperature=0.7, params={"top_p": 0.9, "top_k": 20})
    assert sampling_words(sampling) == "temperature 0.7, top_k 20, top_p 0.9"


def test_the_launch_effect_says_where_it_comes_from() -> None:
    """A prior is not passed off as a measurement."""
    assert "the prior" in effect_words(LaunchEffect(sd=0.02, dof=4, launches=0))
    assert "4 launches" in effect_words(LaunchEffect(sd=0.02, dof=4, launches=4))
