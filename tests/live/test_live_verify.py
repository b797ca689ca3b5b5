"""What a study has recommended, verified and served on a real vLLM."""

import json
import subprocess
import time

from autotune.cli.verifying import EXITS
from autotune.core.verification import State
from autotune.engines._http import HttpGoneError, complete, free_port, get, served_models
from tests.live.desk import Desk, Ended, ended
from tests.live.real import NEEDS, ROOT, START_TIMEOUT_S

pytestmark = NEEDS

FILE = "reports/live/best-config.yaml"
OUR_FRAME = f'File "{ROOT / "autotune"}'
"""How a traceback names a file of the product."""

ANSWERS = {State.STILL_GOOD, State.STALE, State.UNDECIDED}
"""What a machine with noise may say of a small study; that nothing ran is none of them."""


def test_a_deployment_is_verified(small: Ended) -> None:
    """Launched again, plain decoding and the exported file; nothing has changed meanwhile."""
    done = ended(small.desk, "verify", FILE)
    told = json.loads(small.desk.report("verify.json").read_text())
    state = State(told["state"].replace("_", " "))
    assert state in ANSWERS, done.said
    assert done.code == told["exit_code"] == EXITS[state]
    assert told["changed"] == []
    assert "Traceback" not in done.said
    assert small.desk.living() == []


def test_a_deployment_is_served(small: Ended) -> None:
    """The process becomes the engine, answers under the model's name, and ends on SIGTERM."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with small.desk.started("serve", FILE, "--port", str(port)) as process:
        wait_healthy(url, process, small.desk)
        (model,) = served_models(url)
        assert model == small.desk.best_config()["engine"]["args"]["model"]
        assert complete(url, model, timeout_s=60.0) is None
        process.terminate()
        process.wait(timeout=60)
    # The process is the engine's by then, and how that words its end is its own matter.
    assert OUR_FRAME not in small.desk.said, small.desk.said
    wait_gone(small.desk)


def wait_healthy(url: str, process: "subprocess.Popen[bytes]", desk: Desk) -> None:
    """Return when the server answers."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        assert process.poll() is None, desk.said
        assert time.monotonic() < deadline, f"not healthy after {START_TIMEOUT_S:.0f} s"
        try:
            get(f"{url}/health")
        except HttpGoneError:
            time.sleep(0.5)
        else:
            return


def wait_gone(desk: Desk) -> None:
    """Its children end with it, or a moment later."""
    deadline = time.monotonic() + 10
    while desk.living() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert desk.living() == []
