"""vllm.yaml: exactly what a launch was started with, and nothing else."""

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import yaml

from autotune.core.jsontype import JSON
from autotune.core.recommendation import recommend
from autotune.core.study import Candidate, Target
from autotune.exporters.vllm_yaml import PLUGIN, render_engine_args
from tests.builders import GMU, make_spec
from tests.builders_study import make_study_records
from tests.goldens import check_golden

SPEC = make_spec()
EAGLE = SPEC.candidate("eagle")

PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
args = parser.parse_args(["--config", sys.argv[1]])
names = ("model", "max_model_len", "dtype", "gpu_memory_utilization", "speculative_config",
         "enable_prefix_caching", "served_model_name")
print("PARSED " + json.dumps({name: getattr(args, name) for name in names}))
"""


def args_of(engine_args: dict[str, JSON]) -> dict[str, object]:
    """The file for a target with these engine arguments, read back."""
    spec = make_spec(target=Target(model="m", engine_args=engine_args))
    read = yaml.safe_load(render_engine_args(spec, None, 0, GMU))
    assert isinstance(read, dict)
    return read


def test_golden() -> None:
    """The exported file, whole."""
    result = recommend(SPEC, make_study_records())
    check_golden("vllm.yaml", PLUGIN.render(SPEC, result, {}))


def test_the_export_is_byte_for_byte_what_the_winner_was_launched_with() -> None:
    """Nothing that differs between a launch and the export stands in the file."""
    result = recommend(SPEC, make_study_records())
    exported = PLUGIN.render(SPEC, result, {"created": "today", "host": "here"})
    assert exported == render_engine_args(SPEC, EAGLE, 2, GMU)


@pytest.mark.parametrize("scale", [0.785, 0.6])
def test_without_the_verdict_speculate_the_baseline_is_exported(scale: float) -> None:
    """A tie, a doubt or a loss deploys plain decoding."""
    result = recommend(SPEC, make_study_records(scale=scale))
    assert not result.speculates
    assert PLUGIN.render(SPEC, result, {}) == render_engine_args(SPEC, None, 0, GMU)


def test_k_zero_is_plain_decoding() -> None:
    """No speculative-config rather than one that vLLM refuses."""
    assert render_engine_args(SPEC, EAGLE, 0, GMU) == render_engine_args(SPEC, None, 0, GMU)


def test_keys_have_dashes_and_nulls_are_left_out() -> None:
    """vLLM's parser would read a null as the word None."""
    read = args_of({"max_model_len": None, "max-num-seqs": 8, "enable_prefix_caching": False})
    assert read == {
        "model": "m",
        "enable-prefix-caching": False,
        "max-num-seqs": 8,
        "gpu-memory-utilization": GMU,
    }


def test_credentials_and_what_the_study_decides_are_left_out() -> None:
    """A key never lands in a file that is passed around; K and memory have one source."""
    read = args_of({"api_key": "s3cret", "hf-token": "s3cret", "speculative_config": {}})
    assert set(read) == {"model", "gpu-memory-utilization"}


def test_the_order_of_the_users_arguments_does_not_matter() -> None:
    """The same settings are the same bytes."""
    target = Target(model="m", engine_args={"b": 1, "a": 2})
    other = replace(target, engine_args={"a": 2, "b": 1})
    texts = {render_engine_args(make_spec(target=t), EAGLE, 2, GMU) for t in (target, other)}
    assert len(texts) == 1


def test_numpy_numbers_become_plain_ones() -> None:
    """PyYAML would refuse them, or write a tag that the engine refuses."""
    text = render_engine_args(SPEC, EAGLE, np.int64(3), np.float64(0.5))  # type: ignore[arg-type]
    read = yaml.safe_load(text)
    assert read["speculative-config"]["num_speculative_tokens"] == 3
    assert read["gpu-memory-utilization"] == 0.5


def test_what_yaml_cannot_carry_is_refused() -> None:
    """A bug of ours shows before the engine starts."""
    candidate = Candidate(name="x", method="ngram", settings={"bad": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="cannot be written to YAML"):
        render_engine_args(SPEC, candidate, 1, GMU)


@pytest.mark.parametrize("text", ["yes", "1e3", "a: b", "# c", "ü", "two\nlines", "x" * 200])
def test_awkward_strings_survive(text: str) -> None:
    """The engine reads the string that the user wrote."""
    assert args_of({"served_model_name": text})["served-model-name"] == text


@pytest.mark.live
@pytest.mark.timeout(300)
@pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed")
def test_the_installed_vllm_accepts_the_file(tmp_path: Path) -> None:
    """vLLM's own parser reads every key, with the types that it wants."""
    args: dict[str, JSON] = {
        "dtype": "bfloat16",
        "max_model_len": 1024,
        "enable_prefix_caching": False,
        "served_model_name": ["a", "b"],
    }
    spec = make_spec(target=Target(model="/models/m", engine_args=args))
    path = tmp_path / "vllm.yaml"
    path.write_text(render_engine_args(spec, spec.candidate("ngram"), 3, GMU), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    line = next(x for x in done.stdout.splitlines() if x.startswith("PARSED "))
    assert yaml.safe_load(line.removeprefix("PARSED ")) == args | {
        "model": "/models/m",
        "gpu_memory_utilization": GMU,
        "speculative_config": spec.candidate("ngram").speculative_config(3),
    }


def test_a_candidates_own_engine_arguments_come_before_the_targets() -> None:
    """In its launches and in the export; the baseline keeps those of the target."""
    target = Target(model="m", engine_args={"max_num_seqs": 8, "dtype": "half"})
    own = replace(EAGLE, engine_args={"max_num_seqs": 4})
    spec = make_spec(target=target, candidates=(own,))
    with_draft, plain = (
        yaml.safe_load(render_engine_args(spec, candidate, 2, GMU)) for candidate in (own, None)
    )
    assert (with_draft["max-num-seqs"], plain["max-num-seqs"]) == (4, 8)
    assert with_draft["dtype"] == plain["dtype"] == "half"
