"""What is seen of a target: its files, the models beside it, the cache of the hub."""

import sys
from pathlib import Path

import pytest

from autotune.errors import UserError
from autotune.starting import beside, cached, has_package, read_target
from tests.starting.models import LLAMA, in_cache, model


def test_a_folder_is_read_from_its_headers(tmp_path: Path) -> None:
    """Configuration, sampling defaults, parameters; the same tokens have the same digest."""
    generation = {"temperature": 0.6}
    folder = model(
        tmp_path / "t",
        LLAMA | {"vocab_size": 3},
        parameters=7_000_000_000,
        tokens=("a", "b", "c"),
        generation_config=generation,
    )
    model(tmp_path / "same", LLAMA | {"vocab_size": 3}, tokens=("a", "b", "c"))
    model(tmp_path / "other", LLAMA | {"vocab_size": 3}, tokens=("a", "c", "b"))
    target = read_target(str(folder))
    assert (target.billions, target.vocab_size, target.generation) == (7.0, 3, generation)
    other, same = beside(str(folder), target)
    assert same.vocabulary == target.vocabulary != other.vocabulary
    assert [other.label, same.label] == ["other", "same"]


def test_a_model_of_the_hub_is_what_the_cache_has_of_it(tmp_path: Path) -> None:
    """Its configuration if it is there; else its name, and nothing is asked of the network."""
    model(in_cache(tmp_path, "org/here-7B"), LLAMA | {"vocab_size": 5})
    assert read_target("org/here-7B", tmp_path).vocab_size == 5
    unseen = read_target("org/not-here-7B", tmp_path)
    assert (unseen.config, unseen.billions) == ({}, 7.0)
    assert [one.name for one in cached(unseen, tmp_path)] == ["org/here-7B"]
    assert cached(unseen, tmp_path / "no-cache") == []


@pytest.mark.parametrize("name", ["one", "a/b/c", "./missing"])
def test_what_can_be_no_model_is_refused(name: str, tmp_path: Path) -> None:
    """Neither a folder nor org/name."""
    with pytest.raises(UserError, match="neither a folder here nor"):
        read_target(name, tmp_path)


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    """It is not a model's."""
    with pytest.raises(UserError, match=r"no config\.json"):
        read_target(str(tmp_path))


def test_broken_files_count_as_not_there(tmp_path: Path) -> None:
    """Neither half a header nor a tokenizer that is no JSON is an error here."""
    folder = model(tmp_path / "t", LLAMA)
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"\xff" * 12)
    found = read_target(str(folder))
    assert (found.vocabulary, found.shapes, found.model_type) == ("", {}, "llama")


def test_the_engine_s_own_interpreter_is_asked(tmp_path: Path) -> None:
    """Ours directly, another by running it; one that does not run is told."""
    assert has_package(sys.executable, "json")
    assert not has_package(sys.executable, "no_such_package_anywhere")
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert has_package(str(link), "json")
    with pytest.raises(UserError, match="does not run"):
        has_package(str(tmp_path / "nothing"), "json")
