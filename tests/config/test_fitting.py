"""Prompts that leave no room for their replies are found before anything is launched."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from autotune.config import LoadedFile, fit, load
from autotune.config.tokens import (
    Counted,
    Messages,
    NotCountedError,
    ToCount,
    context_length,
    count_tokens,
)
from autotune.core.jsontype import JSON
from autotune.core.study import Target
from autotune.core.workload import Prompt
from autotune.errors import CandidatesFileError
from autotune.tuning.tuner import fingerprint

COUNT = 40
LONG = "word " * 60
DROP = {"max_tokens: 16": "max_tokens: 16\n  too_long: drop"}


def words(messages: Messages) -> int:
    """A token for each word and for each message."""
    return sum(1 + len(str(message["content"]).split()) for message in messages)


def counting(asked: ToCount) -> Counted:
    """A tokenizer of words, of a model with room for 50 of them."""
    return Counted(tokens=tuple(words(c) for c in asked.conversations), context=50)


def study(
    folder: Path,
    good: str,
    changes: Mapping[int, str] | None = None,
    *,
    turns: bool = False,
    edits: Mapping[str, str] = MappingProxyType({}),
) -> LoadedFile:
    """A file with forty prompts of three words, some changed."""
    with (folder / "prompts.jsonl").open("w", encoding="utf-8") as file:
        for i in range(COUNT):
            text = (changes or {}).get(i, f"short question {i}")
            split = ("search", "confirmation")[i % 2]
            row = {"question_id": i, "turns": ["first", text]} if turns else {"prompt": text}
            file.write(json.dumps({"id": str(i), "split": split, **row}) + "\n")
    for old, new in edits.items():
        good = good.replace(old, new)
    (folder / "c.yaml").write_text(good, encoding="utf-8")
    return load(folder / "c.yaml", environ={})


def prompts(loaded: LoadedFile) -> dict[str, Prompt]:
    """All prompts by id."""
    workload = loaded.spec.workload
    return {p.id: p for p in (*workload.search, *workload.confirmation)}


def test_every_prompt_gets_its_tokens(tmp_path: Path, good: str) -> None:
    """As the template renders them, without the reply; the fingerprint stays."""
    loaded = study(tmp_path, good)
    found = fit(loaded, counting)
    assert {p.tokens for p in prompts(found).values()} == {4}
    assert found.notes == ()
    assert fingerprint(found.spec, {}) == fingerprint(loaded.spec, {})


def test_prompts_that_are_too_long_are_refused_with_their_lines(tmp_path: Path, good: str) -> None:
    """Prompt and max_tokens together: 61 + 16 do not go into 64."""
    loaded = study(tmp_path, good, dict.fromkeys(range(7), LONG))
    with pytest.raises(CandidatesFileError) as caught:
        fit(loaded, counting)
    (fault,) = caught.value.faults
    assert (fault.path, fault.line) == ("workload.prompts", 6)
    assert fault.message.startswith("7 of 40 prompts too long for the context of ")
    assert "of 64 tokens, with max_tokens = 16 for each reply: 0 (line 1: 77 tokens), 2 (line" in (
        fault.message
    )
    assert "and 2 more" in fault.message
    assert "workload.too_long: drop" in fault.message


def test_they_are_dropped_where_the_file_says_so(tmp_path: Path, good: str) -> None:
    """With a count; other prompts are another workload."""
    loaded = study(tmp_path, good, {3: LONG}, edits=DROP)
    found = fit(loaded, counting)
    assert set(prompts(found)) == set(prompts(loaded)) - {"3"}
    assert found.notes[0].startswith("dropped: 1 of 40 prompts too long")
    assert fingerprint(found.spec, {}) != fingerprint(loaded.spec, {})


def test_what_is_left_must_fill_the_levels(tmp_path: Path, good: str) -> None:
    """Dropping may leave too few prompts for the concurrency."""
    loaded = study(tmp_path, good, dict.fromkeys(range(36), LONG), edits=DROP)
    with pytest.raises(CandidatesFileError, match=r"without the prompts that are too long: .*2"):
        fit(loaded, counting)


def test_of_a_conversation_all_turns_and_replies_count(tmp_path: Path, good: str) -> None:
    """2 + 1 + 27 + 2 * 16 is one too many for a context of 61; each turn alone would fit."""
    changes = {4: "word " * 26}
    study(tmp_path, good, changes, turns=True)
    fits = study(
        tmp_path, good, changes, turns=True, edits={"max_model_len: 64": "max_model_len: 62"}
    )
    assert prompts(fit(fits, counting))["4"].tokens == 2
    loaded = study(
        tmp_path, good, changes, turns=True, edits={"max_model_len: 64": "max_model_len: 61"}
    )
    with pytest.raises(CandidatesFileError, match=r"1 of 40 .* 4 \(line 5: 62 tokens\)"):
        fit(loaded, counting)


def test_the_models_own_context_counts_without_max_model_len(tmp_path: Path, good: str) -> None:
    """config.json says 50: 4 + 16 go into it, 35 + 16 do not."""
    bare = {"{max_model_len: 64}": "{}"}
    assert fit(study(tmp_path, good, edits=bare), counting).notes == ()
    loaded = study(tmp_path, good, {0: "word " * 34}, edits=bare)
    with pytest.raises(CandidatesFileError, match="the context of 50 tokens"):
        fit(loaded, counting)


def refusing(asked: ToCount) -> Counted:
    """No tokenizer here."""
    raise NotCountedError("org/target has no tokenizer on this machine")


def partly(asked: ToCount) -> Counted:
    """A template that refuses the first prompt, of a model that says no length."""
    return Counted(tokens=(None, *(3 for _ in asked.conversations[1:])), context=None)


@pytest.mark.parametrize(
    ("count", "edits", "told"),
    [
        (refusing, {}, ["not checked whether the prompts fit into the context: org/target has no"]),
        (partly, {}, ["some prompts were not checked for their length"]),
        (
            partly,
            {"{max_model_len: 64}": "{max_model_len: auto}"},
            ["not checked whether the prompts fit into the context: neither", "some prompts"],
        ),
    ],
)
def test_what_was_not_checked_is_told_once(
    tmp_path: Path,
    good: str,
    count: Callable[[ToCount], Counted],
    edits: Mapping[str, str],
    told: list[str],
) -> None:
    """The study goes on; the reason is a note."""
    found = fit(study(tmp_path, good, edits=edits), count)
    assert [note[: len(part)] for note, part in zip(found.notes, told, strict=True)] == told
    assert len(prompts(found)) == COUNT


@pytest.mark.parametrize(
    ("given", "length"),
    [
        (64, 64),
        ("64", 64),
        ("8k", 8000),
        ("8K", 8192),
        ("1.5k", 1500),
        ("auto", None),
        (-1, None),
        (None, None),
        (True, None),
        ([1], None),
    ],
)
def test_the_context_is_read_as_vllm_reads_it(given: int | str | None, length: int | None) -> None:
    """With its units, and none where the engine finds the length by itself."""
    target = Target(model="m", engine_args={"max_model_len": given})
    assert context_length(target) == length


TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}{% if extra %} {{ extra }}{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer of words and a configuration, as models have them."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("model")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))  # noqa: S106
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    config = {"max_position_embeddings": 100, "rope_scaling": {"type": "linear", "factor": 2.0}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


ASKED: Messages = ({"role": "user", "content": "one two three"},)


def test_a_real_tokenizer_counts_what_the_template_renders(model: Path) -> None:
    """Role, three words, the generation prompt; parts of text are joined to one."""
    texts: list[JSON] = [{"type": "text", "text": "one two"}, {"type": "text", "text": "three"}]
    parts: Messages = ({"role": "user", "content": texts},)
    asked = ToCount(
        model=str(model),
        tokenizer=str(model),
        template_kwargs={"extra": "one more"},
        conversations=[ASKED, parts],
    )
    found = count_tokens(asked)
    assert found.tokens == (7, 7)
    assert found.context == 200
    own = ToCount(
        model=str(model),
        tokenizer=str(model),
        chat_template="{{ raise_exception('no') if messages|length > 1 else 'a b' }}",
        conversations=[ASKED, [*ASKED, *ASKED]],
    )
    assert count_tokens(own).tokens == (2, None)


def test_where_no_tokenizer_is_here_the_reason_is_told(tmp_path: Path, model: Path) -> None:
    """Neither a traceback nor the network."""
    empty = ToCount(model=str(tmp_path), tokenizer=str(tmp_path), conversations=[ASKED])
    with pytest.raises(NotCountedError, match="has no tokenizer on this machine"):
        count_tokens(empty)
    hub = ToCount(model="org/none", tokenizer="org/none", conversations=[ASKED])
    with pytest.raises(NotCountedError, match="org/none has no tokenizer on this machine"):
        count_tokens(hub)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(NotCountedError, match="cannot be used: "):
        count_tokens(empty)
