"""Tokens are counted alike with transformers and without it, which is what saves its import."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from autotune.config.tokens import CHILD, Messages, ToCount, count_tokens
from autotune.core.jsontype import JSON

TEMPLATES = {
    "special": "{{ bos_token }} {{ messages[0]['content'] }} {{ eos_token is defined }}",
    "tools": "{{ tools | tojson(indent=2) }} {% if documents is defined %}documents{% endif %}",
    "loop": "{% for m in messages %}\n {{ m.content }}{% break %}{% endfor %}",
    "date": "{{ strftime_now('%Y %d') }}",
    "refusal": "{{ raise_exception('no') }}",
}
TALK: Messages = ({"role": "user", "content": "one two <b>three</b>"},)
DEMO = Path(__file__).parents[2] / "studies" / "smollm2-135m"
TARGET = DEMO / "models" / "target"


def asked(model: Path, *talks: Messages, template: str | None = None) -> ToCount:
    """What is to be counted, with a tool."""
    tools: JSON = [{"type": "function", "function": {"name": "f", "description": "<é>"}}]
    return ToCount(
        model=str(model),
        tokenizer=str(model),
        chat_template=template,
        tools=tools,
        conversations=list(talks),
    )


def of_transformers(model: Path, folder: Path) -> Path:
    """The same model with a setting that only transformers understands."""
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(settings | {"split_special_tokens": False}), encoding="utf-8")
    return folder


def imports_transformers(what: ToCount) -> bool:
    """Whether counting has to import it."""
    argv = [sys.executable, "-X", "importtime", *CHILD]
    text = json.dumps(asdict(what))
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    return "| transformers" in done.stderr


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model with a tokenizer of words, for both ways."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("pair")
    model = folder / "plain"
    model.mkdir()
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))  # noqa: S106
    words.add_special_tokens(["<s>"])
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.enable_truncation(2)
    words.save(str(model / "tokenizer.json"))
    (model / "config.json").write_text("{}", encoding="utf-8")
    start = {"__type": "AddedToken", "content": "<s>", "special": True}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": start}
    (model / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return model, of_transformers(model, folder / "transformers")


@pytest.mark.parametrize("name", TEMPLATES)
def test_both_count_the_same(pair: tuple[Path, Path], name: str) -> None:
    """Whatever a template does, or refuses."""
    plain, other = (count_tokens(asked(m, TALK, template=TEMPLATES[name])) for m in pair)
    assert plain == other
    assert (plain.tokens == (None,)) == (name == "refusal")


def test_only_one_of_them_needs_transformers(pair: tuple[Path, Path]) -> None:
    """A setting, or a tag, that is not known is left to it."""
    plain, other = pair
    assert not imports_transformers(asked(plain, TALK, template=TEMPLATES["special"]))
    assert imports_transformers(asked(other, TALK, template=TEMPLATES["special"]))
    assert imports_transformers(asked(plain, TALK, template="{% generation %}a{% endgeneration %}"))


@pytest.mark.skipif(not TARGET.exists(), reason="the demo's models are not built: make models")
def test_the_demo_is_counted_alike(tmp_path: Path) -> None:
    """Its target and all of its prompts."""
    with (DEMO / "prompts.jsonl").open(encoding="utf-8") as lines:
        talks = [json.loads(line)["messages"] for line in lines]
    plain, other = TARGET, of_transformers(TARGET, tmp_path / "transformers")
    assert not imports_transformers(asked(plain, TALK))
    counts = count_tokens(asked(plain, *talks))
    assert counts == count_tokens(asked(other, *talks))
    assert min(number or 0 for number in counts.tokens) > 0
