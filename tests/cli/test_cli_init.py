"""`autotune init`: the file that it writes is one that loads, and says what is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.config import load
from autotune.config.workload import PLACEHOLDER
from autotune.errors import CandidatesFileError
from tests.starting.models import LLAMA, in_cache, model

LLAMA_3 = LLAMA | {"vocab_size": 128256, "max_position_embeddings": 131072}


def init(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run it in a folder, with a hub's cache of its own."""
    return subprocess.run(
        [sys.executable, "-m", "autotune", "init", *words],
        cwd=folder,
        env=os.environ | {"HF_HUB_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )


def write_prompts(file: Path) -> None:
    """A hundred prompts."""
    rows = ({"messages": [{"role": "user", "content": f"question {i}"}]} for i in range(100))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_a_folder_with_models_beside_it(tmp_path: Path) -> None:
    """The file loads with the prompts given; drafts and a head lie where it says."""
    models = tmp_path / "models"
    model(models / "target", LLAMA_3, parameters=8_000_000_000, generation_config={"top_p": 0.9})
    model(models / "draft", LLAMA_3, parameters=1_000_000_000)
    model(models / "head", LLAMA_3, tensors={"fc.weight": (8, 16)})
    write_prompts(tmp_path / "mine.jsonl")
    done = init(tmp_path, "models/target", "--prompts", "mine.jsonl")
    assert done.returncode == 0, done.stderr
    spec = load(tmp_path / "candidates.yaml", environ={}).spec
    assert spec.target.model == str(models / "target")
    found = {c.name: c.model for c in spec.candidates}
    assert found["eagle-head"] == str(models / "head")
    assert found["draft_model-draft"] == str(models / "draft")
    assert found["draft_model-Llama-3.2-1B-Instruct"] == "meta-llama/Llama-3.2-1B-Instruct"
    assert spec.workload.sampling.temperature == 1.0
    assert spec.workload.sampling.params == {"top_p": 0.9}
    assert spec.target.engine_args == {"max_model_len": 131072}


def test_without_prompts_one_message_says_what_to_do(tmp_path: Path) -> None:
    """The placeholder is the only fault of the file, with its line."""
    done = init(tmp_path, "meta-llama/Llama-3.1-8B-Instruct")
    assert done.returncode == 0, done.stderr
    with pytest.raises(CandidatesFileError) as caught:
        load(tmp_path / "candidates.yaml", environ={})
    (fault,) = caught.value.faults
    lines = (tmp_path / "candidates.yaml").read_text(encoding="utf-8").splitlines()
    assert fault.line is not None
    assert PLACEHOLDER in lines[fault.line - 1]
    assert "placeholder" in fault.message
    assert "real prompts" in fault.message


def test_a_model_that_is_not_here_is_named_and_what_was_not_seen_is_told(tmp_path: Path) -> None:
    """Its heads are known by its name; how to let its files be seen stands at the top."""
    done = init(tmp_path, "meta-llama/Llama-3.1-8B-Instruct", "--output", "-")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "candidates.yaml").exists()
    assert "Not seen: the files of meta-llama/Llama-3.1-8B-Instruct" in done.stdout
    assert "hf download meta-llama/Llama-3.1-8B-Instruct" in done.stdout
    assert "model: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B" in done.stdout


def test_drafts_of_the_family_in_the_cache_are_found(tmp_path: Path) -> None:
    """The target and a small model of the hub; what is cached is said to be at hand."""
    for name in ("org/Llama-3.1-70B-tuned", "org/small-3B"):
        model(in_cache(tmp_path / "cache", name), LLAMA_3)
    done = init(tmp_path, "org/Llama-3.1-70B-tuned", "-o", "-")
    assert done.returncode == 0, done.stderr
    assert "Not seen: the files" not in done.stdout
    before, found, _ = done.stdout.partition("model: org/small-3B")
    assert found
    assert "at hand" in " ".join(before.splitlines()[-4:])


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    """Unless --force is given; a folder or prompts that are not there are one message."""
    (tmp_path / "candidates.yaml").write_text("mine", encoding="utf-8")
    done = init(tmp_path, "org/model")
    assert (done.returncode, "--force" in done.stderr) == (2, True)
    assert (tmp_path / "candidates.yaml").read_text(encoding="utf-8") == "mine"
    assert init(tmp_path, "org/model", "--force").returncode == 0
    assert (tmp_path / "candidates.yaml").read_text(encoding="utf-8") != "mine"
    missing = init(tmp_path, "org/model", "--force", "--prompts", "none.jsonl")
    assert (missing.returncode, "there is no file none.jsonl" in missing.stderr) == (2, True)
    assert init(tmp_path, "nothing", "-o", "-").returncode == 2


def test_the_engine_of_another_environment(tmp_path: Path) -> None:
    """Its python is asked for the suffix trees, and stands in the file as the launcher."""
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    write_prompts(tmp_path / "p.jsonl")
    done = init(tmp_path, "org/model", "--python", str(python), "--prompts", "p.jsonl")
    assert done.returncode == 0, done.stderr
    spec = load(tmp_path / "candidates.yaml", environ={}).spec
    assert spec.target.launcher == (str(python), "-m", "vllm.entrypoints.openai.api_server")
    assert init(tmp_path, "org/model", "--python", "/nowhere", "--force").returncode == 2
