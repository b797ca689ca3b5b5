"""A simulated engine as a child process, for tests that speak to one.

Rule: what is started here ends here, whatever a test does; the child's world, log and live-K file
lie in the test's own folder.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

PROFILE = (0.7, 0.5, 0.3, 0.2)
"""The acceptance of the draft "d"."""
EAGLE = {"method": "eagle", "model": "/models/d", "num_speculative_tokens": 4}
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}
LIVE = ("--scheduler-cls", "any.Class")

Json = Mapping[str, object]


def world(**changes: object) -> Json:
    """A fast, noiseless world with one draft."""
    base = {
        "time_scale": 0.01,
        "noise": {"launch_sigma": 0.0, "step_sigma": 0.0},
        "drafts": {"d": {"acceptance": list(PROFILE), "t_draft": 0.002}},
    }
    return {**base, **changes}


def fault(what: str, value: float | None = None, **when: object) -> Json:
    """A world with one fault."""
    return world(faults=[{"what": what if value is None else {what: value}, "when": when}])


@dataclass(frozen=True, kw_only=True)
class Child:
    """One simulated server and the ways to speak to it."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    @property
    def log(self) -> str:
        """All that it has printed."""
        return (self.folder / "log").read_text()

    @property
    def live_k(self) -> list[int]:
        """K of each step, where it was written down."""
        file = self.folder / "live_k"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def request(self, path: str, body: Json | bytes | None = None) -> tuple[int, bytes]:
        """Status and body of a GET, or of a POST if there is something to send."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST" if raw is not None else "GET", path, body=raw)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def complete(self, prompt: str = "a b c", **changes: object) -> dict[str, Any]:
        """A greedy completion that does not stream."""
        body = {"model": "m", "prompt": prompt, "max_tokens": 400, "temperature": 0, **changes}
        status, answer = self.request("/v1/completions", body)
        assert status == 200, answer
        parsed: dict[str, Any] = json.loads(answer)
        return parsed

    def stream(self, prompt: str = "a b c", **changes: object) -> list[dict[str, Any]]:
        """The chunks of a greedy chat with all the usage there is."""
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "temperature": 0,
            **changes,
        }
        status, answer = self.request("/v1/chat/completions", body)
        assert status == 200, answer
        lines = [line[6:] for line in answer.decode().split("\n\n") if line]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]

    def many(self, count: int, *, at_once: int = 8, **changes: object) -> list[dict[str, Any]]:
        """Completions of `count` different prompts."""
        with ThreadPoolExecutor(at_once) as pool:
            jobs = [pool.submit(self.complete, f"p {i} q", **changes) for i in range(count)]
            return [job.result() for job in jobs]

    def metrics(self) -> dict[str, float]:
        """Every sample, by its name without `vllm:`; split ones as `name:label`."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.request("/metrics")[1].decode()):
            for sample in family.samples:
                split = set(sample.labels) & {"position", "finished_reason"}
                suffix = "".join(f":{sample.labels[name]}" for name in split)
                found[sample.name.removeprefix("vllm:") + suffix] = sample.value
        return found

    def spec(self) -> tuple[float, float, float]:
        """Drafts, drafted and accepted tokens."""
        found = self.metrics()
        return (
            found["spec_decode_num_drafts_total"],
            found["spec_decode_num_draft_tokens_total"],
            found["spec_decode_num_accepted_tokens_total"],
        )

    def end(self, number: int = signal.SIGTERM) -> int:
        """The exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(10)

    def wait_until_healthy(self) -> None:
        """Return when /health says so."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                if self.request("/health")[0] == 200:
                    return
            time.sleep(0.01)
        raise TimeoutError(f"not healthy:\n{self.log}")


@contextlib.contextmanager
def launched(
    folder: Path,
    *flags: str,
    settings: Json | None = None,
    spec: Json | None = None,
    port: int | None = None,
) -> Iterator[Child]:
    """A child, not waited for."""
    world_file = folder / "world.yaml"
    world_file.write_text(json.dumps(world() if settings is None else settings))
    files = {"AUTOTUNE_SIM_WORLD": str(world_file)}
    files["AUTOTUNE_LIVE_K_FILE"] = str(folder / "live_k")
    port = port or free_port()
    argv = [sys.executable, "-m", "autotune.engines.simulated_server", "--model", "/models/t"]
    argv += ["--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port), *flags]
    argv += ["--speculative-config", json.dumps(spec)] if spec else []
    environment = os.environ | files
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield Child(process=process, port=port, folder=folder)
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def serving(
    folder: Path, *flags: str, settings: Json | None = None, spec: Json | None = None
) -> Iterator[Child]:
    """A child that answers."""
    with launched(folder, *flags, settings=settings, spec=spec) as child:
        child.wait_until_healthy()
        yield child


def free_port() -> int:
    """A port that nobody listens on."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
