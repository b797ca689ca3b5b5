"""Plain text: a prompt on each line.

Rule: a line is one message of the user, as it stands; empty lines are none.
"""

from autotune.config.prompts._row import id_of, user, words
from autotune.core.jsontype import JSON
from autotune.core.workload import Prompt


def prompt(row: JSON) -> Prompt:
    """The prompt of a line."""
    messages = (user(words(row, "a line")),)
    return Prompt(id=id_of({}, "id", messages), messages=messages)
