"""What must not leave the machine: credentials in settings, and what was said in an engine's log.

Rules: of a setting the name decides, never the value, and the name is shown, so that a reader knows
what to set; of a log the whole line goes that quotes a prompt or a reply, if only by token ids.
"""

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"(api|access|private|auth)[_-]?key|secret|passw(or)?d|credential|(^|[_-])token$",
    re.IGNORECASE,
)

GRAMMAR = re.compile(r"Failed to advance FSM|grammar (terminated or )?rejected (draft )?token")
"""vLLM's lines about structured output that quote tokens of a reply: vllm/v1,
structured_output/backend_xgrammar.py, structured_output/__init__.py, core/sched/scheduler.py."""
_QUOTES = re.compile(
    # The others: vllm/entrypoints/serve/utils/request_logger.py, where a user asks for such lines.
    rf"{GRAMMAR.pattern}|Request \S+ (details: prompt|JSON body)|Generated response "
)
WITHHELD = "[a line that quotes a prompt or a reply was left out]"


def is_secret(name: str) -> bool:
    """Whether a variable or argument of this name holds a credential."""
    return _SECRET.search(name) is not None


def shown(values: Mapping[str, str]) -> dict[str, str]:
    """The values that may be shown, by name."""
    return {name: values[name] for name in sorted(values) if not is_secret(name)}


def withheld(values: Mapping[str, str]) -> list[str]:
    """The names whose values must not be shown."""
    return sorted(name for name in values if is_secret(name))


def without_quotes(log: str) -> str:
    """A piece of an engine's log in which lines that quote a prompt or a reply only say so."""
    return "\n".join(WITHHELD if _QUOTES.search(line) else line for line in log.split("\n"))
