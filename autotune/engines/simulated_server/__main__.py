"""`python -m autotune.engines.simulated_server`: one launch, from its flags to its exit code.

Rule: the exit code is 0 after SIGTERM or SIGINT, 1 when the engine does not start or dies, and 2
for wrong flags or a wrong world file.

Environment:
    AUTOTUNE_SIM_WORLD      the world file (world.py); without one, a small GPU
    AUTOTUNE_SIM_SEED       replaces the world's seed
    AUTOTUNE_SIM_LAUNCHES   a file that grows by one byte per launch and so numbers the launches;
                            by default the world file's name + ".launches"
    AUTOTUNE_LIVE_K_FILE    the file that gets each step's K, one per line
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import yaml

from autotune.engines.simulated_server import log
from autotune.engines.simulated_server.api import Api
from autotune.engines.simulated_server.engine import Engine, EngineDiedError
from autotune.engines.simulated_server.flags import parse_options
from autotune.engines.simulated_server.http11 import listen
from autotune.engines.simulated_server.launch import Launch, StartError, read_speculation
from autotune.engines.simulated_server.metrics import Metrics
from autotune.engines.simulated_server.starting import check_start
from autotune.engines.simulated_server.world import World, parse_world

_WORKER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"

_LAST_WORDS_S = 0.1
"""What requests in flight get to hear of the end."""


def main() -> int:
    """Run until told to stop."""
    options = parse_options(sys.argv[1:])
    try:
        world = _read_world()
    except (ValueError, TypeError, yaml.YAMLError, OSError) as error:
        sys.stderr.write(f"AUTOTUNE_SIM_WORLD: {error}\n")
        return 2
    launch = Launch(options=options, world=world, number=_count_launch(), speculation=None)
    log.log_arguments(launch)
    try:
        spec = read_speculation(options.speculative_config, options, world)
        launch = replace(launch, speculation=spec)
        bound = _bind(launch)
    except (StartError, OSError) as error:
        log.say(f"{error}" if isinstance(error, StartError) else f"OSError: {error}")
        return 1
    with bound, _live_k_file(launch) as live_k_file:
        return asyncio.run(_live(launch, bound, live_k_file))


def _read_world() -> World:
    path = os.environ.get("AUTOTUNE_SIM_WORLD")
    world = parse_world(yaml.safe_load(Path(path).read_text()) or {}) if path else World()
    seed = os.environ.get("AUTOTUNE_SIM_SEED")
    return replace(world, seed=int(seed)) if seed else world


def _count_launch() -> int:
    """This launch's number: the length of a file that every launch appends a byte to."""
    world = os.environ.get("AUTOTUNE_SIM_WORLD")
    path = os.environ.get("AUTOTUNE_SIM_LAUNCHES") or (f"{world}.launches" if world else None)
    if path is None:
        return os.getpid()
    with contextlib.suppress(OSError), Path(path).open("ab") as file:
        file.write(b".")
        file.flush()
        return file.tell()
    return os.getpid()


def _bind(launch: Launch) -> socket.socket:
    """Bind before the engine starts, as vLLM does; connections are refused until it listens."""
    if launch.fault("port_collision_once") is not None and launch.number == 1:
        raise OSError(98, "Address already in use")
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # asyncio sets it only on sockets made with an explicit protocol; without it every second chunk
    # waits for a delayed acknowledgement.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.bind((launch.options.host or "127.0.0.1", launch.options.port))
    return bound


@contextlib.contextmanager
def _live_k_file(launch: Launch) -> Iterator[TextIO | None]:
    path = os.environ.get("AUTOTUNE_LIVE_K_FILE")
    if not path or launch.options.scheduler_cls is None:
        yield None
        return
    with Path(path).open("a") as file:
        yield file


async def _live(launch: Launch, bound: socket.socket, live_k_file: TextIO | None) -> int:
    stop = _stop_event(launch)
    started = asyncio.create_task(_start(launch))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((started, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        started.cancel()
        return await _end(launch)
    try:
        started.result()
    except StartError as error:
        log.log_start_failure(str(error))
        return 1
    return await _serve(launch, bound, live_k_file, stopped)


def _stop_event(launch: Launch) -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    deaf = launch.fault("ignore_sigterm") is not None
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if deaf else stop.set)
    loop.add_signal_handler(signal.SIGINT, (lambda: None) if deaf else stop.set)
    return stop


async def _start(launch: Launch) -> None:
    """The seconds of a start, with the log lines and the failures on the way."""
    log.log_engine(launch)
    seconds = launch.world.startup_s * launch.world.time_scale
    await asyncio.sleep(seconds / 2)
    if launch.fault("hang_at_start") is not None:
        await asyncio.Event().wait()
    check_start(launch)
    log.log_kv_cache(launch, launch.world.startup_s)
    await asyncio.sleep(seconds / 2)


async def _serve(
    launch: Launch,
    bound: socket.socket,
    live_k_file: TextIO | None,
    stopped: asyncio.Task[bool],
) -> int:
    if launch.fault("orphan_worker") is not None:
        worker = subprocess.Popen([sys.executable, "-c", _WORKER])  # noqa: ASYNC220
        log.log("EngineCore", "core.py:1", f"worker process {worker.pid}")
    metrics = Metrics(launch)
    engine = Engine(launch, metrics, live_k_file)
    server = await listen(bound, Api(launch, engine, metrics).respond)
    log.log_serving(launch)
    running = asyncio.create_task(engine.run())
    await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        running.cancel()
        code = await _end(launch)
    else:
        code = await _die(running)
    server.close()
    return code


async def _die(running: asyncio.Task[None]) -> int:
    """Let the requests in flight hear of it, then go."""
    try:
        running.result()
    except EngineDiedError as error:
        log.log_engine_death(str(error))
    await asyncio.sleep(_LAST_WORDS_S)
    return 1


async def _end(launch: Launch) -> int:
    log.log_shutdown()
    slow = launch.fault("slow_shutdown")
    await asyncio.sleep(_LAST_WORDS_S if slow is None else slow or 30.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
