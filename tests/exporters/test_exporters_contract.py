"""What every exporter keeps to, whichever plugins there are."""

import pytest
import yaml

from autotune.core.jsontype import JSON
from autotune.core.recommendation import recommend
from autotune.ports import Exporter, find, names
from tests.builders import make_spec
from tests.builders_schedule import SPEC as SCHEDULED
from tests.builders_schedule import confirmed
from tests.builders_study import make_study_records

PROVENANCE: dict[str, JSON] = {"engine_version": "0.32.0", "device": "cpu", "host": "here"}
SPEC = make_spec()
RESULTS = {
    "speculate": recommend(SPEC, make_study_records()),
    "unconfirmed": recommend(SPEC, make_study_records(confirmed=False)),
    "inconclusive": recommend(SPEC, make_study_records(scale=0.8)),
    "do_not_speculate": recommend(SPEC, make_study_records(scale=0.6)),
    "nothing": recommend(SPEC, []),
    "schedule": recommend(SCHEDULED, confirmed({1: 1.6, 4: 1.0})),
}
SPECS = {case: SCHEDULED if case == "schedule" else SPEC for case in RESULTS}


def test_all_exporters_are_found() -> None:
    """The folder is the registry, and the helper files in it are no plugins."""
    assert names("exporters") == ("best_config", "vllm_schedule", "vllm_yaml")


@pytest.mark.parametrize("case", RESULTS)
@pytest.mark.parametrize("name", names("exporters"))
class TestContract:
    """Whatever the verdict."""

    def test_it_renders_a_mapping_that_a_safe_loader_reads(self, name: str, case: str) -> None:
        """Deploy tooling gets plain YAML with a mapping at the top."""
        exporter: Exporter = find("exporters", name)
        text = exporter.render(SPECS[case], RESULTS[case], PROVENANCE)
        assert (text == "") is (name == "vllm_schedule" and case != "schedule")
        if not text:
            return
        read = yaml.safe_load(text)
        assert isinstance(read, dict)
        assert all(value is not None for value in read.values())

    def test_it_renders_the_same_text_twice(self, name: str, case: str) -> None:
        """No clock, no random order."""
        exporter: Exporter = find("exporters", name)
        first = exporter.render(SPECS[case], RESULTS[case], PROVENANCE)
        assert first == exporter.render(SPECS[case], RESULTS[case], PROVENANCE)

    def test_its_file_name_is_plain(self, name: str, case: str) -> None:
        """It lands in the report's folder and nowhere else."""
        exporter: Exporter = find("exporters", name)
        assert exporter.filename.endswith(".yaml")
        assert "/" not in exporter.filename
