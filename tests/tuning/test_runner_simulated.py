"""One launch on the simulated engine, with the real load generator: what a fake would believe.

A pass has eight requests; six went before as the warm-up, one at each K and stream.
"""

import json
from pathlib import Path

from autotune.core.study import (
    Candidate,
    Level,
    Objective,
    Prompt,
    Sampling,
    Search,
    StudySpec,
    Target,
    Workload,
)
from autotune.core.trial import Failure, Launch, Pass, Record, Stage
from autotune.ports import find
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig, run_launch
from tests.engines.orders import world_env

SYSTEM = "You are a careful assistant of a small library in the mountains ." * 5
"""Sixty words: three whole blocks of the simulated prefix cache, four with the template's."""


def prompts(split: str) -> tuple[Prompt, ...]:
    """Different questions below one system prompt."""
    return tuple(
        Prompt(
            id=f"{split}-{i}",
            messages=(
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"question {i} of {split} ?"},
            ),
        )
        for i in range(16)
    )


def study(folder: Path, **world: object) -> StudySpec:
    """Two streams, blocks of eight prompts, a draft that is right now and then."""
    return StudySpec(
        name="s",
        target=Target(model="/models/t", engine="simulated", env=world_env(folder, **world)),
        workload=Workload(
            search=prompts("search"),
            confirmation=prompts("confirmation"),
            levels=(Level(concurrency=2),),
            max_tokens=20,
            sampling=Sampling(temperature=0.0),
        ),
        candidates=(Candidate(name="d", method="draft_model", model="/models/d"),),
        search=Search(num_speculative_tokens=(1, 2), min_blocks=2, max_blocks=2),
        objective=Objective(),
    )


def live_launch(folder: Path, **world: object) -> list[Record]:
    """The records of one live launch at K = 0, 1, 2."""
    spec = study(folder, **world)
    launch = Launch(
        stage=Stage.SCREEN,
        candidate=spec.candidates[0],
        num_speculative_tokens=(0, 1, 2),
        gpu_memory_utilization=0.9,
        live=True,
        max_blocks=2,
        why="a test",
    )
    rig = Rig(
        spec=spec,
        engine=find("engines", "simulated"),
        load_generator=find("loadgens", "closed_loop"),
        paths=StudyPaths(root=folder, name="s"),
        fingerprint="f",
        notify=lambda _: None,
    )
    at = rig.paths.next_launch()
    config = at / "vllm.yaml"
    draft = spec.candidates[0].speculative_config(launch.k_max)
    config.write_text(json.dumps({"model": "/models/t", "speculative-config": draft}))
    records = list(run_launch(launch, rig, config, at))
    assert [r.trial.num_speculative_tokens for r in records] == [0, 1, 2]
    return records


def all_passes(folder: Path, **world: object) -> list[Pass]:
    """All its passes in their order."""
    found = [p for r in live_launch(folder, **world) for p in passes_of(r)]
    return sorted(found, key=lambda p: p.order)


def passes_of(record: Record) -> tuple[Pass, ...]:
    """The passes of a record, none for a failure."""
    return record.measurement.passes if record.measurement else ()


def test_prompts_that_begin_alike_do_not_help_each_other(tmp_path: Path) -> None:
    """A system prompt of whole cache blocks is computed anew for every request."""
    measured = all_passes(tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    assert {p.prefix_hit_rate for p in measured} == {0.0}
    assert all(p.prompt_tokens > 8 * len(SYSTEM.split()) for p in measured)
    assert all(0 < p.client_lag_ms < 200 for p in measured)
    assert all(p.host is not None and p.host.load_1m is not None for p in measured)
    assert all(p.client_cpu > 0 for p in measured)
    assert {(p.looping, p.preemptions, len(p.warnings)) for p in measured} == {(0, 0, 0)}


def strikes(what: str, value: float | None = None) -> dict[str, object]:
    """A world in which one thing goes wrong."""
    return {"faults": [{"what": what if value is None else {what: value}}]}


def test_a_compilation_in_a_pass_costs_that_pass_and_no_more(tmp_path: Path) -> None:
    """The ninth request of all is in the first pass: repeated, and the repetition counts."""
    measured = all_passes(tmp_path, **strikes("compiles_at", 9))
    bad = [p for p in measured if p.invalid]
    assert [p.order for p in bad] == [0]
    assert "a kernel was compiled: Triton kernel JIT compilation during" in str(bad[0].invalid)
    assert len(measured) == 7
    assert measured[1].num_speculative_tokens == bad[0].num_speculative_tokens


def test_compilations_of_the_warm_up_are_what_it_is_for(tmp_path: Path) -> None:
    """The third request of all is one of the warm-up's."""
    assert not [p for p in all_passes(tmp_path, **strikes("compiles_at", 3)) if p.invalid]


def test_grammar_errors_are_counted_and_the_pass_stands(tmp_path: Path) -> None:
    """The requests end well, the log complains."""
    measured = all_passes(tmp_path, **strikes("grammar_rejects_at", 9))
    assert not [p for p in measured if p.invalid]
    assert [p.warnings for p in measured if p.warnings] == [
        {"the grammar refused tokens of a reply": 1}
    ]


def test_a_server_that_starts_again_spoils_the_pass_it_does_so_in(tmp_path: Path) -> None:
    """Its counters fall: no negative rate, and the next pass is sound again."""
    measured = all_passes(tmp_path, **strikes("counters_reset_at", 20))
    [bad] = [p for p in measured if p.invalid]
    assert "the server restarted during the pass: generation_tokens" in str(bad.invalid)
    assert bad.spec is None
    assert len(measured) == 7


def test_counters_that_stand_still_fail_a_launch_with_the_reason(tmp_path: Path) -> None:
    """Statistics off, as with --disable-log-stats behind a launcher."""
    for record in live_launch(tmp_path, **strikes("counters_frozen")):
        assert isinstance(record.outcome, Failure)
        assert "counter of generated tokens did not move" in record.outcome.detail
        assert "disable_log_stats" in record.outcome.remedy


def test_a_usage_that_lies_is_no_measurement(tmp_path: Path) -> None:
    """Client and server must agree about tokens."""
    for record in live_launch(tmp_path, **strikes("wrong_usage", 7)):
        assert isinstance(record.outcome, Failure)
        assert "the client counted" in record.outcome.detail


def test_an_error_inside_a_reply_is_a_failed_request(tmp_path: Path) -> None:
    """HTTP 200 and then an error object; the pass is repeated, the survivors are not averaged."""
    for record in live_launch(tmp_path, **strikes("in_band_error_rate", 0.5)):
        for p in passes_of(record):
            assert (p.failed > 0) == (p.invalid is not None)
            assert p.invalid is None or "error in the stream" in p.invalid


def test_a_draft_that_loops_is_never_measured_as_the_fastest(tmp_path: Path) -> None:
    """Every draft of a loop is right, every reply has HTTP 200: disqualified all the same."""
    for record in live_launch(tmp_path, **strikes("repetition_loop")):
        assert isinstance(record.outcome, Failure)
        assert "8 of 8 replies are one phrase over and over" in record.outcome.detail
