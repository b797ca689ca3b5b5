"""What a value of a configuration may be.

Rule: whatever is in JSON, and nothing else, so that it can be written, read back and compared.
"""

from typing_extensions import TypeAliasType

JSON = TypeAliasType("JSON", "str | int | float | bool | list[JSON] | dict[str, JSON] | None")
