"""Text to plain data, with the line of every key: YAML 1.2 scalars, ${VAR} and ~ filled in.

Rule: nothing is guessed. Keys are text and unique, `yes` is a text, `1:30` is a text; a variable
that is not set is a fault at its line, and reading goes on so that all faults are seen at once.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from autotune.config.faults import Place, dotted, plain
from autotune.core.jsontype import JSON
from autotune.errors import Fault

_TAG = "tag:yaml.org,2002:"
_SCALARS = {f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "null")}
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_VARIABLE = re.compile(r"\$(?P<escaped>\$)?\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a file holds, where each key stands, and what was wrong with the reading."""

    data: JSON
    lines: Mapping[Place, int]
    faults: tuple[Fault, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2: no dates, no sexagesimals, true and false only."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own name for it


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]*\.[0-9]+|[0-9]+\.)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?[0-9]+[eE][-+]?[0-9]+", "-+0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_tag}", re.compile(rf"(?:{_pattern})$"), list(_first))


def read_yaml(text: str, environ: Mapping[str, str]) -> Document:
    """Parse a YAML mapping; faults are returned, never raised."""
    reader = _Reader(text, environ)
    data = reader.read()
    return Document(data=data, lines=reader.lines, faults=tuple(reader.faults))


class _Reader:
    """One reading: collects lines and faults while it walks the nodes."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self.lines: dict[Place, int] = {}
        self.faults: list[Fault] = []
        self._text = text
        self._environ = environ
        self._checked: set[int] = set()
        self._above: list[int] = []

    def read(self) -> JSON:
        try:
            self._loader = _Loader(self._text)
            node = self._loader.get_single_node()
            if node is None:
                self._fault((), None, "the file is empty; `autotune init MODEL` writes a first one")
                return None
            return self._value(node, ())
        except yaml.reader.ReaderError as error:
            line = self._text.count("\n", 0, error.position) + 1
            self._fault(
                (), line, f"not YAML: the character {chr(error.character)!r} may not stand here"
            )
        except yaml.MarkedYAMLError as error:
            self._fault((), _syntax_line(error), _syntax_message(error))
        return None

    def _fault(self, place: Place, line: int | None, message: str) -> None:
        self.faults.append(Fault(path=dotted(place), line=line, message=message))

    def _value(self, node: yaml.Node, place: Place) -> JSON:
        if id(node) in self._above:
            self._fault(place, _line(node), "an alias may not contain itself")
            return None
        self.lines.setdefault(place, _line(node))
        self.lines.setdefault(plain(place), _line(node))
        self._above.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
                return self._mapping(node, place)
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
                return [self._value(item, (*place, i)) for i, item in enumerate(node.value)]
            if isinstance(node, yaml.ScalarNode):
                return self._scalar(node, place)
            self._fault(place, _line(node), f"the tag {node.tag} has no place here: remove it")
            return None
        finally:
            self._above.pop()

    def _mapping(self, node: yaml.MappingNode, place: Place) -> JSON:
        if id(node) not in self._checked:
            self._checked.add(id(node))
            self._check_keys(node, place)
            self._loader.flatten_mapping(node)
        found: dict[str, JSON] = {}
        for key, value in node.value:
            name = str(key.value)
            self.lines[(*place, name)] = _line(key)
            self.lines.setdefault(plain((*place, name)), _line(key))
            found[name] = self._value(value, (*place, name))
        return found

    def _check_keys(self, node: yaml.MappingNode, place: Place) -> None:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag == f"{_TAG}merge":
                continue
            if key.tag != f"{_TAG}str":
                self._fault(place, _line(key), f"a key is a text, got {key.value!r}: quote it")
                continue
            name = key.value.replace("-", "_")
            if name in seen:
                message = f"the key {key.value!r} stands here twice, first in line {seen[name]}"
                self._fault((*place, key.value), _line(key), message)
            seen.setdefault(name, _line(key))

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> JSON:
        filled = self._fill(node.value, place, _line(node))
        if filled != node.value:
            implicit = (node.style is None, True)
            tag = self._loader.resolve(  # type: ignore[no-untyped-call]
                yaml.ScalarNode, filled, implicit
            )
            node = yaml.ScalarNode(tag, filled, node.start_mark, node.end_mark)
        try:
            value = self._loader.construct_object(node) if node.tag in _SCALARS else math.nan
        except (ValueError, KeyError):  # `!!int x` and its like
            value = math.nan
        if isinstance(value, str) and _NO_TEXT.search(value):
            self._fault(place, _line(node), "a text may hold neither NUL nor half a character")
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self._fault(place, _line(node), f"{node.value!r} is neither a text nor a finite number")
            return None
        return _at_home(value) if isinstance(value, str) else value

    def _fill(self, text: str, place: Place, line: int) -> str:
        def value(found: re.Match[str]) -> str:
            name, default = found["name"], found["default"]
            if found["escaped"]:
                return found[0][1:]
            if self._environ.get(name):
                return self._environ[name]
            if default is not None:
                return default
            message = f"the variable {name} is not set: export it, or write ${{{name}:-DEFAULT}}"
            self._fault(place, line, message)
            return found[0]

        return _VARIABLE.sub(value, text)


def _at_home(text: str) -> str:
    return str(Path(text).expanduser()) if text == "~" or text.startswith("~/") else text


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _syntax_line(error: yaml.MarkedYAMLError) -> int | None:
    unfinished = re.search("stream end|end of stream", error.problem or "")
    mark = (error.context_mark if unfinished else None) or error.problem_mark
    return mark.line + 1 if mark else None


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "cannot be parsed"
    if "'\\t'" in problem:
        return "not YAML: a tab; YAML indents with spaces"
    where = f" ({error.context})" if error.context else ""
    return f"not YAML: {problem}{where}"
