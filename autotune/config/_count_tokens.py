"""The child that counts tokens: a ToCount as JSON on stdin, a Counted as JSON on stdout.

Rule: nothing is downloaded, no code that a model brings is run; a conversation that the template
refuses has no count, anything else that goes wrong ends the child with its message. transformers,
whose import takes more than a second, is asked wherever it may make another tokenizer of the files
than they say; where not, tokenizer.json and the template are used as they stand.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from autotune.core.context import context_of

Asked = Mapping[str, Any]
AS_IT_STANDS = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})
"""Classes that take tokenizer.json as it is; those of a model may build it anew."""
NAMED = frozenset(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""Special tokens, which a template may name."""
OTHER_KEYS = frozenset(
    {
        *("added_tokens_decoder", "backend", "chat_template", "clean_up_tokenization_spaces"),
        *("is_local", "local_files_only", "model_input_names", "model_max_length"),
        *("padding_side", "tokenizer_class", "truncation_side"),
    }
)
"""What else may stand in tokenizer_config.json without changing a token."""


def main() -> None:
    """Read, count, write."""
    asked = json.load(sys.stdin)
    plain = _plain(Path(asked["tokenizer"]), asked["chat_template"])
    count = plain.count if plain else _of_transformers(asked)
    tokens = [_count(count, messages, asked) for messages in asked["conversations"]]
    print(json.dumps({"tokens": tokens, "context": _context(asked)}))  # noqa: T201


def _count(count: Callable[..., int], messages: list[dict[str, Any]], asked: Asked) -> int | None:
    kwargs = {"add_generation_prompt": True, **asked["template_kwargs"], "tools": asked["tools"]}
    try:
        return count([_flat(message) for message in messages], **kwargs)
    except (TemplateError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _flat(message: dict[str, Any]) -> dict[str, Any]:
    """Text parts joined as vLLM joins them for templates that take texts; other parts are left."""
    parts = message.get("content")
    if isinstance(parts, list) and all(isinstance(p, dict) and "text" in p for p in parts):
        return message | {"content": "\n".join(str(part["text"]) for part in parts)}
    return message


def _context(asked: Asked) -> int | None:
    try:
        found = _config(asked)
    except (OSError, ValueError):
        return None
    inner = found.get("text_config")
    config = inner if isinstance(inner, dict) and "max_position_embeddings" in inner else found
    return context_of(config)


def _config(asked: Asked) -> dict[str, Any]:
    file = Path(asked["model"]) / "config.json"
    if file.exists():
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
    from transformers import PretrainedConfig  # noqa: PLC0415

    found, _ = PretrainedConfig.get_config_dict(asked["model"], local_files_only=True)
    return found


def _of_transformers(asked: Asked) -> Callable[..., int]:
    # It looks for torch and then takes seconds to import it; tokenizers need none of it.
    modules: dict[str, Any] = sys.modules
    modules["torch"] = None  # how Python spells "not to be had"
    from transformers import AutoTokenizer  # noqa: PLC0415 - seconds, which few have to pay

    tokenizer = AutoTokenizer.from_pretrained(
        asked["tokenizer"],
        revision=asked["revision"],
        local_files_only=True,
        trust_remote_code=False,
    )
    if not (asked["chat_template"] or tokenizer.chat_template):
        sys.exit("it has no chat template")

    def count(messages: list[dict[str, Any]], **kwargs: Any) -> int:  # noqa: ANN401
        template = asked["chat_template"]
        return len(
            tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=True, return_dict=False, **kwargs
            )
        )

    return count


@dataclass(frozen=True, slots=True)
class _Plain:
    """Counts as `apply_chat_template` does."""

    tokenizer: Tokenizer
    template: Template
    special: Mapping[str, str]

    def count(self, messages: list[dict[str, Any]], **kwargs: Any) -> int:  # noqa: ANN401
        """Tokens of a conversation; raises TemplateError and what a template may cause."""
        known = {"documents": None, **self.special, **kwargs}
        text = self.template.render(messages=messages, **known)
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)


def _plain(folder: Path, chat_template: str | None) -> _Plain | None:
    """The tokenizer of a folder; None where transformers may make another one of it."""
    config = _plain_config(folder)
    template = chat_template or _template(folder, config)
    if not config or template is None:
        return None
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = {name: _text(config[name]) for name in NAMED if config.get(name) is not None}
    added = [_text(token) for token in config.get("added_tokens_decoder", {}).values()]
    if any(tokenizer.token_to_id(text) is None for text in (*special.values(), *added)):
        return None  # it would be added
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        return _Plain(tokenizer, _compiled(template), special)
    except TemplateError:
        return None  # tags that only transformers has


def _plain_config(folder: Path) -> Mapping[str, Any]:
    """tokenizer_config.json where it leaves tokenizer.json as it stands, else nothing."""
    file = folder / "tokenizer_config.json"
    if not file.exists() or not (folder / "tokenizer.json").exists():
        return {}
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    older = ("special_tokens_map.json", "added_tokens.json")
    if "added_tokens_decoder" not in config and any((folder / name).exists() for name in older):
        return {}
    plain = config.get("tokenizer_class") in AS_IT_STANDS and config.keys() <= NAMED | OTHER_KEYS
    return config if plain else {}


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The only one; None where there are several with names, or none."""
    if (folder / "additional_chat_templates").exists():
        return None
    file = folder / "chat_template.jinja"
    found = file.read_text(encoding="utf-8") if file.exists() else config.get("chat_template")
    return found if isinstance(found, str) else None


def _text(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment.from_string(template)


def _to_json(value: object, ensure_ascii: bool = False, **kwargs: Any) -> str:  # noqa: ANN401, FBT001, FBT002
    return json.dumps(value, ensure_ascii=ensure_ascii, **kwargs)


def _refuse(message: str) -> str:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


if __name__ == "__main__":
    main()
