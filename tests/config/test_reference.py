"""The reference under docs/ is what the schema says today, and covers what vLLM knows."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.config import json_schema
from autotune.config.reference import files
from autotune.config.vllm_fields import REFUSED_SETTINGS, SETTINGS

ROOT = Path(__file__).parents[2]
OWN = {"method", "model", "num_speculative_tokens"}


@pytest.mark.parametrize("name", ["candidates.schema.json", "candidates.md"])
def test_the_reference_is_up_to_date(name: str) -> None:
    """Renew it with `python -m autotune.config.reference`."""
    wanted = {path.name: (path, text) for path, text in files().items()}
    path, text = wanted[name]
    assert path.read_text(encoding="utf-8") == text


def test_every_key_says_what_it_means() -> None:
    """A key without a description has no line in the reference."""
    schema = json_schema()
    sections: list[dict[str, Any]] = [schema, *schema["$defs"].values()]
    for section in sections:
        for name, key in section.get("properties", {}).items():
            assert key.get("description"), name


def test_the_demo_file_knows_only_keys_of_the_schema() -> None:
    """Editors show the demo without a complaint at its top-level keys."""
    data = yaml.safe_load((ROOT / "candidates.yaml").read_text(encoding="utf-8"))
    assert set(data) <= set(json_schema()["properties"])


def test_the_tables_name_every_field_of_the_installed_vllm() -> None:
    """A field that vLLM adds is either a candidate's to set or refused with a reason."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("vLLM is not installed here")
    source = Path(spec.origin).parent / "config/speculative.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    config = next(
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "SpeculativeConfig"
    )
    fields = {
        node.target.id
        for node in config.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert fields - OWN <= set(SETTINGS) | set(REFUSED_SETTINGS)
    assert set(SETTINGS) <= fields


def test_the_import_is_light() -> None:
    """Reading a file needs neither torch nor vLLM nor MLflow."""
    heavy = "{'torch', 'vllm', 'mlflow', 'optuna', 'matplotlib', 'pandas', 'transformers'}"
    code = f"import sys, autotune.config; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"
