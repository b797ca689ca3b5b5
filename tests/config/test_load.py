"""A good file becomes the study it describes; the demo's file is one."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from autotune.config import LoadedFile, Tracking, load
from autotune.core.study import Constraint
from autotune.core.workload import Level, Slo
from autotune.errors import CandidatesFileError

ROOT = Path(__file__).parents[2]

FILE = """\
target:
  model: org/target
workload:
  prompts: prompts.jsonl
  concurrency: 2
  max_tokens: 16
  sampling: {temperature: 0}
candidates:
  - method: ngram
"""

Load = Callable[..., LoadedFile]


def prompts(count: int) -> str:
    """`count` prompts without ids or splits."""
    rows = ({"messages": [{"role": "user", "content": f"question {i}"}]} for i in range(count))
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """Loads a text as the candidates.yaml of a folder with 100 prompts."""
    (tmp_path / "prompts.jsonl").write_text(prompts(100), encoding="utf-8")

    def load_it(
        text: str, environ: Mapping[str, str] | None = None, name: str = "my-study.yaml"
    ) -> LoadedFile:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return load(tmp_path / name, environ=environ or {})

    return load_it


def test_the_demo_file_loads_as_it_is() -> None:
    """The candidates.yaml that ships is valid and says what its comments say."""
    loaded = load(ROOT / "candidates.yaml", check_models=False, environ={})
    spec = loaded.spec
    assert (spec.name, loaded.root) == ("smollm2-135m", ROOT)
    assert [c.name for c in spec.candidates] == ["draft-2l", "draft-4l", "eagle", "ngram"]
    assert spec.target.model == str(ROOT / "studies/smollm2-135m/models/target")
    assert spec.search.budget_s == 26 * 60
    assert len(spec.workload.search) + len(spec.workload.confirmation) == 270
    assert loaded.tracking == Tracking(
        uri=f"sqlite:///{ROOT}/studies/mlflow.db", experiment="smollm2-135m"
    )


def test_defaults_are_those_of_the_core(load_text: Load) -> None:
    """What a short file does not say is what the core takes."""
    loaded = load_text(FILE)
    spec = loaded.spec
    assert spec.name == "my-study"
    assert spec.search.num_speculative_tokens == (1, 2, 3, 5)
    assert (spec.objective.tolerance, spec.objective.constraints) == (0.02, ())
    assert spec.workload.levels == (Level(concurrency=2),)
    assert len(loaded.prompts_sha256) == 64


def test_a_loaded_file_is_frozen(load_text: Load) -> None:
    """What was read does not change under the hands of its readers."""
    loaded = load_text(FILE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.root = Path()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "study"),
    [("Llama 3.yaml", "llama-3"), ("candidates.yaml", None), ("_.yaml", "study")],
)
def test_the_study_takes_its_name_from_the_file(
    load_text: Load, tmp_path: Path, name: str, study: str | None
) -> None:
    """A file called candidates.yaml says nothing, so its folder's name is taken."""
    folder = tmp_path.name.lower().replace("[", "-").replace("]", "-").strip("-._")
    assert load_text(FILE, name=name).spec.name == (study or folder)


def test_every_key_arrives(load_text: Load) -> None:
    """Values of every section reach the core in its units."""
    spec = load_text(
        FILE.replace("org/target", "org/target\n  engine_args: {max-model-len: 64, x: {y-z: 1}}")
        .replace("concurrency: 2", "concurrency: [1, {level: 4, weight: 2}]")
        .replace("{temperature: 0}", "{temperature: 0.7, top-k: 5, min_p: 0}")
        + "search: {gpu_memory_utilization: 0.3, budget: 1h30m}\n"
        "objective: {tolerance: 5%, min_gain: 0.1}\n"
        "constraints: {p99_ttft: 0.3 s, median_e2e: 900 ms}\n"
    ).spec
    assert spec.target.engine_args == {"max_model_len": 64, "x": {"y-z": 1}}
    assert spec.workload.levels == (Level(concurrency=1), Level(concurrency=4, weight=2))
    assert (spec.workload.sampling.temperature, spec.workload.sampling.params) == (
        0.7,
        {"top_k": 5},
    )
    assert spec.search.gpu_memory_utilization == (0.3,)
    assert spec.search.budget_s == 5400
    assert (spec.objective.tolerance, spec.objective.min_gain) == (0.05, 0.1)
    assert spec.objective.constraints == (
        Constraint(metric="p99_ttft_ms", upper=300.0),
        Constraint(metric="median_e2e_ms", upper=900.0),
    )


@pytest.mark.parametrize(
    ("given", "window"),
    [
        ("", (5, 5)),
        ("prompt_lookup_min: 2", (2, 2)),
        ("prompt-lookup-max: 4", (4, 4)),
        ("prompt_lookup_min: 1, prompt_lookup_max: 3", (1, 3)),
    ],
)
def test_the_ngram_window_is_held_as_vllm_resolves_it(
    load_text: Load, given: str, window: tuple[int, int]
) -> None:
    """vLLM 0.32 fills the bound that is missing from the other, and both with 5."""
    text = FILE.replace("- method: ngram", f"- {{method: ngram, {given}}}")
    (candidate,) = load_text(text).spec.candidates
    assert tuple(candidate.settings.values()) == window


def test_k_of_a_candidate_wins_over_the_search(load_text: Load) -> None:
    """A range, a list or one number may stand in the candidate."""
    spec = load_text(FILE + "    num_speculative_tokens: {low: 2, high: 4}\n").spec
    assert spec.ks(spec.candidates[0]) == (2, 3, 4)


def test_candidates_are_named_after_method_and_model(load_text: Load) -> None:
    """A name is needed only where two would be called the same."""
    spec = load_text(FILE + "  - {method: eagle3, model: org/Head-1}\n").spec
    assert [c.name for c in spec.candidates] == ["ngram", "eagle3-Head-1"]


def test_variables_and_home_are_filled_in(load_text: Load) -> None:
    """${VAR} works in every text, also where a number is wanted; $${ is an escape."""
    text = (
        FILE.replace("org/target", '"${ORG}/target"\n  env: {A: "$${B}", C: "~/c"}')
        .replace("max_tokens: 16", "max_tokens: ${TOKENS:-24}")
        .replace("temperature: 0", 'temperature: 0, stop: "${EMPTY:-}"')
    )
    spec = load_text(text, {"ORG": "acme"}).spec
    assert spec.target.model == "acme/target"
    assert spec.target.env == {"A": "${B}", "C": str(Path.home() / "c")}
    assert spec.workload.max_tokens == 24
    assert spec.workload.sampling.params == {"stop": ""}


def test_paths_are_relative_to_the_file(load_text: Load, tmp_path: Path) -> None:
    """Models, and texts that begin with ./ or ../, are found from any folder."""
    (tmp_path / "models/t").mkdir(parents=True)
    (tmp_path / "models/t/config.json").write_text("{}", encoding="utf-8")
    text = FILE.replace(
        "org/target",
        "models/t\n  launcher: [./run.sh, -x]\n  engine_args: {chat_template: ./chat.jinja}",
    )
    target = load_text(text).spec.target
    assert target.model == str(tmp_path / "models/t")
    assert target.launcher == (str(tmp_path / "run.sh"), "-x")
    assert target.engine_args == {"chat_template": str(tmp_path / "chat.jinja")}


def test_models_need_not_exist_when_nobody_looks(tmp_path: Path) -> None:
    """`check_models=False` reads a file on a machine without the models."""
    (tmp_path / "prompts.jsonl").write_text(prompts(100), encoding="utf-8")
    file = tmp_path / "c.yaml"
    file.write_text(FILE.replace("org/target", "./target"), encoding="utf-8")
    loaded = load(file, check_models=False, environ={})
    assert loaded.spec.target.model == str(tmp_path / "target")
    with pytest.raises(CandidatesFileError, match="there is no folder"):
        load(file, environ={})


@pytest.mark.parametrize(
    ("tracking", "uri", "experiment"),
    [
        ("true", "sqlite:///{root}/studies/mlflow.db", "my-study"),
        ("{experiment: e}", "sqlite:///{root}/studies/mlflow.db", "e"),
        ("{uri: 'sqlite:///x.db'}", "sqlite:///{root}/x.db", "my-study"),
        ("{uri: 'sqlite:////srv/x.db'}", "sqlite:////srv/x.db", "my-study"),
        ("{uri: 'http://localhost:5000'}", "http://localhost:5000", "my-study"),
    ],
)
def test_tracking_is_an_address_that_holds_from_anywhere(
    load_text: Load, tmp_path: Path, tracking: str, uri: str, experiment: str
) -> None:
    """A SQLite file is told to MLflow by its absolute path."""
    found = load_text(f"{FILE}tracking: {{mlflow: {tracking}}}\n").tracking
    assert found == Tracking(uri=uri.format(root=tmp_path), experiment=experiment)


def test_tracking_can_be_switched_off(load_text: Load) -> None:
    """`mlflow: false` tells nobody."""
    assert load_text(FILE + "tracking: {mlflow: false}\n").tracking is None


def test_anchors_and_merges_work(load_text: Load) -> None:
    """YAML's own means against repetition are at hand; the key that is written wins."""
    text = FILE.replace(
        "  - method: ngram",
        "  - &a {name: a, method: ngram, prompt_lookup_max: 3}\n"
        "  - {<<: *a, name: b, prompt_lookup_max: 4}",
    )
    names = [(c.name, c.settings["prompt_lookup_max"]) for c in load_text(text).spec.candidates]
    assert names == [("a", 3), ("b", 4)]


def test_a_level_may_have_a_request_rate(load_text: Load) -> None:
    """With one it is an open loop, and the level its most requests under way."""
    mixed = "[1, {level: 4, request_rate: 2.5, weight: 2}]"
    loaded = load_text(FILE.replace("concurrency: 2", f"concurrency: {mixed}"))
    assert loaded.spec.workload.levels == (
        Level(concurrency=1),
        Level(concurrency=4, request_rate=2.5, weight=2.0),
    )
    assert [lv.load_generator for lv in loaded.spec.workload.levels] == ["closed_loop", "open_loop"]


def test_objectives_of_service_have_units(load_text: Load) -> None:
    """Any of them, in milliseconds; none is none."""
    text = FILE.replace("max_tokens: 16", "max_tokens: 16\n  slo: {ttft: 300 ms, e2e: 2 s}")
    assert load_text(text).spec.workload.slo == Slo(ttft_ms=300.0, e2e_ms=2000.0)
    assert load_text(FILE).spec.workload.slo is None
