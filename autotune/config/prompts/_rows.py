"""The rows of a file with the lines that they stand in: JSON lines, a JSON array, plain lines.

Rule: nothing is raised; a row that cannot be read is one with a fault, and the next one is tried.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.core.jsontype import JSON

_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a file or of a data set."""

    line: int
    value: JSON = None
    fault: str = ""


def text_rows(text: str) -> Iterator[Row]:
    """A text for each line that is not empty."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield Row(line=number, value=line.strip())


def json_rows(text: str) -> Iterator[Row]:
    """The elements of an array, or the values of JSON lines."""
    return _elements(text) if text.lstrip().startswith("[") else _lines(text)


def _lines(text: str) -> Iterator[Row]:
    for row in text_rows(text):
        try:
            value = json.loads(str(row.value))
        except json.JSONDecodeError as error:
            yield Row(line=row.line, fault=f"not JSON: {error.msg} at column {error.colno}")
        except (ValueError, RecursionError) as error:  # a number or a nesting beyond all measure
            yield Row(line=row.line, fault=f"not JSON: {error}")
        else:
            yield Row(line=row.line, value=value)


def _elements(text: str) -> Iterator[Row]:
    """One by one, so that each has its line; what follows a broken element is not looked at."""
    decoder, line, counted = json.JSONDecoder(), 1, 0
    at = _skip(text, text.index("[") + 1)
    while not text.startswith("]", at):
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            fault = f"not JSON: {error.msg} at column {error.colno}"
            yield Row(line=error.lineno, fault=fault)
            return
        except (ValueError, RecursionError) as error:
            yield Row(line=line, fault=f"not JSON: {error}")
            return
        yield Row(line=line, value=value)
        at = _skip(text, at)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith("]", at):
            line = text.count("\n", 0, at) + 1
            yield Row(line=line, fault="not JSON: the array lacks a comma or its end here")
            return
    rest = _skip(text, at + 1)
    if rest < len(text):
        line = text.count("\n", 0, rest) + 1
        yield Row(line=line, fault="not JSON: something stands after the end of the array")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
