"""Adapters that requests name must be served, and are found where they lie."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.config import load
from autotune.errors import Fault

Faults = Callable[..., list[Fault]]


def with_lora(good: str, engine_args: str) -> str:
    """The good file with requests to the adapter `sql`."""
    return good.replace("{max_model_len: 64}", engine_args).replace(
        "max_tokens: 16", "max_tokens: 16\n  lora: sql"
    )


@pytest.mark.parametrize(
    ("engine_args", "message"),
    [
        ("{}", "serves no adapter 'sql' (it serves none): add sql=path"),
        ("{enable_lora: true}", "it serves none"),
        ("{enable_lora: true, lora_modules: [a=/a, b=/b]}", "(there are: a, b)"),
        ("{lora-modules: [sql=/a]}", "without target.engine_args.enable_lora: true"),
        ("{enable_lora: true, lora_modules: [{name: sql, path: /a}]}", "write name=path"),
        ("{enable_lora: true, lora_modules: [3, 'a,b']}", "it serves none"),
    ],
)
def test_an_adapter_that_is_not_served_is_a_fault(
    good: str, faults_of: Faults, engine_args: str, message: str
) -> None:
    """Every request would be answered with 404; the fault has the remedy."""
    (fault,) = faults_of(with_lora(good, engine_args))
    assert (fault.line, fault.path) == (9, "workload.lora")
    assert message in fault.message


@pytest.mark.parametrize(
    "modules",
    [
        "[other=/b, sql=./a]",
        """['{"name": "sql", "path": "/a"}']""",
        "{name: sql, path: /a}",
        "sql=/a",
    ],
)
def test_every_spelling_of_vllm_is_read(good: str, faults_of: Faults, modules: str) -> None:
    """name=path, JSON as a text, one mapping."""
    args = f"{{enable_lora: true, lora_modules: {modules}}}"
    assert faults_of(with_lora(good, args)) == []


def test_the_path_of_an_adapter_is_relative_to_the_file(
    tmp_path: Path, good: str, faults_of: Faults
) -> None:
    """The engine is started elsewhere."""
    text = with_lora(good, "{enable_lora: true, lora_modules: [sql=./a/b, x=/c, y=org/z]}")
    assert faults_of(text) == []
    spec = load(tmp_path / "c.yaml", environ={}).spec
    assert spec.workload.lora == "sql"
    assert spec.target.engine_args["lora_modules"] == [f"sql={tmp_path}/a/b", "x=/c", "y=org/z"]
