"""Which ways to draft are proposed for a target, and which of them as comments."""

from autotune.core.checkpoint import Checkpoint
from autotune.core.jsontype import JSON
from autotune.starting import Proposal, propose

QWEN: dict[str, JSON] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 4096,
}
TARGET = Checkpoint(name="Qwen/Qwen3-8B", config=QWEN)


def named(found: list[Proposal], *, active: bool) -> list[str]:
    """Method, and model if there is one, of the proposals that are comments or not."""
    return [
        " ".join(str(p.entry[key]) for key in ("method", "model") if key in p.entry)
        for p in found
        if p.active == active
    ]


def test_a_target_that_the_tables_know() -> None:
    """Heads of its own, a sibling of the right size, and lookup."""
    found = propose(TARGET, [], suffix=True)
    assert named(found, active=True) == [
        "eagle3 RedHatAI/Qwen3-8B-speculator.eagle3",
        "eagle3 AngelSlim/Qwen3-8B_eagle3",
        "draft_model Qwen/Qwen3-1.7B",
        "draft_model Qwen/Qwen3-0.6B",
        "ngram",
        "suffix",
    ]
    assert named(found, active=False) == []


def test_what_is_at_hand_comes_first_and_once() -> None:
    """A cached head and a cached draft are not named a second time for the table's sake."""
    head = Checkpoint(name="AngelSlim/Qwen3-8B_eagle3", config={"hidden_size": 4096})
    draft = Checkpoint(name="Qwen/Qwen3-0.6B", config=QWEN)
    found = named(propose(TARGET, [head, draft], suffix=False), active=True)
    assert found[0] == "eagle3 AngelSlim/Qwen3-8B_eagle3"
    assert found.count(found[0]) == 1
    assert [x for x in found if x.startswith("draft_model")] == [
        "draft_model Qwen/Qwen3-0.6B",
        "draft_model Qwen/Qwen3-1.7B",
    ]


def test_layers_of_the_target_s_own() -> None:
    """K up to their number; a checkpoint that lost them gets a comment, an unknown kind too."""
    for layers, ks in ((1, [1, 2, 3]), (2, [1, 2])):
        config: dict[str, JSON] = {"model_type": "deepseek_v3", "num_nextn_predict_layers": layers}
        (mtp,) = [
            p
            for p in propose(Checkpoint(name="org/t", config=config), [], suffix=False)
            if p.entry["method"] == "mtp"
        ]
        assert (mtp.active, mtp.entry["num_speculative_tokens"]) == (True, ks)
    lost = Checkpoint(name="org/t", config={"model_type": "qwen3_next"})
    unknown = Checkpoint(name="org/t", config={"model_type": "new", "num_nextn_predict_layers": 1})
    for target in (lost, unknown):
        assert "mtp" in named(propose(target, [], suffix=False), active=False)
    assert "mtp" not in str(propose(TARGET, [], suffix=False))


def test_another_vocabulary_is_a_comment_with_the_way_out() -> None:
    """From 7B on Qwen2.5 pads its embedding further than its small models do."""
    target = Checkpoint(
        name="Qwen/Qwen2.5-14B-Instruct",
        config={"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 5120},
    )
    found = propose(target, [], suffix=False)
    small = next(p for p in found if p.entry.get("model") == "Qwen/Qwen2.5-1.5B-Instruct")
    assert not small.active
    assert small.entry["use_heterogeneous_vocab"] is True
    assert any("151936" in line and "152064" in line for line in small.why)


def test_the_same_size_of_vocabulary_is_not_the_same_vocabulary() -> None:
    """Where both tokenizers are at hand they are compared, token by token."""
    config: dict[str, JSON] = {
        "model_type": "odd",
        "architectures": ["OddForCausalLM"],
        "vocab_size": 9,
    }
    target = Checkpoint(name="./t-8B", config=config, vocabulary="one")
    same = Checkpoint(name="./same-1B", config=config, vocabulary="one")
    other = Checkpoint(name="./other-1B", config=config, vocabulary="two")
    found = propose(target, [same, other], suffix=False)
    assert "draft_model ./same-1B" in named(found, active=True)
    assert "draft_model ./other-1B" in named(found, active=False)


def test_what_cannot_draft_is_not_proposed() -> None:
    """Another family, a model as large, a head for another width or another target, an encoder."""
    near = [
        Checkpoint(name="org/other-1B", config=QWEN | {"vocab_size": 32000}),
        Checkpoint(name="org/large-7B", config=QWEN),
        Checkpoint(name="org/reader-1B", config=QWEN | {"architectures": ["Qwen3Model"]}),
        Checkpoint(name="./head", config={"hidden_size": 64}, shapes={"fc.weight": (64, 128)}),
        Checkpoint(
            name="org/head-of-another",
            config={
                "speculators_model_type": "eagle3",
                "speculators_config": {"verifier": {"name_or_path": "org/another"}},
            },
        ),
    ]
    found = str(propose(TARGET, near, suffix=False))
    assert not [one.name for one in near if one.name in found]


def test_a_head_of_the_same_width_is_proposed_with_a_doubt() -> None:
    """Its files do not say which target it was trained for."""
    head = Checkpoint(name="./head", config={"hidden_size": 8}, shapes={"fc.weight": (8, 16)})
    target = Checkpoint(name="./target", config={"hidden_size": 8, "vocab_size": 9})
    found = next(p for p in propose(target, [head], suffix=False) if p.entry.get("model"))
    assert (found.entry["method"], found.active) == ("eagle", True)
    assert "acceptance will tell" in " ".join(found.why)


def test_only_the_first_few_cost_launches() -> None:
    """Five drafts at hand: three are candidates, two are comments."""
    config: dict[str, JSON] = {"architectures": ["OddForCausalLM"], "vocab_size": 9}
    near = [Checkpoint(name=f"./d-{i}B", config=config) for i in range(1, 6)]
    found = propose(Checkpoint(name="./t-70B", config=config), near, suffix=None)
    assert named(found, active=True) == [*(f"draft_model ./d-{i}B" for i in (5, 4, 3)), "ngram"]
    assert named(found, active=False) == ["draft_model ./d-2B", "draft_model ./d-1B", "suffix"]


def test_two_models_of_one_last_name_get_names() -> None:
    """A candidate's name is the method and the last part of its model, which is the same here."""
    config: dict[str, JSON] = {"architectures": ["OddForCausalLM"], "vocab_size": 9}
    near = [Checkpoint(name=f"{org}/draft-1B", config=config) for org in ("a", "b")]
    found = propose(Checkpoint(name="c/t-8B", config=config), near, suffix=False)
    assert [p.entry["name"] for p in found if "name" in p.entry] == [
        "draft_model-a-draft-1B",
        "draft_model-b-draft-1B",
    ]
