"""A candidate with a range: variants are launched, the best is deployed, changes cost nothing."""

from pathlib import Path

import pytest
import yaml

from tests.flow.study import Desk, candidates, desk, world

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

BEST = 6
"""The window of the world's lookup; the engine accepts a tenth less for each step away from it."""
LOOKUP = {
    "acceptance": [0.95, 0.9, 0.85, 0.8],
    "t_draft": 0.0,
    "gib": 0.0,
    "kv_share": 0.0,
    "best_prompt_lookup_max": BEST,
}
SEARCH = {"num_speculative_tokens": [2], "max_blocks": 2, "max_variants": 3}


def file(values: object) -> dict[str, object]:
    """A study of one lookup with these values of its window."""
    ngram = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": values}
    return candidates(ngram, search=SEARCH)


def windows(study: Desk) -> list[int | None]:
    """The longest n-gram of every launch, in order; None is plain decoding."""
    configs = [yaml.safe_load((x / "vllm.yaml").read_text()) for x in study.launches]
    return [c.get("speculative-config", {}).get("prompt_lookup_max") for c in configs]


def test_a_range_is_searched_and_its_best_value_deployed(tmp_path: Path) -> None:
    """Middle, ends, and the better end is confirmed; run again, also with a narrower or wider
    range, nothing that was measured is measured again."""
    study = desk(tmp_path, file([2, 4, BEST]), world(drafts={"ngram": LOOKUP}))
    done = study.run()
    assert done.code == 0, done.text
    assert windows(study)[1:4] == [4, 2, BEST]
    assert {None, BEST} <= set(windows(study)[4:]) <= {None, BEST, 4}  # a close second, too
    deployed = yaml.safe_load(study.report("vllm.yaml"))
    assert deployed["speculative-config"]["prompt_lookup_max"] == BEST
    best = yaml.safe_load(study.report("best-config.yaml"))
    assert best["evidence"]["candidate"] == f"ngram(prompt_lookup_max={BEST})"
    assert best["engine"]["speculative_config"]["prompt_lookup_max"] == BEST
    assert f"ngram(prompt_lookup_max={BEST}) at K = 2" in study.autotune("show", "s").text
    count = len(study.launches)
    for values in (BEST, {"low": 4, "high": BEST, "step": 2}):
        study.write(file(values), world(drafts={"ngram": LOOKUP}))
        done = study.run()
        assert done.code == 0, done.text
        # Among other variants a second one may be too close to call: then it is confirmed, once.
        close = {4} - {*windows(study)[4:count]}
        assert set(windows(study)[count:]) <= close, done.text


def test_plan_shows_the_first_variant(tmp_path: Path) -> None:
    """Before anything is launched the others are not known; how many there may be is."""
    study = desk(tmp_path, file({"low": 2, "high": BEST}))
    done = study.autotune("plan", "candidates.yaml")
    assert "screens ngram(prompt_lookup_max=4) at concurrency 1 with K = 2" in done.text
    assert "ngram: up to 2 further launches of other values of prompt_lookup_max" in done.text
