"""Numbers of things in words: `1 launch`, `2 launches`, `0 faults`.

Rule: a word stands beside a number of its own only through here, unless the number cannot be one.
"""


def counted(number: int, one: str, many: str = "") -> str:
    """`1 pass`; `many` is the plural where it is not `one` with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"
