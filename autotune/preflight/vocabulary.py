"""The tokens of a tokenizer's files, and how two vocabularies compare.

Rule: the files are parsed, no tokenizer is made of them; what is in none of the known forms is not
read, and nothing is said about it.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.core.jsontype import JSON
from autotune.preflight.checkpoint import Vocabulary

SPACES = ("\u0120", "\u2581")
"""How BPE and SentencePiece write a leading space (vllm/v1/spec_decode/vocab_mapping.py)."""


def read_vocabulary(folder: Path) -> Vocabulary | None:
    """The vocabulary of a local folder; None where it is in no form known here."""
    for name, parse in (("tokenizer.json", _whole), ("vocab.json", _plain)):
        try:
            raw = (folder / name).read_bytes()
        except OSError:
            continue
        beside = _json(folder / "added_tokens.json") if name == "vocab.json" else {}
        found = parse(raw)
        return _with(found, _ids(beside)) if found else None
    return None


@functools.lru_cache(maxsize=8)  # drafts of one family bring the same bytes along
def _whole(raw: bytes) -> Vocabulary | None:
    """A tokenizer.json: the model's tokens and the added ones."""
    told = _loaded(raw)
    model = told.get("model")
    if not isinstance(model, dict):
        return None
    tokens = dict(_model_tokens(model.get("vocab")))
    added: dict[str, int] = {}
    special: dict[str, int] = {}
    rows = told.get("added_tokens")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and isinstance(number := row.get("id"), int):
            added[str(row.get("content"))] = number
            special |= {str(row.get("content")): number} if row.get("special") else {}
    return Vocabulary(tokens=tokens | added, special=special) if tokens else None


@functools.lru_cache(maxsize=8)
def _plain(raw: bytes) -> Vocabulary | None:
    """A vocab.json: token to id."""
    tokens = _ids(_loaded(raw))
    return Vocabulary(tokens=tokens, special={}) if tokens else None


def _with(found: Vocabulary, added: Mapping[str, int]) -> Vocabulary:
    if not added:
        return found
    return Vocabulary(tokens={**found.tokens, **added}, special=found.special)


def _model_tokens(vocab: JSON) -> Iterator[tuple[str, int]]:
    """BPE and WordPiece map tokens to ids; Unigram has a list of [token, score]."""
    if isinstance(vocab, dict):
        yield from _ids(vocab).items()
    for number, row in enumerate(vocab if isinstance(vocab, list) else []):
        if isinstance(row, list) and row:
            yield str(row[0]), number


def _ids(found: Mapping[str, JSON]) -> dict[str, int]:
    return {token: number for token, number in found.items() if isinstance(number, int)}


def _loaded(raw: bytes) -> Mapping[str, JSON]:
    try:
        found: JSON = json.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _json(file: Path) -> Mapping[str, JSON]:
    try:
        return _loaded(file.read_bytes())
    except OSError:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two vocabularies side by side."""

    common: int
    """Ids that mean the same token in both."""
    apart: int
    """Ids that both have and that mean different tokens."""
    only_target: int
    only_draft: int
    shared: int
    """Tokens that both have, whatever their ids, spaces written alike."""
    special: tuple[str, ...]
    """Special tokens of either that the other has not, or has under another id."""

    @property
    def same(self) -> bool:
        """Whether every id means the same token."""
        return not (self.apart or self.only_target or self.only_draft)

    @property
    def agreement(self) -> float:
        """Share of the ids of both that mean the same token, a fraction."""
        both = self.common + self.apart
        return self.common / both if both else 0.0


def compare(target: Vocabulary, draft: Vocabulary) -> Compared:
    """What the ids of one mean in the other."""
    if target.tokens == draft.tokens:
        size = len(target.tokens)
        return Compared(common=size, apart=0, only_target=0, only_draft=0, shared=size, special=())
    mine = {number: token for token, number in target.tokens.items()}
    theirs = {number: token for token, number in draft.tokens.items()}
    both = mine.keys() & theirs.keys()
    common = sum(mine[number] == theirs[number] for number in both)
    names = {**target.special, **draft.special}
    return Compared(
        common=common,
        apart=len(both) - common,
        only_target=len(mine.keys() - both),
        only_draft=len(theirs.keys() - both),
        shared=len(_normal(target) & _normal(draft)),
        special=tuple(name for name in names if target.tokens.get(name) != draft.tokens.get(name)),
    )


def _normal(vocabulary: Vocabulary) -> set[str]:
    return {
        next((" " + token[len(s) :] for s in SPACES if token.startswith(s)), token)
        for token in vocabulary.tokens
    }
