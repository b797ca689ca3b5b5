"""What is ahead, and how guesses give way to what was seen."""

from dataclasses import replace

import pytest

from autotune.core.estimate import (
    FIRST_BOOT_S,
    FIRST_PASS_S,
    LAUNCH_BYTES,
    WARM_UP_S,
    boot_s,
    estimate,
    pass_s,
    passes_of,
)
from autotune.core.plan import pending
from autotune.core.trial import Launch, Record, Stage
from tests.builders import make_facts, make_record, make_spec
from tests.builders_study import make_study_records

SPEC = make_spec()


def ahead(records: list[Record]) -> list[Launch]:
    """The launches that are left."""
    return list(pending(SPEC, records))


def with_boot(record: Record, seconds: float) -> Record:
    """The record of a launch that took so long to start."""
    return replace(record, facts=make_facts(boot_s=seconds))


def test_starts_are_those_seen_of_the_candidate_else_of_any() -> None:
    """The guess of the first start gives way to real ones, each launch counted once."""
    eagle, other = ahead([])[2], ahead([])[3]
    assert eagle.name == "eagle"
    assert boot_s([], eagle) == FIRST_BOOT_S
    plain = with_boot(make_record(), 20.0)
    head = [with_boot(make_record("eagle", k, launch_id="001"), 50.0) for k in (1, 2)]
    assert boot_s([plain], eagle) == 20.0
    assert boot_s([plain, *head], eagle) == 50.0
    assert boot_s([plain, *head], other) == 35.0


def test_seconds_per_pass_are_from_one_to_the_next() -> None:
    """What lies between two passes of a launch is paid, too."""
    assert pass_s([]) == FIRST_PASS_S
    record = make_record(tput={1: 30.0}, blocks=3)
    assert record.measurement
    passes = [
        replace(p, started_s=12.0 * i, duration_s=6.0)
        for i, p in enumerate(record.measurement.passes)
    ]
    seen = replace(record, outcome=replace(record.measurement, passes=tuple(passes)))
    assert pass_s([seen]) == pytest.approx(30.0 / 3)


def test_a_screening_is_expected_to_be_as_long_as_those_seen() -> None:
    """Before any: the coarse K and a window, three blocks at each level; then their mean."""
    screens = [x for x in ahead([]) if x.stage is Stage.SCREEN]
    assert passes_of(SPEC, [], screens[0]) == 5 * 6
    seen = [make_record("eagle", k, launch_id="001", live=True, tput={1: 30.0}) for k in (0, 1, 2)]
    assert passes_of(SPEC, seen, screens[1]) == 9
    cut = [
        replace(r, outcome=replace(r.measurement, cut_short=True)) for r in seen if r.measurement
    ]
    assert passes_of(SPEC, cut, screens[1]) == 5 * 6


def test_all_that_is_ahead_adds_up() -> None:
    """Launches, starts, passes, and room for logs and samples."""
    found = estimate(SPEC, [], ahead([]))
    assert len(found.launches) == 8
    assert found.boot_s == 8 * (FIRST_BOOT_S + WARM_UP_S)
    assert found.passes == 11 + 3 * 30 + 4 * 11
    assert found.measure_s == found.passes * FIRST_PASS_S
    assert found.total_s == found.boot_s + found.measure_s
    assert found.disk_bytes > 8 * LAUNCH_BYTES
    finished = estimate(SPEC, make_study_records(), ahead(make_study_records()))
    assert (finished.launches, finished.passes, finished.total_s) == ((), 0, 0.0)
