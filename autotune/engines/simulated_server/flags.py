"""vLLM's flags: the ones that matter here, the ones that are accepted, and none else.

Rule: dashes and underscores are one, `--config FILE` is read first and flags win over it, nested
YAML becomes JSON, and whatever is not known ends the program with exit code 2, as argparse does.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.engines.simulated_server.vllm_flags import LISTS, SWITCHES, VALUES


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A launch, as its flags say."""

    model: str
    host: str | None
    port: int
    served_model_names: tuple[str, ...]
    gpu_memory_utilization: float
    max_model_len: int
    max_num_seqs: int
    speculative_config: dict[str, Any] | None
    scheduler_cls: str | None
    prefix_caching: bool
    given: dict[str, Any]
    """Every flag that was given, under vLLM's name of it, for the log."""

    @property
    def served_model_name(self) -> str:
        """The name that answers and counters carry: the first."""
        return self.served_model_names[0]


def parse_options(argv: Sequence[str]) -> Options:
    """Read the flags, or exit with code 2."""
    words = [_dashed(word) for word in argv]
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", type=Path)
    known, rest = first.parse_known_args(words)
    parser = _parser()
    from_file = list(_words(known.config, parser)) if known.config else []
    given = vars(parser.parse_args([*from_file, *rest]))
    if "model" not in given:
        parser.error("the following arguments are required: --model")
    return Options(
        model=given["model"],
        host=given.get("host"),
        port=given.get("port", 8000),
        served_model_names=(
            *given.get("served_model_name", [given["model"]]),
            *(module.partition("=")[0] for module in given.get("lora_modules", [])),
        ),
        gpu_memory_utilization=given.get("gpu_memory_utilization", 0.9),
        max_model_len=given.get("max_model_len", 4096),
        max_num_seqs=given.get("max_num_seqs", 256),
        speculative_config=given.get("speculative_config"),
        scheduler_cls=given.get("scheduler_cls"),
        prefix_caching=given.get("enable_prefix_caching", True),
        given=given,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="api_server.py",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="A simulated vLLM OpenAI-compatible server.",
    )
    parser.add_argument("--model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--speculative-config", type=_json_object)
    parser.add_argument("--scheduler-cls")
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction)
    for name in VALUES:
        parser.add_argument(f"--{name}")
    for name in LISTS:
        parser.add_argument(f"--{name}", nargs="+")
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    return parser


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        message = f"Value {text} cannot be converted to <function loads>."
        raise argparse.ArgumentTypeError(message)
    return value


def _dashed(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _words(path: Path, parser: argparse.ArgumentParser) -> Iterator[str]:
    """The flags that a --config file stands for."""
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as error:
        parser.error(f"Config file {path}: {error.strerror}")
    for key, value in (values or {}).items():
        flag = _dashed(f"--{key}")
        if value is None:
            continue
        if isinstance(value, bool):
            yield flag if value else flag.replace("--", "--no-", 1)
        elif isinstance(value, list):
            yield from (flag, *map(str, value))
        else:
            yield from (flag, json.dumps(value) if isinstance(value, dict) else str(value))
