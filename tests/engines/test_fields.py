"""The fields of SpeculativeConfig, read from the source of whatever vLLM is installed."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from autotune.config.vllm_fields import REFUSED_SETTINGS, SETTINGS
from autotune.engines._fields import fields_of, speculative_fields
from autotune.ports import Engine, find

SOURCE = '''
class Other:
    x: int = 1

@config
class SpeculativeConfig:
    """Speculation."""
    method: SpeculativeMethod | None = None
    """The method."""
    num_speculative_tokens: int = Field(default=None, gt=0)
    depth: int = 24
    name: str
    _private: int = 1
    CONSTANT = 3

    def __post_init__(self) -> None:
        local: int = 7
'''


def installation(folder: Path, place: str) -> Path:
    """A vLLM of which there is nothing but the source of one class."""
    file = folder / "vllm" / place
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE, encoding="utf-8")
    (folder / "vllm" / "__init__.py").write_text("raise ImportError", encoding="utf-8")
    return folder


def test_annotated_fields_with_their_plain_defaults() -> None:
    """Methods, private names and other classes are no fields."""
    assert fields_of(SOURCE) == {
        "method": None,
        "num_speculative_tokens": None,
        "depth": 24,
        "name": None,
    }
    assert fields_of("x = 1") == {}


@pytest.mark.parametrize("place", ["config/speculative.py", "config.py"])
def test_another_environment_is_asked_without_importing_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The launcher's Python finds its own vLLM, wherever that version keeps the class."""
    monkeypatch.setenv("PYTHONPATH", str(installation(tmp_path, place)), prepend=os.pathsep)
    engine: Engine = find("engines", "vllm")
    assert engine.speculative_fields((sys.executable,))["depth"] == 24


def test_who_cannot_be_asked_gives_no_answer(tmp_path: Path) -> None:
    """A wrapper, a Python that is not there, the simulated engine."""
    engine: Engine = find("engines", "vllm")
    for launcher in (("docker", "run"), (str(tmp_path / "python"),)):
        assert engine.speculative_fields(launcher) == {}
    simulated: Engine = find("engines", "simulated")
    assert simulated.speculative_fields(()) == {}


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_the_table_has_every_field_of_the_installed_version() -> None:
    """A field that is neither to be set nor refused, or that has another default, is news."""
    installed = speculative_fields()
    known = {*SETTINGS, *REFUSED_SETTINGS, "method", "model", "num_speculative_tokens"}
    assert set(installed) <= known
    assert set(SETTINGS) <= set(installed)
    assert {name: installed[name] for name in SETTINGS} == {
        name: setting.default for name, setting in SETTINGS.items()
    }
