"""What goes wrong in a pass on the simulated engine, and what becomes of the pass.

A pass has eight requests; before the first one there were the start's own and six of the warm-up.
"""

from pathlib import Path

from autotune.core.trial import Failure
from tests.tuning.simulated import live_launch, live_passes, study


def strikes(what: str, value: float | None = None) -> dict[str, object]:
    """A world in which one thing goes wrong."""
    return {"faults": [{"what": what if value is None else {what: value}}]}


def test_a_compilation_in_a_pass_costs_that_pass_and_no_more(tmp_path: Path) -> None:
    """The ninth request of all is in the first pass: repeated, and the repetition counts."""
    measured = live_passes(study(tmp_path, **strikes("compiles_at", 9)), tmp_path)
    bad = [p for p in measured if p.invalid]
    assert [p.order for p in bad] == [0]
    assert "a kernel was compiled: Triton kernel JIT compilation during" in str(bad[0].invalid)
    assert len(measured) == 7
    assert measured[1].num_speculative_tokens == bad[0].num_speculative_tokens


def test_compilations_of_the_warm_up_are_what_it_is_for(tmp_path: Path) -> None:
    """The third request of all is one of the warm-up's."""
    assert not [
        p for p in live_passes(study(tmp_path, **strikes("compiles_at", 3)), tmp_path) if p.invalid
    ]


def test_grammar_errors_are_counted_and_the_pass_stands(tmp_path: Path) -> None:
    """The requests end well, the log complains."""
    measured = live_passes(study(tmp_path, **strikes("grammar_rejects_at", 9)), tmp_path)
    assert not [p for p in measured if p.invalid]
    assert [p.warnings for p in measured if p.warnings] == [
        {"the grammar refused tokens of a reply": 1}
    ]


def test_a_server_that_starts_again_spoils_the_pass_it_does_so_in(tmp_path: Path) -> None:
    """Its counters fall: no negative rate, and the next pass is sound again."""
    measured = live_passes(study(tmp_path, **strikes("counters_reset_at", 20)), tmp_path)
    [bad] = [p for p in measured if p.invalid]
    assert "the server restarted during the pass: generation_tokens" in str(bad.invalid)
    assert bad.spec is None
    assert len(measured) == 7


def test_counters_that_stand_still_fail_a_launch_with_the_reason(tmp_path: Path) -> None:
    """Statistics off, as with --disable-log-stats behind a launcher."""
    for record in live_launch(study(tmp_path, **strikes("counters_frozen")), tmp_path):
        assert isinstance(record.outcome, Failure)
        assert "counter of generated tokens did not move" in record.outcome.detail
        assert "disable_log_stats" in record.outcome.remedy


def test_a_usage_that_lies_is_no_measurement(tmp_path: Path) -> None:
    """Client and server must agree about tokens."""
    for record in live_launch(study(tmp_path, **strikes("wrong_usage", 7)), tmp_path):
        assert isinstance(record.outcome, Failure)
        assert "the client counted" in record.outcome.detail


def test_an_error_inside_a_reply_is_a_failed_request(tmp_path: Path) -> None:
    """HTTP 200 and then an error object; the pass is repeated, the survivors are not averaged."""
    for record in live_launch(study(tmp_path, **strikes("in_band_error_rate", 0.5)), tmp_path):
        for p in record.measurement.passes if record.measurement else ():
            assert (p.failed > 0) == (p.invalid is not None)
            assert p.invalid is None or "error in the stream" in p.invalid


def test_a_draft_that_loops_is_never_measured_as_the_fastest(tmp_path: Path) -> None:
    """Every draft of a loop is right, every reply has HTTP 200: disqualified all the same."""
    for record in live_launch(study(tmp_path, **strikes("repetition_loop")), tmp_path):
        assert isinstance(record.outcome, Failure)
        assert "8 of 8 replies are one phrase over and over" in record.outcome.detail
