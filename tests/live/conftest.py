"""What several live tests stand on, made once."""

import pytest

from tests.live.desk import NGRAM, Ended, desk, draft, ended, study
from tests.live.real import MODELS


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A whole small study: a lookup and a draft."""
    file = study("live", NGRAM, draft("draft-2l", MODELS / "draft-2l"))
    return ended(desk(tmp_path_factory.mktemp("small"), file), "run", "candidates.yaml")
