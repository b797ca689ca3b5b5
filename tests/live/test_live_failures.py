"""What a real vLLM says when it cannot start: each refusal is known, with its cause."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.core.causes import CAUSES
from autotune.core.study import Candidate
from autotune.core.trial import Cause
from autotune.errors import LaunchError
from tests.live.real import MEMORY, MODELS, NEEDS, draft, serving_at

pytestmark = NEEDS
DRAFT = MODELS / "draft-2l"


def plain(folder: Path) -> None:
    """No draft at all."""


def of_another_vocabulary(folder: Path) -> Candidate:
    """The demo's draft, with a larger vocabulary in its config."""
    shutil.copytree(DRAFT, folder)
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] += 128
    (folder / "config.json").write_text(json.dumps(config))
    return draft("vocabulary", "draft_model", folder)


def without_weights(folder: Path) -> Candidate:
    """The demo's draft as a broken download leaves it."""
    shutil.copytree(DRAFT, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return draft("weights", "draft_model", folder)


@pytest.mark.parametrize(
    ("made", "share", "causes"),
    [
        (of_another_vocabulary, MEMORY, {Cause.VOCABULARY_MISMATCH}),
        (without_weights, MEMORY, {Cause.MISSING_WEIGHTS}),
        (plain, 0.01, {Cause.KV_CACHE_TOO_SMALL}),
        (plain, 0.999, {Cause.UTILIZATION_TOO_HIGH, Cause.MEMORY_OCCUPIED}),
    ],
    ids=["vocabulary", "weights", "too-small", "too-large"],
)
def test_a_start_that_is_refused_has_its_cause(
    tmp_path: Path, made: Callable[[Path], Candidate | None], share: float, causes: set[Cause]
) -> None:
    """And the remedy of the table; what is too much depends on who else is on the machine."""
    candidate = made(tmp_path / "model")
    asked = serving_at(
        tmp_path / "launch",
        candidate,
        2 if candidate else 0,
        live=False,
        share=share,
        engine_args={},
    )
    with pytest.raises(LaunchError) as told, asked:
        pass
    assert told.value.cause in causes
    assert told.value.remedy == CAUSES[told.value.cause].remedy
    assert told.value.after_s is not None
