"""What several live tests stand on, made once."""

import pytest

from tests.live.desk import NGRAM, Ended, desk, draft, ended, study, to_copy
from tests.live.real import MODELS


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A whole small study that ends with a lookup, which a draft is tried beside."""
    folder = tmp_path_factory.mktemp("small")
    file = study(
        "live", {**NGRAM, "num_speculative_tokens": 4}, draft("draft-2l", MODELS / "draft-2l")
    )
    file["workload"]["prompts"] = str(to_copy(folder / "prompts.jsonl"))
    return ended(desk(folder, file), "run", "candidates.yaml")
