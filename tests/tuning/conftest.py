"""What all tests of the loop share."""

import os

import pytest


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug here: a kill leaves the page cache, which is all these tests need."""
    monkeypatch.setattr(os, "fsync", int)
