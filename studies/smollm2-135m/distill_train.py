"""Teaches a draft to say what the target would have said: the loss and the loop for all three.

Every position of an answer is an exercise: the draft's distribution is drawn towards half the
target's own distribution and half the token that the target chose. Only the second counts at
temperature 0, the first keeps a small model from guessing wildly. The embeddings are the target's
and stay as they are.
"""

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from distill_data import STOP, Sequence
from torch import Tensor, nn

SEED = 17
FREQUENT = 6144  # token ids that every step's loss looks at; they cover 99 % of the answers
OTHERS = 768  # and this many of the rest by chance, standing in for all of them
PADDED_TOKENS = 3072  # in one step
LONGEST = 320  # tokens of a sequence that are kept
HARD_SHARE = 0.5  # of the goal: the target's choice rather than its distribution
ROWS = 256  # positions whose logits are held at once


@dataclass(frozen=True)
class Batch:
    """Sequences padded on the right. `counts` is true where a draft would have to guess."""

    tokens: Tensor  # (rows, length)
    features: Tensor  # (rows, length, hidden); [:, i] is what the target predicts token i + 1 from
    counts: Tensor  # (rows, length); [:, i]: token i + 1 belongs to the answer


class Student(Protocol):
    """What the loop needs from a draft."""

    def loss(self, batch: Batch, head: "Head", progress: float) -> Tensor:
        """One step's loss; `progress` runs from 0 to 1."""


def groups_of(sequences: list[Sequence], epoch: int) -> list[list[Sequence]]:
    """One pass over the data: sequences of like length together, the batches in random order."""
    rng = random.Random(f"{SEED}-{epoch}")  # no secret hangs on it
    shuffled = rng.sample(sequences, len(sequences))
    groups: list[list[Sequence]] = []
    for start in range(0, len(shuffled), 512):
        group: list[Sequence] = []
        for item in sorted(shuffled[start : start + 512], key=lambda s: len(s.tokens)):
            if (len(group) + 1) * min(len(item.tokens), LONGEST) > PADDED_TOKENS:
                groups.append(group)
                group = []
            group.append(item)
        groups.append(group)
    rng.shuffle(groups)
    return groups


def stack(group: list[Sequence]) -> Batch:
    """Pad a few sequences to one batch."""
    length = min(max(len(s.tokens) for s in group), LONGEST)
    tokens = torch.full((len(group), length), STOP)
    features = torch.zeros(len(group), length, group[0].features.shape[1], dtype=torch.bfloat16)
    counts = torch.zeros(len(group), length, dtype=torch.bool)
    for row, item in enumerate(group):
        end = min(len(item.tokens), length)
        tokens[row, :end] = item.tokens[:end]
        known = min(len(item.features), length)
        features[row, :known] = item.features[:known]
        counts[row, item.prompt_length - 1 : end - 1] = True
    return Batch(tokens, features, counts)


# --- the loss ---------------------------------------------------------------------------------


class Head:
    """The target's output matrix, cut to the ids that matter in this step."""

    def __init__(self, embeddings: Tensor, frequent: Tensor) -> None:
        self.embeddings, self.frequent = embeddings, frequent
        self._rest = torch.ones(len(embeddings), dtype=torch.bool)
        self._rest[frequent] = False
        self._frequent_rows = embeddings[frequent]

    def choose(self, chosen: Tensor, step: int) -> None:
        """Take the frequent ids, those of this batch, and a sample for all others."""
        rest = self._rest.clone()
        seen: Tensor = chosen.unique()  # type: ignore[no-untyped-call]
        seen = seen[rest[seen]]
        rest[seen] = False
        pool = rest.nonzero()[:, 0]
        seeded = torch.Generator().manual_seed(SEED * 1_000_003 + step)
        others = pool[torch.randperm(len(pool), generator=seeded)[:OTHERS]]
        extra = torch.cat((seen, others))
        self.matrix = torch.cat((self._frequent_rows, self.embeddings[extra]))
        self.bias = torch.zeros(len(self.matrix))
        self.bias[-len(others) :] = math.log(len(pool) / len(others))
        self.index = torch.full((len(self.embeddings),), -1)
        self.index[torch.cat((self.frequent, extra))] = torch.arange(len(self.matrix))

    def loss(self, student: Tensor, teacher: Tensor, chosen: Tensor) -> Tensor:
        """Cross entropy of the students' features against the goal."""
        result: Tensor = SoftCrossEntropy.apply(  # type: ignore[no-untyped-call]
            student, teacher, self.index[chosen], self.matrix, self.bias
        )
        return result


class SoftCrossEntropy(torch.autograd.Function):
    """Cross entropy over some thousand ids without keeping a logit for the way back.

    The gradient is known at once (what was said less what was to be said), so it is computed on
    the way forth, some rows at a time: a third of the time of the plain formulation.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        student: Tensor,
        teacher: Tensor,
        chosen: Tensor,
        matrix: Tensor,
        bias: Tensor,
    ) -> Tensor:
        gradient = torch.empty_like(student)
        total = 0.0
        for at in range(0, len(student), ROWS):
            rows = slice(at, at + ROWS)
            goal = _logits(teacher[rows], matrix, bias).softmax(-1).mul_(1 - HARD_SHARE)
            goal[torch.arange(len(goal)), chosen[rows]] += HARD_SHARE
            said = _logits(student[rows], matrix, bias).log_softmax(-1)
            total -= float((goal * said).sum())
            gradient[rows] = said.exp_().sub_(goal).to(matrix.dtype) @ matrix
        ctx.save_for_backward(gradient / len(student))
        return student.new_tensor(total / len(student), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401  # torch
        (gradient,) = ctx.saved_tensors
        return gradient * upstream.to(gradient.dtype), None, None, None, None


def _logits(features: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    return (features.to(matrix.dtype) @ matrix.T).float().add_(bias)


def frequent_ids(sequences: list[Sequence]) -> Tensor:
    """The ids that occur most in the answers."""
    answers = torch.cat([s.tokens[s.prompt_length :] for s in sequences])
    counted = answers.bincount(minlength=STOP + 1)
    return counted.topk(min(FREQUENT, int((counted > 0).sum()))).indices.sort().values


# --- the loop ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: cosine from `rate` to a twentieth of it after a short rise."""

    steps: int
    rate: float
    rise: int = 50

    def at(self, step: int) -> float:
        """The learning rate at `step`."""
        if step < self.rise:
            return self.rate * (step + 1) / self.rise
        through = (step - self.rise) / max(1, self.steps - self.rise)
        return self.rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * through)))


def train(
    student: nn.Module, sequences: list[Sequence], head: Head, schedule: Schedule, keep: Path
) -> Iterator[tuple[int, str]]:
    """Run the schedule, resuming from `keep` if it exists; yield the step and a line at times."""
    optimiser = torch.optim.AdamW(
        student.parameters(), lr=schedule.rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True
    )
    step = done = _resume(student, optimiser, keep)
    start, seen, smooth = time.monotonic(), 0, 0.0
    for batch in _endless(sequences, skip=done):
        for group in optimiser.param_groups:
            group["lr"] = schedule.at(step)
        value = _one_step(student, optimiser, batch, head, step / schedule.steps, step)
        step += 1
        seen += int(batch.counts.sum())
        smooth = value if step == done + 1 else 0.98 * smooth + 0.02 * value
        if step % 50 == 0 or step == schedule.steps:
            _keep(student, optimiser, step, keep)
            rate = seen / (time.monotonic() - start)
            yield step, f"step {step} of {schedule.steps}, loss {smooth:.3f}, {rate:.0f} tokens/s"
        if step >= schedule.steps:
            return


def _one_step(
    student: nn.Module,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    head: Head,
    progress: float,
    step: int,
) -> float:
    head.choose(batch.tokens, step)
    with torch.autocast("cpu", torch.bfloat16):
        loss: Tensor = student.loss(batch, head, progress)  # type: ignore[operator]  # Student
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


def _endless(sequences: list[Sequence], skip: int) -> Iterator[Batch]:
    epoch = 0
    while True:
        groups = groups_of(sequences, epoch)
        yield from map(stack, groups[skip:])  # one at a time: the padded features are large
        skip = max(0, skip - len(groups))
        epoch += 1


def _keep(student: nn.Module, optimiser: torch.optim.Optimizer, step: int, path: Path) -> None:
    partial = path.with_suffix(".partial")
    state = {"student": student.state_dict(), "optimiser": optimiser.state_dict(), "step": step}
    torch.save(state, partial)
    partial.rename(path)


def _resume(student: nn.Module, optimiser: torch.optim.Optimizer, path: Path) -> int:
    if not path.exists():
        return 0
    state = torch.load(path)
    student.load_state_dict(state["student"])
    optimiser.load_state_dict(state["optimiser"])
    return int(state["step"])
