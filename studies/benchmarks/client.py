"""What a streamed token costs the client, autotune's beside vLLM's and guidellm's.

    make bench-client                               set up on first use, then:
    python studies/benchmarks/client.py             measure, print, keep, and renew the document
    python studies/benchmarks/client.py --render    renew docs/benchmarks.md from what is kept

Rules: all clients do the same job against the same server, turn by turn, each a process on core 0;
the server is on core 1. A run is void, and nothing of it is kept, when a request failed, when the
tokens or the stamped chunks are not those that were served, or when the server was near its limit.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench_child import Task
from client_report import LABELS, insert, render
from pace_server import MODEL

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULT = HERE / "results" / "client.json"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
BENCH_PYTHON = ROOT / ".venv-bench" / "bin" / "python"

CLIENT_CORE, SERVER_CORE = 0, 1
MAX_SERVER_SHARE = 0.8
CHILD_TIMEOUT_S = 300.0


class VoidError(Exception):
    """The run says nothing; the message is why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The load."""

    streams: int
    tokens_per_s: float
    """Of each stream."""
    requests: int
    tokens: int
    """Of each request."""
    repeats: int


@dataclass(slots=True)
class Series:
    """What one client did, repeat by repeat."""

    version: str = ""
    tokens_per_cpu_s: list[float] = field(default_factory=list)
    server_share: list[float] = field(default_factory=list)
    """The share of its core that the server used."""
    others_share: list[float] = field(default_factory=list)
    """The share of the client's core that other processes used."""
    added_ttft_ms: list[list[float]] = field(default_factory=list)
    """The client's TTFT less the server's, per request; of autotune alone."""


def main() -> None:
    """Measure, or render what was measured."""
    args = _arguments()
    if args.render:
        DOCUMENT.write_text(_renewed(json.loads(RESULT.read_text(encoding="utf-8"))))
        return
    if len(os.sched_getaffinity(0)) < 2:  # noqa: PLR2004 - the client's and the server's
        sys.exit("two cores are needed: one for the client, one for the server")
    settings = Settings(
        streams=args.streams,
        tokens_per_s=args.rate,
        requests=args.requests,
        tokens=args.tokens,
        repeats=args.repeats,
    )
    try:
        series = _measure(settings)
    except VoidError as why:
        sys.exit(f"VOID, nothing is kept: {why}")
    result = {
        "machine": _machine(),
        "settings": asdict(settings),
        "clients": {name: asdict(one) for name, one in series.items()},
    }
    print(render(result))
    if args.keep:
        RESULT.parent.mkdir(exist_ok=True)
        lines = (f'"{name}": {json.dumps(value)}' for name, value in result.items())
        RESULT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        DOCUMENT.write_text(_renewed(result), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="what a streamed token costs the client")
    parser.add_argument("--render", action="store_true", help="renew the document, measure nothing")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second and stream")
    parser.add_argument("--requests", type=int, default=256, help="timed requests of each repeat")
    parser.add_argument("--tokens", type=int, default=100, help="output tokens of each request")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-keep", dest="keep", action="store_false", help="print only")
    return parser.parse_args()


def _renewed(result: dict[str, Any]) -> str:
    return insert(DOCUMENT.read_text(encoding="utf-8"), render(result))


def _measure(settings: Settings) -> dict[str, Series]:
    """All repeats of all clients, turn by turn."""
    series = {name: Series() for name in LABELS}
    with _server(settings.tokens_per_s) as (base_url, pid):
        for repeat in range(settings.repeats):
            for name, one in series.items():
                task = _task(settings, base_url, pid, name)
                _add(one, task, _run(name, task), _records(base_url))
                share = one.tokens_per_cpu_s[-1]
                print(f"{repeat + 1}/{settings.repeats} {name}: {share:,.0f} tokens per CPU second")
    return series


def _task(settings: Settings, base_url: str, pid: int, name: str) -> Task:
    return Task(
        base_url=base_url,
        model=MODEL,
        server_pid=pid,
        cpu=CLIENT_CORE,
        streams=settings.streams,
        requests=settings.requests,
        warmup=settings.streams,
        tokens=settings.tokens,
        uvloop=name == "vllm_uvloop",
    )


def _run(name: str, task: Task) -> dict[str, Any]:
    """One client's outcome; raises VoidError when it ended otherwise."""
    kind = name.partition("_")[0]
    python = BENCH_PYTHON if kind == "guidellm" else Path(sys.executable)
    quiet = {"PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR", "NO_PROXY": "*"}
    done = subprocess.run(
        [python, HERE / f"child_{kind}.py", json.dumps(asdict(task))],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | quiet,
        timeout=CHILD_TIMEOUT_S,
    )
    if done.returncode:
        raise VoidError(f"{name} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def _add(
    series: Series, task: Task, outcome: dict[str, Any], served: dict[str, tuple[float, float]]
) -> None:
    """Check the outcome, and add it."""
    read = outcome["reading"]
    server_share = read["server_cpu_s"] / read["wall_s"]
    expected = task.requests * task.tokens
    if outcome["faults"]:
        raise VoidError(f"{len(outcome['faults'])} failed requests, first: {outcome['faults'][0]}")
    if (outcome["tokens"], outcome["chunks"], len(served)) != (expected, expected, task.requests):
        raise VoidError(
            f"{expected} tokens for {task.requests} requests were due, the client counted "
            f"{outcome['tokens']} in {outcome['chunks']} chunks, the server {len(served)} requests"
        )
    if server_share >= MAX_SERVER_SHARE:
        raise VoidError(f"the server used {server_share:.0%} of its core: it was measured, too")
    series.version = outcome["version"]
    series.tokens_per_cpu_s.append(round(outcome["tokens"] / read["cpu_s"], 1))
    series.server_share.append(round(server_share, 4))
    others = (read["core_busy_s"] - read["cpu_s"]) / read["wall_s"]
    series.others_share.append(round(max(0.0, others), 4))
    added = [(ttft - served[prompt][1]) * 1e3 for prompt, ttft in outcome["ttft_s"].items()]
    if added:
        series.added_ttft_ms.append([round(ms, 4) for ms in added])


@contextmanager
def _server(rate: float) -> Iterator[tuple[str, int]]:
    """The pace server: its address and process id."""
    command = [
        sys.executable,
        str(HERE / "pace_server.py"),
        f"--rate={rate}",
        f"--cpu={SERVER_CORE}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.kill()


def _records(base_url: str) -> dict[str, tuple[float, float]]:
    """By prompt: when the last request with it arrived, and its TTFT, on the server's clock."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{base_url}/records", timeout=10) as response:
        told = json.load(response)
    return {prompt: (arrived, first - arrived) for prompt, arrived, first in told}


def _machine() -> dict[str, Any]:
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    main()
