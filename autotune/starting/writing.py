"""The text of a first candidates file.

Rule: what a value is good for stands beside it; every text is written so that any YAML reader, and
the variables of ours, give it back as it is.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from autotune.core.jsontype import JSON
from autotune.starting.proposals import Proposal

TEMPLATES = Path(__file__).parent / "templates"
_PLAIN = re.compile(r"[A-Za-z./][\w./+-]*")
_NOT_PLAIN = frozenset(
    {"true", "false", "null", "yes", "no", "on", "off", "y", "n", ".nan", ".inf"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the file is made of."""

    study: str
    model: str
    launcher: Sequence[str]
    context: int | None
    """The longest context that the checkpoint allows, in tokens."""
    sampling: Mapping[str, JSON]
    sampling_from: str
    prompts: str
    placeholder: bool
    """Whether `prompts` only says where a file is to be named."""
    gpu_memory_utilization: float
    on_cpu: bool
    proposals: Sequence[Proposal]
    notes: Sequence[str]
    """What could not be seen."""


def render(start: Start) -> str:
    """The file, whole."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(enabled_extensions=("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["yaml"] = scalar
    return environment.get_template("candidates.yaml.j2").render(start=start)


def scalar(value: JSON) -> str:
    """A value as YAML on one line; `${` is doubled, since the file's variables begin so."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN:
        text = value
    return text.replace("${", "$${")
