"""The prompts file: OpenAI chat messages, one JSON object a line, each in one of two splits.

Rule: a prompt keeps its split when others are added (a hash of its id decides, not its rank); a
key that would be sent to the server is refused, notes of any other name may stand there.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.config.values import shown
from autotune.config.vllm_fields import REFUSED_SAMPLING, REQUEST_FIELDS
from autotune.core.study import JSON, Prompt

SPLITS = ("search", "confirmation")
_SEARCH_SHARE = 0.6
_SHOWN_FAULTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What a prompts file holds and what is wrong with it."""

    search: tuple[Prompt, ...] = ()
    confirmation: tuple[Prompt, ...] = ()
    sha256: str = ""
    faults: tuple[str, ...] = ()
    """Each begins with the file and the line of the prompts file."""


def read_prompts(path: Path, *, seed: int) -> Prompts:
    """Read a prompts file; faults are returned, never raised."""
    try:
        raw = path.read_bytes()
        lines = raw.decode("utf-8-sig").split("\n")
    except FileNotFoundError:
        return Prompts(faults=(f"there is no file {path}",))
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        return Prompts(faults=(f"{path}:{number}: not UTF-8: save the file as UTF-8",))
    except OSError as error:
        return Prompts(faults=(f"{path} cannot be read: {error.strerror}",))
    found = _Found()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.add(line, number, seed)
            except ValueError as error:
                found.faults.append(f"{path}:{number}: {error}")
    return found.prompts(path, hashlib.sha256(raw).hexdigest())


class _Found:
    """The prompts met so far, by split, and the line of each id."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._splits: dict[str, list[Prompt]] = {split: [] for split in SPLITS}
        self._lines: dict[str, int] = {}

    def add(self, line: str, number: int, seed: int) -> None:
        row = _object(line)
        prompt = Prompt(id=_id(row), messages=_messages(row), task=_text(row, "task"))
        if prompt.id in self._lines:
            raise ValueError(
                f"the prompt {prompt.id!r} stands in line {self._lines[prompt.id]} already: "
                "a repeated prompt measures the prefix cache"
            )
        self._lines[prompt.id] = number
        self._splits[_split(row, prompt.id, seed)].append(prompt)

    def prompts(self, path: Path, sha256: str) -> Prompts:
        faults = self.faults[:_SHOWN_FAULTS]
        if len(self.faults) > _SHOWN_FAULTS:
            faults.append(f"{path}: and {len(self.faults) - _SHOWN_FAULTS} more lines at fault")
        if not faults:
            faults = [
                f"{path}: no prompt of the split {split!r}: add some, or leave `split` out"
                for split in SPLITS
                if not self._splits[split]
            ]
        return Prompts(
            search=tuple(self._splits["search"]),
            confirmation=tuple(self._splits["confirmation"]),
            sha256=sha256,
            faults=tuple(faults),
        )


def _object(line: str) -> Mapping[str, JSON]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(row, dict):
        raise ValueError(f'a line is an object with "messages", got {shown(row)}')  # noqa: TRY004
    for key in row:
        if key != "messages" and key in (*REQUEST_FIELDS, *REFUSED_SAMPLING):
            raise ValueError(
                f"{key!r} is not sent per prompt: it stands in workload.sampling, "
                "the same for every request"
            )
    return row


def _messages(row: Mapping[str, JSON]) -> tuple[Mapping[str, JSON], ...]:
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError('"messages" must be a list of at least one {"role": ..., "content": ...}')
    found = [message for message in messages if isinstance(message, dict) and _is_message(message)]
    for message in messages:
        if message not in found:
            raise ValueError(f'a message has "role" and "content", got {shown(message)}')
    return tuple(found)


def _is_message(message: Mapping[str, JSON]) -> bool:
    said = "content" in message or "tool_calls" in message
    return said and isinstance(message.get("role"), str)


def _id(row: Mapping[str, JSON]) -> str:
    given = row.get("id")
    if isinstance(given, str | int) and not isinstance(given, bool) and str(given):
        return str(given)
    if given is not None:
        raise ValueError(f'"id" must be a text, got {shown(given)}')
    text = json.dumps(row.get("messages"), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _text(row: Mapping[str, JSON], key: str) -> str:
    value = row.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f'"{key}" must be a text, got {shown(value)}')  # noqa: TRY004
    return value


def _split(row: Mapping[str, JSON], prompt_id: str, seed: int) -> str:
    given = row.get("split")
    if given is None:
        digest = hashlib.sha256(f"{seed}:{prompt_id}".encode()).digest()
        share = int.from_bytes(digest[:8]) / 2**64
        return "search" if share < _SEARCH_SHARE else "confirmation"
    if given not in SPLITS:
        raise ValueError(f'"split" is search or confirmation, got {shown(given)}')
    return str(given)
