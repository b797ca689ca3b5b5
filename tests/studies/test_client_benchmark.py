"""The client benchmark: the server that it measures against, and what it says of a result."""

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_child
import child_autotune
import client
import client_report
import pace_server
import pytest

BENCHMARKS = Path(client.__file__).parent
REQUESTS, TOKENS, RATE = 8, 5, 500


@pytest.fixture
def task() -> Iterator[bench_child.Task]:
    """A task against a pace server that lives as long as the test."""
    command = [sys.executable, str(BENCHMARKS / "pace_server.py"), f"--rate={RATE}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield bench_child.Task(
            base_url=f"http://127.0.0.1:{process.stdout.readline().strip()}",
            model=pace_server.MODEL,
            server_pid=process.pid,
            cpu=0,
            streams=2,
            requests=REQUESTS,
            warmup=2,
            tokens=TOKENS,
        )
        process.kill()


def test_the_client_reads_the_pace_server_rightly(task: bench_child.Task) -> None:
    """Every token is counted, stamped and told; nothing is taken for a fault."""
    samples = child_autotune.load(task, task.prompts()).samples
    assert [s.error for s in samples] == [None] * REQUESTS
    assert [s.chunk_tokens for s in samples] == [(1,) * TOKENS] * REQUESTS
    assert {s.prompt_tokens for s in samples} == {pace_server.PROMPT_TOKENS}
    assert {s.finish_reason for s in samples} == {"length"}
    assert samples[0].text == " word0 word1 word2 word3 word4"


def test_the_server_saw_what_the_client_saw(task: bench_child.Task) -> None:
    """Each TTFT by the server's clock is a period or more, the client's longer, told once."""
    samples = child_autotune.load(task, task.prompts()).samples
    seen = client._records(task.base_url)
    assert seen.keys() == {s.prompt_id for s in samples}
    for sample in samples:
        ttft = seen[sample.prompt_id][1]
        assert 1 / RATE <= ttft < (sample.first_token_s or 0) - sample.sent_s
    assert client._records(task.base_url) == {}


@pytest.mark.parametrize("running", [True, False])
def test_usage_is_in_every_chunk_only_if_asked_for(running: bool) -> None:  # noqa: FBT001
    """As vLLM does: the final usage always, the running usage on demand."""
    told = b"".join(pace_server.reply(3, running=running)).count(b'"usage"')
    assert told == (5 if running else 1)


def outcome(**changed: Any) -> dict[str, Any]:  # noqa: ANN401
    """What a client may say of the task."""
    reading = {"cpu_s": 0.5, "wall_s": 2.0, "server_cpu_s": 0.4, "core_busy_s": 0.6}
    due = REQUESTS * TOKENS
    told = {"reading": reading, "version": "1", "tokens": due, "chunks": due, "faults": []}
    return told | {"ttft_s": {"Say 0": 0.012}} | changed


def served() -> dict[str, tuple[float, float]]:
    """The server's records: each TTFT 10 ms."""
    return {f"Say {n}": (0.0, 0.010) for n in range(REQUESTS)}


def test_an_outcome_becomes_rates_and_shares(task: bench_child.Task) -> None:
    """Tokens per CPU second; what the server used; what others used; what TTFT gained."""
    series = client.Series()
    client._add(series, task, outcome(), served())
    assert series.tokens_per_cpu_s == [80.0]
    assert (series.server_share, series.others_share) == ([0.2], [0.05])
    assert series.added_ttft_ms == [[2.0]]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"tokens": 39}, "40 tokens for 8 requests were due"),
        ({"chunks": 41}, "in 41 chunks"),
        ({"faults": ["HTTP 500"]}, "1 failed requests, first: HTTP 500"),
        ({"reading": outcome()["reading"] | {"server_cpu_s": 1.6}}, "80% of its core"),
    ],
)
def test_a_run_that_says_nothing_is_void(
    task: bench_child.Task, changed: dict[str, Any], why: str
) -> None:
    """Lost tokens, chunks without a time, failures, or a server near its limit."""
    with pytest.raises(client.VoidError, match=why):
        client._add(client.Series(), task, outcome(**changed), served())


def result() -> dict[str, Any]:
    """A measurement of two repeats."""
    rates = {
        "autotune": [30_000.0, 33_000.0],
        "vllm": [10_000.0, 11_000.0],
        "guidellm": [5_000.0, 5_500.0],
        "vllm_uvloop": [20_000.0, 22_000.0],
    }
    series = {
        name: {
            "version": "1.0",
            "tokens_per_cpu_s": rate,
            "server_share": [0.1, 0.12],
            "others_share": [0.0, 0.03],
            "added_ttft_ms": [[0.1, 0.2], [0.3, 0.4]] if name == "autotune" else [],
        }
        for name, rate in rates.items()
    }
    load = {"streams": 1, "tokens_per_s": 50.0, "requests": 2, "tokens": 100, "repeats": 2}
    machine = {
        "cpu": "A CPU",
        "cores": 2,
        "kernel": "6.1",
        "python": "3.11.7",
        "date": "2026-01-01",
    }
    return {"machine": machine, "settings": load, "clients": series}


def test_the_section_gives_ratios_with_their_spread() -> None:
    """Ratios within a repeat, mean and extremes; both goals with their figures."""
    text = client_report.render(result())
    row = "| `vllm bench serve` | 1.0 | 10,500 ± 707 [10,000, 11,000] | 3.00 ± 0.00 [3.00, 3.00] |"
    assert f"{row} 12% | 3% |" in text
    assert "; met, the smaller mean ratio is 3.00." in text
    assert "; met: p50 0.20 ms, p99 0.40 ms, most 0.40 ms over 4 requests" in text
    assert "all at once, as the pass begins, p50 0.10 ms, p99 0.30 ms;" in text
    assert "one by one, as replies end, p50 0.20 ms, p99 0.40 ms." in text
    assert "A CPU, 2 cores" in text


def test_a_goal_that_is_missed_is_called_missed() -> None:
    """Neither verdict is a constant."""
    slow = copy.deepcopy(result())
    slow["clients"]["autotune"]["tokens_per_cpu_s"] = [15_000.0, 16_000.0]
    slow["clients"]["autotune"]["added_ttft_ms"] = [[0.1, 0.2], [0.3, 2.0]]
    assert client_report.render(slow).count("NOT met") == 2


def test_only_what_is_between_the_markers_is_replaced() -> None:
    """The rest of the document is the author's; a document without markers is refused."""
    begin, end = client_report.BEGIN, client_report.END
    assert client_report.insert(f"a\n{begin}\nold\n{end}\nb\n", "new") == (
        f"a\n{begin}\n\nnew\n\n{end}\nb\n"
    )
    with pytest.raises(ValueError, match="client: begin"):
        client_report.insert("a\n", "new")


@pytest.mark.skipif(not client.RESULT.exists(), reason="nothing has been recorded yet")
def test_the_document_says_what_was_recorded() -> None:
    """No figure of the section is typed by hand."""
    recorded = json.loads(client.RESULT.read_text(encoding="utf-8"))
    assert recorded.keys() == {"machine", "settings", "clients"}
    assert recorded["clients"].keys() == client_report.LABELS.keys()
    repeats = recorded["settings"]["repeats"]
    assert {len(c["tokens_per_cpu_s"]) for c in recorded["clients"].values()} == {repeats}
    assert client_report.render(recorded) in client.DOCUMENT.read_text(encoding="utf-8")
