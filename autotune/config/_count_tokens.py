"""The child that counts tokens: a ToCount as JSON on stdin, a Counted as JSON on stdout.

Rule: nothing is downloaded, no code that a model brings is run; a conversation that the template
refuses has no count, anything else that goes wrong ends the child with its message.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from jinja2 import TemplateError

from autotune.core.context import context_of

Asked = Mapping[str, Any]


def main() -> None:
    """Read, count, write."""
    # transformers looks for torch and then takes seconds to import it; tokenizers need none of it.
    modules: dict[str, Any] = sys.modules
    modules["torch"] = None  # how Python spells "not to be had"
    from transformers import AutoTokenizer  # noqa: PLC0415 - seconds, which the parent never pays

    asked = json.load(sys.stdin)
    tokenizer = AutoTokenizer.from_pretrained(
        asked["tokenizer"],
        revision=asked["revision"],
        local_files_only=True,
        trust_remote_code=False,
    )
    if not (asked["chat_template"] or tokenizer.chat_template):
        sys.exit("it has no chat template")
    tokens = [_count(tokenizer, messages, asked) for messages in asked["conversations"]]
    print(json.dumps({"tokens": tokens, "context": _context(asked)}))  # noqa: T201


def _count(tokenizer: Any, messages: list[dict[str, Any]], asked: Asked) -> int | None:  # noqa: ANN401
    try:
        ids = tokenizer.apply_chat_template(
            [_flat(message) for message in messages],
            tools=asked["tools"],
            chat_template=asked["chat_template"],
            **{"add_generation_prompt": True, **asked["template_kwargs"]},
            tokenize=True,
            return_dict=False,
        )
    except (TemplateError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return len(ids)


def _flat(message: dict[str, Any]) -> dict[str, Any]:
    """Text parts joined as vLLM joins them for templates that take texts; other parts are left."""
    parts = message.get("content")
    if isinstance(parts, list) and all(isinstance(p, dict) and "text" in p for p in parts):
        return message | {"content": "\n".join(str(part["text"]) for part in parts)}
    return message


def _context(asked: Asked) -> int | None:
    from transformers import PretrainedConfig  # noqa: PLC0415

    try:
        found, _ = PretrainedConfig.get_config_dict(asked["model"], local_files_only=True)
    except (OSError, ValueError):
        return None
    inner = found.get("text_config")
    config = inner if isinstance(inner, dict) and "max_position_embeddings" in inner else found
    return context_of(config)


if __name__ == "__main__":
    main()
