"""A deployment verified and served over the real command line: still good, stale, broken.

One study serves all tests here; each changes the world and verifies what it has recommended.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.engines._http import free_port
from tests.flow.study import BAD, Desk, Done, candidates, desk, fault, world

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

FILE = "reports/s/best-config.yaml"
ONE_K = {"num_speculative_tokens": 4, "max_blocks": 2}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A study that recommends its one draft at K = 4."""
    laid = desk(tmp_path_factory.mktemp("verify"), candidates(search=ONE_K))
    done = laid.run()
    assert done.code == 0, done.text
    return laid


@pytest.fixture(autouse=True)
def as_it_was(study: Desk) -> Iterator[None]:
    """The world of the study, again."""
    yield
    study.write(candidates(search=ONE_K), world())


def verified(study: Desk, *options: str) -> tuple[Done, dict[str, Any]]:
    """What `verify` has done, and what it has written."""
    done = study.autotune("verify", FILE, *options)
    return done, json.loads(study.report("verify.json"))


def test_nothing_has_changed(study: Desk) -> None:
    """Exit 0 after A B A B from the exported file itself; the study's own launches stay alone."""
    before = study.launches
    done, told = verified(study)
    assert done.code == 0, done.text
    assert (told["state"], told["exit_code"], told["changed"]) == ("still_good", 0, [])
    assert told["speedup"]["low"] > 1
    assert "still good" in done.text
    launches = sorted((study.folder / "studies/s/verify/launches").glob("[0-9]*"))
    ks = [yaml.safe_load((x / "vllm.yaml").read_text(encoding="utf-8")) for x in launches]
    assert ["speculative-config" in k for k in ks] == [False, True, False, True]
    exported = study.report("vllm.yaml")
    assert (launches[1] / "vllm.yaml").read_text(encoding="utf-8") == exported
    assert study.launches == before


def test_a_draft_that_pays_no_more_is_stale(study: Desk) -> None:
    """Exit 3, the new figure beside the recorded one."""
    study.write(candidates(search=ONE_K), world(drafts={"good": BAD}))
    done, told = verified(study)
    assert done.code == 3, done.text
    assert told["state"] == "stale"
    assert told["speedup"]["high"] < 1 < told["recorded_speedup"]["low"]
    assert "recorded was" in done.text


def test_a_deployment_that_does_not_start_is_broken(study: Desk) -> None:
    """Exit 5 with cause and remedy after the first launch of it."""
    study.write(candidates(search=ONE_K), world(faults=[fault("oom_at_start", model="good")]))
    done, told = verified(study)
    assert done.code == 5, done.text
    assert told["state"] == "broken"
    assert "the deployment cannot run here: out_of_memory_start" in told["reason"]
    assert not study.servers()


def test_other_prompts_and_other_weights_are_told(study: Desk) -> None:
    """Both values of what has changed, and the verdict is that of the measurement."""
    rows = [
        {"id": f"new-{i}", "messages": [{"role": "user", "content": f"Another question {i}?"}]}
        for i in range(12)
    ]
    file = study.folder / "today.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = study.folder / "good" / "config.json"
    config.write_text('{"retrained": true}', encoding="utf-8")
    try:
        done, told = verified(study, "--prompts", "today.jsonl")
    finally:
        config.write_text("{}", encoding="utf-8")
    assert done.code == 0, done.text
    changed = {one["field"]: (one["old"], one["new"]) for one in told["changed"]}
    assert set(changed) == {"models.draft", "evidence.workload.prompts_sha256"}
    assert all(old and new and old != new for old, new in changed.values())
    assert "changed models.draft: " in done.text


def test_a_budget_that_is_too_small(study: Desk) -> None:
    """Exit 6, and nothing is claimed."""
    done, told = verified(study, "--budget", "1s")
    assert (done.code, told["state"], told["speedup"]) == (6, "not_done", None)


def test_prompts_that_are_nowhere_are_asked_for(study: Desk, tmp_path: Path) -> None:
    """A file that was copied to another machine; and prompts too few for its level."""
    (tmp_path / "best-config.yaml").write_text(study.report("best-config.yaml"), encoding="utf-8")
    copied = str(tmp_path / "best-config.yaml")
    done = study.autotune("verify", copied, "--root", str(tmp_path))
    assert (done.code, "--prompts" in done.text) == (2, True)
    (study.folder / "few.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "a"}], "split": "search"}\n'
        '{"messages": [{"role": "user", "content": "b"}], "split": "confirmation"}\n',
        encoding="utf-8",
    )
    few = study.autotune("verify", FILE, "--prompts", "few.jsonl")
    told = " ".join(few.text.split())
    assert (few.code, "cannot be verified: concurrency 1 needs 8 prompts" in told) == (2, True)


def test_plain_decoding_is_verified_with_one_launch(tmp_path: Path) -> None:
    """Still good while nothing has changed; stale, exit 3, once another engine runs it."""
    laid = desk(tmp_path, candidates(search=ONE_K), world(drafts={"good": BAD}))
    assert laid.run().code == 3
    done, told = verified(laid)
    assert (done.code, told["state"]) == (0, "still_good"), done.text
    file = tmp_path / FILE
    text = file.read_text(encoding="utf-8")
    version = yaml.safe_load(text)["engine"]["version"]
    file.write_text(text.replace(f"version: {version}\n", "version: 0.1.0\n", 1), encoding="utf-8")
    done, told = verified(laid)
    assert (done.code, told["state"]) == (3, "stale"), done.text
    assert told["changed"] == [{"field": "engine.version", "old": "0.1.0", "new": version}]


def test_serve_prints_how_the_engine_is_started(study: Desk) -> None:
    """Environment, launcher, the exported file; the caller's words last."""
    done = study.autotune("serve", FILE, "--port", "8123", "--dry-run", "--host", "::1")
    assert done.code == 0, done.text
    line = done.text.strip().splitlines()[-1]
    assert line.startswith("env ")
    assert "AUTOTUNE_SIM_WORLD=" in line
    file = study.folder / "reports" / "s" / "vllm.yaml"
    assert f"--config {file} --host 127.0.0.1 --port 8123" in line
    assert line.endswith("--host ::1")


def test_serve_becomes_the_engine(study: Desk) -> None:
    """The process that was started answers as the engine, with the draft in force."""
    port = free_port()
    with study.started("serve", FILE, "--port", str(port)) as process:
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            try:
                address = f"http://127.0.0.1:{port}/version"
                with urllib.request.urlopen(address, timeout=5) as reply:
                    told = json.loads(reply.read())
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        else:
            pytest.fail(f"no answer: {process.communicate()[0]}")
        assert "simulated" in told["version"]
        assert process.pid in study.servers()


def test_serve_needs_the_exported_file(study: Desk, tmp_path: Path) -> None:
    """Without vllm.yaml beside it: exit 2, and how to get one; an edited one is warned of."""
    copied = tmp_path / "best-config.yaml"
    copied.write_text(study.report("best-config.yaml"), encoding="utf-8")
    done = study.autotune("serve", str(copied), "--dry-run")
    told = " ".join(done.text.split())
    assert (done.code, "autotune export s --format vllm_yaml" in told) == (2, True)
    (tmp_path / "vllm.yaml").write_text("model: another\n", encoding="utf-8")
    edited = study.autotune("serve", str(copied), "--dry-run")
    assert (edited.code, "is not the file that was measured" in edited.text) == (0, True)


def test_clean_takes_the_launches_of_a_verification_along(study: Desk) -> None:
    """Last here."""
    folder = study.folder / "studies" / "s" / "verify"
    (folder / "launches" / "001").mkdir(parents=True, exist_ok=True)
    assert study.autotune("clean", "s", "--yes").code == 0
    assert not folder.exists()
