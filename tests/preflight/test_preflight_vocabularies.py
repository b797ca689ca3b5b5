"""Do the ids of draft and target mean the same tokens, and what follows if they do not."""

import json
from pathlib import Path

import pytest

from autotune.core.jsontype import JSON
from autotune.preflight import Severity
from autotune.preflight.checkpoint import Vocabulary
from autotune.preflight.vocabulary import compare, read_vocabulary
from tests.preflight.folders import candidate, facts, model, only, said, vocabulary

SHIFTED = Vocabulary(tokens={f"t{n}": (n + 1) % 300 for n in range(300)}, special={})


def test_another_vocab_size_refuses_a_draft_model_with_both_numbers() -> None:
    """vLLM would refuse the pair; that it is padding alone is told, and what to do then."""
    target = model(vocab_size=152064, vocabulary=vocabulary(151665))
    draft = model(vocab_size=151936, vocabulary=vocabulary(151665))
    finding = only(facts(candidate("draft_model"), target=target, draft=draft), "vocabulary_sizes")
    assert finding.severity is Severity.REJECT_CANDIDATE
    assert "151936 in the draft and 152064 in the target" in finding.evidence
    assert "the same 151665 tokens, so only the padding differs" in finding.evidence
    assert "pad its embedding" in finding.remedy


def test_another_tokenizer_behind_it_is_told_apart_from_padding() -> None:
    """The remedy is another draft, or mapped vocabularies."""
    target = model(vocab_size=400, vocabulary=vocabulary(300))
    draft = model(vocab_size=320, vocabulary=SHIFTED)
    finding = only(facts(candidate("draft_model"), target=target, draft=draft), "vocabulary_sizes")
    assert "300 of the ids that both tokenizers have are other tokens" in finding.evidence
    assert "use_heterogeneous_vocab" in finding.remedy


def test_an_unread_tokenizer_leaves_the_two_numbers() -> None:
    """The sizes alone are reason enough; nothing is said of tokens."""
    found = facts(candidate("draft_model"), draft=model(vocab_size=321))
    assert only(found, "vocabulary_sizes").evidence.endswith("320 in the target")


@pytest.mark.parametrize("method", ["eagle", "eagle3", "dflash", "medusa"])
def test_heads_may_draft_from_a_smaller_vocabulary(method: str) -> None:
    """EAGLE-3 heads carry a draft_vocab_size of their own."""
    found = facts(candidate(method), draft=model(vocab_size=32000, draft_vocab_size=32000))
    assert said(found, "vocabulary_sizes") == []


def test_equal_sizes_with_other_tokens_are_refused() -> None:
    """vLLM serves such a pair, and accepts nothing."""
    found = facts(
        candidate("draft_model"),
        target=model(vocabulary=vocabulary(300)),
        draft=model(vocabulary=SHIFTED),
    )
    finding = only(found, "tokenizers")
    assert finding.severity is Severity.REJECT_CANDIDATE
    assert finding.evidence.startswith("300 of 300 ids mean another token")


def test_a_few_other_tokens_are_a_warning() -> None:
    """Drafts of those are lost, the others are worth it."""
    other = vocabulary(300)
    other = Vocabulary(tokens={**other.tokens, "t7": 8, "t8": 7}, special={})
    found = facts(
        candidate("draft_model"),
        target=model(vocabulary=vocabulary(300)),
        draft=model(vocabulary=other),
    )
    finding = only(found, "tokenizers")
    assert finding.severity is Severity.WARN
    assert finding.evidence.startswith("2 of 300 ids")


def test_special_tokens_that_differ_are_named() -> None:
    """The end of a turn in one, not in the other."""
    found = facts(
        candidate("draft_model"),
        target=model(vocabulary=vocabulary(300, special={"<|im_end|>": 300, "<s>": 301})),
        draft=model(vocabulary=vocabulary(300, special={"<s>": 301})),
    )
    finding = only(found, "special_tokens")
    assert finding.severity is Severity.WARN
    assert "(<|im_end|>)" in finding.evidence
    assert said(found, "tokenizers") == []


def test_mapped_vocabularies_are_not_compared_by_size() -> None:
    """They are told to need the older model runner; too little in common is refused."""
    asked = candidate("draft_model", use_heterogeneous_vocab=True)
    target = model(vocab_size=400, vocabulary=vocabulary(300))
    enough = facts(asked, target=target, draft=model(vocabulary=vocabulary(120)))
    assert said(enough, "vocabulary_sizes") == []
    finding = only(enough, "mapped_vocabularies")
    assert finding.severity is Severity.WARN
    assert "V1 model runner" in finding.evidence
    few = facts(asked, target=target, draft=model(vocabulary=vocabulary(99)))
    worst = said(few, "mapped_vocabularies")[0]
    assert worst.severity is Severity.REJECT_CANDIDATE
    assert worst.evidence == "the vocabularies have 99 tokens in common"


def test_mapped_vocabularies_and_a_forced_v2_runner_exclude_each_other() -> None:
    """The engine would end at its start."""
    asked = candidate("draft_model", use_heterogeneous_vocab=True)
    found = facts(asked, env={"VLLM_USE_V2_MODEL_RUNNER": "1"})
    assert only(found, "mapped_vocabularies").severity is Severity.REJECT_CANDIDATE


def test_spaces_are_written_alike_before_tokens_are_counted() -> None:
    """BPE and SentencePiece have signs of their own for a leading space."""
    bpe = Vocabulary(tokens={"\u0120the": 0, "a": 1}, special={})
    piece = Vocabulary(tokens={"\u2581the": 5, "b": 6}, special={})
    assert compare(bpe, piece).shared == 1


@pytest.mark.parametrize(
    ("told", "tokens"),
    [
        ({"model": {"vocab": {"a": 0, "b": 1}}}, {"a": 0, "b": 1}),
        ({"model": {"vocab": [["a", -1.0], ["b", -2.0]]}}, {"a": 0, "b": 1}),
        (
            {
                "model": {"vocab": {"a": 0}},
                "added_tokens": [{"id": 1, "content": "<s>", "special": True}],
            },
            {"a": 0, "<s>": 1},
        ),
    ],
)
def test_every_kind_of_tokenizer_file_is_read(
    tmp_path: Path, told: JSON, tokens: dict[str, int]
) -> None:
    """BPE, Unigram, and the added tokens."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(told))
    found = read_vocabulary(tmp_path)
    assert found is not None
    assert dict(found.tokens) == tokens
    assert found.size == 2
    assert set(found.special) == tokens.keys() & {"<s>"}


def test_the_older_pair_of_files_is_read_too(tmp_path: Path) -> None:
    """vocab.json with added_tokens.json; what is no JSON is not read at all."""
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "added_tokens.json").write_text('{"<s>": 1}')
    found = read_vocabulary(tmp_path)
    assert found is not None
    assert dict(found.tokens) == {"a": 0, "<s>": 1}
    (tmp_path / "vocab.json").write_text("{")
    assert read_vocabulary(tmp_path) is None
    assert read_vocabulary(tmp_path / "nowhere") is None
