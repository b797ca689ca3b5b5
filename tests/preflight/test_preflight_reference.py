"""docs/checks.md is what the rules say today."""

from autotune.preflight.reference import PAGE, page


def test_the_page_is_up_to_date() -> None:
    """Renew it with `python -m autotune.preflight.reference`."""
    assert PAGE.read_text(encoding="utf-8") == page()
