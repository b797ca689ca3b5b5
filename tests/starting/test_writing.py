"""Every text that is written into the file comes back as it was."""

from autotune.config.yamlfile import read_yaml
from autotune.core.jsontype import JSON
from autotune.starting.writing import scalar


def test_any_value_is_read_back_as_it_was() -> None:
    """Words that YAML takes for something else, quotes, and what looks like a variable."""
    values: list[JSON] = [
        *("org/name", "./a b", "yes", "null", "1.5", "a: b", "# no", "it's", "${HOME}/x", "ä"),
        *(0.9, 4, True, None),
        ["/opt/python", "-m", "x"],
    ]
    for value in values:
        document = read_yaml(f"key: {scalar(value)}\n", {})
        assert document.faults == ()
        assert document.data == {"key": value}
