"""Weights that are missing, partial or pointers; models that the hub has, has not, or keeps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.study import Candidate
from autotune.preflight import Severity, findings, gather, refused
from autotune.preflight.checkpoint import Checkpoint
from autotune.preflight.hub import Asked, Hub, Listed, NoSuchModelError, NotToldError
from autotune.preflight.reading import Named, read, read_adapter
from autotune.preflight.weights import INDEX, read_weights
from tests.preflight.folders import (
    GPU,
    HEAD,
    candidate,
    facts,
    layers,
    model,
    only,
    said,
    study,
    write_model,
    write_safetensors,
)

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 269060552\n"


def nobody(asked: Asked) -> Listed:
    """A hub that must not be asked."""
    raise AssertionError(asked)


def test_a_whole_folder_is_read_from_its_headers(tmp_path: Path) -> None:
    """Names, types and shapes without the data; their bytes are those that are loaded."""
    found = read(Named(model=str(write_model(tmp_path / "m")), vocabulary=True), nobody)
    assert found.troubles == ()
    assert found.tensors == layers(8)
    assert found.weight_bytes == (320 * 64 + 8 * 4 * 64 * 64) * 2
    assert found.parameters == 320 * 64 + 8 * 4 * 64 * 64
    assert found.vocabulary is not None
    assert found.vocabulary.size == 300
    assert (found.hidden_size, found.layers, found.context) == (64, 8, 2048)


def test_a_folder_without_weights_is_trouble(tmp_path: Path) -> None:
    """A config alone is no model."""
    folder = write_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (trouble,) = read_weights(folder).troubles
    assert trouble.evidence == (f"{folder} holds no weights (*.safetensors, *.bin, *.pt, *.gguf)")


def test_a_missing_shard_is_trouble(tmp_path: Path) -> None:
    """The index names a file that was not copied."""
    folder = write_model(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    weights = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": weights}))
    found = read_weights(folder)
    assert "1 weight file named by" in found.troubles[0].evidence
    assert "model-2.safetensors" in found.troubles[0].evidence
    assert found.size is None


def test_a_partial_file_is_trouble(tmp_path: Path) -> None:
    """A download that broke off, and a header that did."""
    folder = write_model(tmp_path / "m")
    write_safetensors(folder / "model.safetensors", HEAD, missing=100)
    need = (folder / "model.safetensors").stat().st_size + 100
    (trouble,) = read_weights(folder).troubles
    assert trouble.evidence.endswith(f"is cut off: {need - 100} bytes of {need}")
    (folder / "model.safetensors").write_bytes(b"12345678901")
    (trouble,) = read_weights(folder).troubles
    assert trouble.evidence.endswith("is no safetensors file, or is cut off in its header")
    (folder / "model.safetensors").write_bytes(b"123")
    assert read_weights(folder).troubles[0].evidence.endswith("is cut off after 3 bytes")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_no_file(tmp_path: Path, name: str) -> None:
    """Cloned without git-lfs; the remedy says how to get the files."""
    folder = write_model(tmp_path / "m")
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(POINTER)
    (trouble,) = read(Named(model=str(folder)), nobody).troubles
    assert "is a Git LFS pointer, not the file" in trouble.evidence
    assert "git lfs pull" in trouble.remedy


def test_weights_of_the_optimizer_are_no_weights(tmp_path: Path) -> None:
    """training_args.bin beside nothing else is no model."""
    folder = write_model(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "training_args.bin")
    assert len(read_weights(folder).troubles) == 1
    (folder / "training_args.bin").rename(folder / "pytorch_model.bin")
    assert read_weights(folder).troubles == ()
    assert read_weights(folder).size


def test_troubles_of_a_draft_refuse_it_alone(tmp_path: Path) -> None:
    """The others go on; troubles of the target are the end of the study."""
    folder = write_model(tmp_path / "d")
    (folder / "model.safetensors").unlink()
    broken = read(Named(model=str(folder)), nobody)
    ngram = candidate("ngram", name="n")
    found = facts(candidate("draft_model"), ngram, draft=broken)
    finding = only(found, "draft_files")
    assert (finding.severity, finding.candidate) == (Severity.REJECT_CANDIDATE, "c")
    assert not refused([finding], found.spec)
    stopped = only(facts(ngram, target=broken), "target_files")
    assert stopped.severity is Severity.REJECT_STUDY


def test_the_simulated_engine_loads_nothing(tmp_path: Path) -> None:
    """Its models are folders with a config, and that is no trouble."""
    (tmp_path / "config.json").write_text("{}")
    empty = read(Named(model=str(tmp_path)), nobody)
    found = facts(
        candidate("draft_model"), target=empty, draft=empty, probe={"device": "simulated"}
    )
    assert said(found, "target_files") + said(found, "draft_files") == []


def hub(answer: Listed | Exception) -> Hub:
    """A hub that answers, or raises what it is given."""

    def ask(asked: Asked) -> Listed:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


LISTED = Listed(files={"config.json": 700, "model.safetensors": 1000, "x/model.safetensors": 5})


def test_a_hub_id_is_looked_up_once_with_its_sizes() -> None:
    """Nothing is downloaded: names, sizes and what the hub tells of the config."""
    asked: list[Asked] = []

    def ask(one: Asked) -> Listed:
        asked.append(one)
        return LISTED

    named = Named(model="org/m", revision="r", env={"HF_TOKEN": "x", "HF_HUB_CACHE": "/no"})
    found = read(named, ask)
    assert asked == [Asked(model="org/m", revision="r", token="x")]  # noqa: S106 - no secret
    assert found.weight_bytes == 1000
    assert found.troubles == ()
    assert "not on this machine yet" in found.unchecked


@pytest.mark.parametrize(
    ("answer", "evidence"),
    [
        (
            NoSuchModelError("404"),
            "org/m: the hub has no such model or revision, or keeps it from us (404)",
        ),
        (Listed(files={"README.md": 3}), "the repository org/m has no weights"),
        (Listed(files=LISTED.files, locked=True), "org/m is gated, and there is no token"),
    ],
)
def test_what_the_hub_has_not_or_keeps_is_trouble(
    answer: Listed | Exception, evidence: str
) -> None:
    """A wrong id, an empty repository, a gated one without a token."""
    found = read(Named(model="org/m", env={"HF_HUB_CACHE": "/no"}), hub(answer))
    (trouble,) = found.troubles
    assert trouble.evidence == evidence


def test_offline_is_no_reason_to_refuse() -> None:
    """Who cannot be reached has refused nothing: a warning that says what was not checked."""
    offline = hub(NotToldError("the hub is not reached"))
    found = read(Named(model="org/m", env={"HF_HUB_CACHE": "/no"}), offline)
    assert found.troubles == ()
    finding = only(facts(candidate("draft_model"), draft=found), "not_looked_at")
    assert finding.severity is Severity.WARN
    assert "could not be checked" in finding.evidence
    assert "the hub is not reached" in finding.evidence


def test_a_cached_snapshot_is_a_folder_like_any_other(tmp_path: Path) -> None:
    """Found by its ref, by its commit, and without the network; half of one asks the hub."""
    cache = tmp_path / "hub" / "models--org--m"
    folder = write_model(cache / "snapshots" / "abc")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("abc")
    env = {"HF_HOME": str(tmp_path)}
    for revision in (None, "abc"):
        found = read(Named(model="org/m", revision=revision, env=env), nobody)
        assert found.tensors == layers(8)
        assert found.name == "org/m"
    (folder / "model.safetensors").unlink()
    half = read(Named(model="org/m", env=env), hub(LISTED))
    assert half.config["model_type"] == "llama"
    assert half.weight_bytes == 1000
    assert half.troubles == ()


def test_the_hub_s_own_client_says_when_it_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """With HF_HUB_OFFLINE the real client is not reached, and that is told as such."""
    constants = pytest.importorskip("huggingface_hub.constants")
    from autotune.preflight import hub as real  # noqa: PLC0415 - beside the client

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NotToldError, match=r"."):
        real.ask(Asked(model="org/m"))


def test_a_store_is_not_looked_into() -> None:
    """s3:// and the like are the engine's to read."""
    found = read(Named(model="s3://bucket/m"), nobody)
    assert found.troubles == ()
    assert found.unchecked


def test_a_speculators_repository_is_no_target() -> None:
    """vLLM would serve the verifier that it names in its place."""
    target = model(speculators_config={"verifier": {"name_or_path": "org/other"}})
    finding = only(facts(candidate("ngram"), target=target), "speculators_target")
    assert finding.severity is Severity.REJECT_STUDY
    assert "would serve org/other with it" in finding.evidence


def test_a_draft_that_names_another_verifier_is_warned_of() -> None:
    """The same name anywhere else is the same model."""
    other = model(speculators_config={"verifier": {"name_or_path": "org/other"}})
    same = model(speculators_config={"verifier": {"name_or_path": "org/Target"}})
    finding = only(facts(candidate("eagle3"), draft=other), "other_verifier")
    assert finding.severity is Severity.WARN
    assert "made for org/other" in finding.evidence
    assert said(facts(candidate("eagle3"), draft=same), "other_verifier") == []


@pytest.mark.parametrize(
    ("method", "path", "taken"),
    [
        ("draft_model", "/models/eagle-study/small", "eagle"),
        ("draft_model", "/models/Eagle3/small", "eagle3"),
        ("medusa", "/models/dflash/heads", "dflash"),
        ("eagle", "/models/eagle3-head", None),
        ("draft_model", "/models/small", None),
    ],
)
def test_a_path_may_make_another_method_of_it(method: str, path: str, taken: str | None) -> None:
    """vLLM looks for names of methods in the path of the draft; not with those it trusts."""
    found = said(facts(Candidate(name="c", method=method, model=path)), "method_of_path")
    assert [f"the method {taken} instead of {method}" in f.evidence for f in found] == (
        [True] if taken else []
    )


def test_two_copies_of_one_draft_are_one_candidate() -> None:
    """The second is refused in favour of the first; another K makes another candidate."""
    first = Candidate(name="a", method="draft_model", model="/a", weights="77")
    second = Candidate(name="b", method="draft_model", model="/b", weights="77")
    finding = only(facts(first, second), "twin_weights")
    assert finding.candidate == "b"
    assert "copy of that of 'a'" in finding.evidence
    other = Candidate(
        name="b", method="draft_model", model="/b", weights="77", num_speculative_tokens=(9,)
    )
    assert said(facts(first, other), "twin_weights") == []
    simulated = facts(first, second, probe={"device": "simulated"})
    assert said(simulated, "twin_weights") == []


def test_an_adapter_that_is_missing_or_too_large_is_the_target_s(tmp_path: Path) -> None:
    """Every launch serves it, so the study ends; the remedy names the argument."""
    (tmp_path / "adapter_config.json").write_text('{"r": 64}')
    assert "adapter_model" in read_adapter(tmp_path).troubles[0].evidence
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    spec = study(candidate("ngram"), lora_modules=[f"mine={tmp_path}"], max_lora_rank=32)
    found = gather(spec, GPU, (), nobody, environ={})
    finding = only(found, "adapter_files")
    assert finding.severity is Severity.REJECT_STUDY
    assert finding.remedy == "set target.engine_args.max_lora_rank: 64"


def test_everything_is_gathered_side_by_side(tmp_path: Path) -> None:
    """The target, each draft under its candidate's name, tokens only where ids must agree."""
    target, draft = write_model(tmp_path / "t"), write_model(tmp_path / "d", HEAD)
    spec = study(
        Candidate(name="d", method="draft_model", model=str(draft)),
        Candidate(name="e", method="eagle", model=str(draft)),
        candidate("ngram", name="n"),
    )
    spec = replace(spec, target=replace(spec.target, model=str(target)))
    named = gather(spec, GPU, (), nobody, environ={"HF_HOME": "/no", "A": "1"})
    assert set(named.drafts) == {"d", "e"}
    assert named.target.vocabulary is not None
    assert named.drafts["d"].vocabulary is not None
    assert named.drafts["e"].vocabulary is None
    assert named.env["A"] == "1"


def test_a_checkpoint_that_was_not_read_is_nobody_s_fault() -> None:
    """Facts that are not known make no rule speak, but the one that says so."""
    blank = Checkpoint(name="org/m", unchecked="it is not on this machine")
    for method in ("draft_model", "eagle", "eagle3", "medusa", "dflash"):
        found = facts(candidate(method, 1), target=blank, draft=blank)
        assert {f.severity for f in findings(found)} == {Severity.WARN}, method
