"""The three drafts as students: how each begins, what it is asked, and how it is written out."""

from collections.abc import Mapping
from pathlib import Path

import torch
from distill_data import Sequence
from distill_llama import (
    GROUP,
    HIDDEN,
    WIDTH,
    Attend,
    Layer,
    Llama,
    attend_causally,
    load_llama,
    rotation_at,
)
from distill_train import Batch, Head, stack
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

FEATURE_WEIGHT = 0.2  # of a draft model's loss: how far its feature is from the target's
HEAD_FEATURE_WEIGHT = 0.5  # for the EAGLE head, which goes on from its own features
PASS_WEIGHT = 0.8  # each guess further ahead counts this much of the one before
PASSES = 3  # guesses ahead that the EAGLE head practises


class DraftModel(nn.Module):
    """A small Llama that reads the tokens alone (vLLM's draft_model)."""

    def __init__(self, llama: Llama, embeddings: Tensor) -> None:
        super().__init__()
        self.llama = llama
        self.embeddings = embeddings  # a plain attribute: neither trained nor written

    def features(self, tokens: Tensor) -> Tensor:
        """What it predicts each next token from."""
        x = functional.embedding(tokens, self.embeddings)
        positions = torch.arange(tokens.shape[1])[None]
        attends: list[Attend] = [attend_causally] * len(self.llama.layers)
        out: Tensor = self.llama(x, rotation_at(positions, x.dtype), attends)
        return out

    def loss(self, batch: Batch, head: Head, progress: float) -> Tensor:
        """Cross entropy, and a little of the distance to the target's features."""
        student = self.features(batch.tokens)[batch.counts]
        teacher = batch.features[batch.counts]
        chosen = batch.tokens.roll(-1, dims=1)[batch.counts]
        distance = (student.float() - teacher.float()).square().mean()
        distance = distance / teacher.float().square().mean()
        return head.loss(student, teacher, chosen) + FEATURE_WEIGHT * distance

    def guesses(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Features, and where they count; one guess ahead is all that a test needs."""
        return [(self.features(batch.tokens), batch.counts)]

    def tensors(self) -> dict[str, Tensor]:
        """The trained weights under published names."""
        return {f"model.{name}": weight for name, weight in self.llama.state_dict().items()}


class EagleHead(nn.Module):
    """One layer on the target's feature and the token after it (EAGLE-1, vLLM's eagle).

    At index i it sees feature i and token i + 1, and its output stands for feature i + 1.
    """

    def __init__(self, embeddings: Tensor) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.layers = nn.ModuleList([Layer(input_norm=False)])
        self.embeddings = embeddings
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)
        with torch.no_grad():  # begin by passing the feature on, a bit smaller
            self.fc.weight[:, HIDDEN:] = 0.6 * torch.eye(HIDDEN)

    def unroll(self, batch: Batch, passes: int) -> list[Tensor]:
        """Its outputs for the first guess ahead, the second and so on, as at run time.

        In pass p it goes on from its own last output, while what lies further back in its cache
        still comes from the target: see Ahead.
        """
        tokens = batch.tokens.roll(-1, dims=1)
        embedded = functional.embedding(tokens, self.embeddings)
        rotation = rotation_at(torch.arange(tokens.shape[1])[None], embedded.dtype)
        features, memory, outputs = batch.features, Ahead(), []
        for _ in range(passes):
            x = self.fc(torch.cat((embedded, features), dim=-1))
            outputs.append(self.layers[0](x, rotation, memory.attend))
            features = outputs[-1].roll(1, dims=1)
        return outputs

    def loss(self, batch: Batch, head: Head, progress: float) -> Tensor:
        """The passes' losses, those further ahead weighing less."""
        passes = PASSES - 1 if progress < 0.3 else PASSES  # noqa: PLR2004
        total = torch.zeros(())
        for ahead, (student, counts) in enumerate(self._guessed(batch, passes)):
            teacher = batch.features.roll(-1, dims=1)[counts]
            chosen = batch.tokens.roll(-2, dims=1)[counts]
            distance = functional.smooth_l1_loss(student[counts].float(), teacher.float())
            said = head.loss(student[counts], teacher, chosen)
            total = total + PASS_WEIGHT**ahead * (said + HEAD_FEATURE_WEIGHT * distance)
        return total

    def _guessed(self, batch: Batch, passes: int) -> list[tuple[Tensor, Tensor]]:
        counts = batch.counts.roll(-1, dims=1)  # index i guesses token i + 2
        counts[:, -2:] = False
        return [(output, counts) for output in self.unroll(batch, passes)]

    def guesses(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Features for five guesses ahead, and where they count."""
        return self._guessed(batch, passes=5)

    def tensors(self) -> dict[str, Tensor]:
        """The trained weights under published names."""
        return dict(self.state_dict())


class Ahead:
    """Attention of pass p: to pass 0 up to p places back, then to one place of each later pass."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend in the next pass, and remember its keys for those after it."""
        self.keys.append(k.repeat_interleave(GROUP, dim=1))
        self.values.append(v.repeat_interleave(GROUP, dim=1))
        ahead = len(self.keys) - 1
        if ahead == 0:
            return functional.scaled_dot_product_attention(
                q, self.keys[0], self.values[0], is_causal=True
            )
        scores = (q @ self.keys[0].transpose(-1, -2)).float()
        length = q.shape[2]
        allowed = torch.ones(length, length, dtype=torch.bool).tril(-ahead)
        scores = scores.masked_fill(~allowed, float("-inf"))
        shifts = [(number, ahead - number) for number in range(1, ahead + 1)]
        single = [
            (q * self.keys[number].roll(back, dims=2)).float().sum(-1, keepdim=True)
            for number, back in shifts
        ]
        weights = (torch.cat((scores, *single), dim=-1) / WIDTH**0.5).softmax(-1).to(q.dtype)
        mixed: Tensor = weights[..., :length] @ self.values[0]
        for column, (number, back) in enumerate(shifts, start=length):
            mixed = mixed + weights[..., column, None] * self.values[number].roll(back, dims=2)
        return mixed


# --- beginnings -------------------------------------------------------------------------------


def two_layers(weights: Mapping[str, Tensor], embeddings: Tensor) -> DraftModel:
    """The target's first and last layer."""
    return DraftModel(load_llama(_picked(weights, (0, 29)), depth=2).float(), embeddings)


def four_layers(
    weights: Mapping[str, Tensor], embeddings: Tensor, trained: Mapping[str, Tensor]
) -> DraftModel:
    """Two trained layers, and between them two of the target's that say nothing at first."""
    between = {
        name: torch.zeros_like(tensor) if "o_proj" in name or "down_proj" in name else tensor
        for name, tensor in _picked(weights, (0, 1, 2, 29)).items()
        if ".1." in name or ".2." in name
    }
    outer = {name.replace("layers.1.", "layers.3."): tensor for name, tensor in trained.items()}
    return DraftModel(load_llama({**between, **outer}, depth=4).float(), embeddings)


def _picked(weights: Mapping[str, Tensor], layers: tuple[int, ...]) -> dict[str, Tensor]:
    picked = {"model.norm.weight": weights["model.norm.weight"]}
    for place, layer in enumerate(layers):
        prefix = f"model.layers.{layer}."
        for name, tensor in weights.items():
            if name.startswith(prefix):
                picked[f"model.layers.{place}.{name.removeprefix(prefix)}"] = tensor
    return picked


def begin(name: str, target: Path, trained: Path) -> DraftModel | EagleHead:
    """The student that becomes draft `name`."""
    torch.manual_seed(17)
    weights = load_file(target / "model.safetensors")
    embeddings = weights["model.embed_tokens.weight"]
    if name == "eagle":
        return EagleHead(embeddings)
    if name == "draft-2l":
        return two_layers(weights, embeddings)
    return four_layers(weights, embeddings, load_file(trained / "draft-2l-half.safetensors"))


def finished(name: str, target: Path, path: Path) -> DraftModel | EagleHead:
    """Draft `name` as it was written to `path`."""
    embeddings = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    weights = load_file(path)
    if name == "eagle":
        head = EagleHead(embeddings)
        head.load_state_dict(weights)
        return head
    depth = sum(1 for tensor_name in weights if "q_proj" in tensor_name)
    return DraftModel(load_llama(weights, depth), embeddings)


def write(student: DraftModel | EagleHead, path: Path) -> None:
    """The trained weights in bf16."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.to(torch.bfloat16).contiguous() for name, t in student.tensors().items()}
    save_file(tensors, path, metadata={"format": "pt"})


@torch.inference_mode()
def agreement(student: DraftModel | EagleHead, sequences: list[Sequence]) -> list[float]:
    """How often the draft's first choice is the target's, by guess, the true tokens given."""
    right: dict[int, int] = {}
    asked: dict[int, int] = {}
    for at in range(0, len(sequences), 12):
        batch = stack(sequences[at : at + 12])
        with torch.autocast("cpu", torch.bfloat16):
            guesses = student.guesses(batch)
        shift = 2 if isinstance(student, EagleHead) else 1
        chosen = batch.tokens.roll(-shift, dims=1)
        for ahead, (features, counts) in enumerate(guesses):
            said = (features[counts].to(torch.bfloat16) @ student.embeddings.T).argmax(-1)
            right[ahead] = right.get(ahead, 0) + int((said == chosen[counts]).sum())
            asked[ahead] = asked.get(ahead, 0) + len(said)
    return [right[ahead] / asked[ahead] for ahead in sorted(asked)]
