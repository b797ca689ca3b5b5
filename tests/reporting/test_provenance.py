"""Provenance: facts of the launch like the one to deploy, and no key for what is unknown."""

from autotune.core.recommendation import recommend
from autotune.reporting.provenance import gather
from tests.builders import make_facts, make_spec
from tests.builders_study import make_study_records

SPEC = make_spec()
WHEN, WHERE = "2026-11-30T12:00:00+00:00", "bench-1"


def test_the_kv_cache_is_that_of_the_winner() -> None:
    """A draft takes memory: the baseline's cache would promise too much."""
    records = make_study_records()
    known = gather(SPEC, records, recommend(SPEC, records), created=WHEN, host=WHERE)
    assert known["kv_cache_tokens"] == make_facts(k=2).kv_cache_tokens


def test_without_speculation_it_is_that_of_the_baseline() -> None:
    """What is deployed decides."""
    records = make_study_records(scale=0.6)
    known = gather(SPEC, records, recommend(SPEC, records), created=WHEN, host=WHERE)
    assert known["kv_cache_tokens"] == make_facts(k=0).kv_cache_tokens


def test_what_is_unknown_has_no_key() -> None:
    """Before any launch only the probe speaks."""
    known = gather(
        SPEC,
        [],
        recommend(SPEC, []),
        created=WHEN,
        host=WHERE,
        probe={"vllm": "0.32.0", "driver": ""},
    )
    assert known["engine_version"] == "0.32.0"
    assert not {"driver", "device", "kv_cache_tokens", "fingerprint"} & set(known)
