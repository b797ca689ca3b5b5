"""How many tokens prompts have, by the target's own tokenizer and chat template.

Rule: the counting is done by a child, without the network and without code of the model's: a
tokenizer brings torch along, and the process that measures must stay small. What cannot be counted
is told with its reason, never guessed.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from autotune.core.jsontype import JSON
from autotune.core.study import Target

TIMEOUT_S = 600.0
CHILD = ("-P", str(Path(__file__).with_name("_count_tokens.py")))
"""As a file, so that the child reads neither this package nor pydantic."""
_ROOT = Path(__file__).parents[2]
_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")

Messages = Sequence[Mapping[str, JSON]]


class NotCountedError(Exception):
    """The tokens cannot be counted here; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCount:
    """Conversations, and what renders them."""

    model: str
    """Folder or hub id of the target, for its config.json."""
    tokenizer: str
    revision: str | None = None
    chat_template: str | None = None
    """The template itself; None: the tokenizer's own."""
    template_kwargs: Mapping[str, JSON] = field(default_factory=dict)
    tools: JSON = None
    conversations: Sequence[Messages]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The tokens of each conversation, and how long the context of the model is."""

    tokens: tuple[int | None, ...]
    """None where the template refuses the messages."""
    context: int | None
    """From the model's config.json; None when it does not say."""


Count = Callable[[ToCount], Counted]
"""Raises NotCountedError."""


def count_tokens(asked: ToCount) -> Counted:
    """Count in a child process; raises NotCountedError when that is not possible here."""
    if not _is_here(asked.tokenizer):
        raise NotCountedError(f"{asked.tokenizer} has no tokenizer on this machine")
    if importlib.util.find_spec("transformers") is None:
        raise NotCountedError("the package `transformers` is not installed beside autotune")
    try:
        done = subprocess.run(
            [sys.executable, *CHILD],
            input=json.dumps(asdict(asked)),
            env=os.environ | _ENV | {"PYTHONPATH": _python_path()},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotCountedError(f"counting took more than {TIMEOUT_S:.0f} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotCountedError(f"the tokenizer of {asked.tokenizer} cannot be used: {last[:200]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return Counted(tokens=tuple(told["tokens"]), context=told["context"])


_ENV = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def _python_path() -> str:
    """Where the child finds this very autotune, installed or not."""
    return os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))


def _is_here(model: str) -> bool:
    """Whether a tokenizer lies in the folder, or the hub's cache knows the id."""
    folder = Path(model)
    if folder.is_dir():
        return any((folder / name).exists() for name in _FILES)
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return (cache / f"models--{model.replace('/', '--')}").is_dir()


def context_length(target: Target) -> int | None:
    """`max_model_len` of the engine's arguments; None if it leaves that to the model.

    vLLM also reads 8k (8000) and 8K (8192), see human_readable_int in utils/argparse_utils.py.
    """
    found = re.fullmatch(
        r"(\d+(?:\.\d+)?)([kmgKMG]?)", str(target.engine_args.get("max_model_len"))
    )
    return int(float(found[1]) * _UNITS[found[2]]) or None if found else None


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def template_of(literal: JSON, given: JSON) -> str | None:
    """The chat template of the requests, else of the engine: a file, or the template itself.

    Raises NotCountedError when it stands in a file that is not here.
    """
    if isinstance(literal, str) or not isinstance(given, str):
        return literal if isinstance(literal, str) else None
    if any(sign in given for sign in "{}\n"):
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotCountedError(f"the chat template {given} cannot be read here") from error
