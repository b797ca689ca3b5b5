"""Which pass of a launch is next: block by block, K in a seeded order, until enough is known.

Rules: every K that is still measured at a level runs each block there, the drift reference K = 0
included, before the next block begins; what is known or beaten is measured no further; time is
asked for after every block.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from autotune.core.noise import noise_of
from autotune.core.stopping import State, Stopped, cannot_win, settle
from autotune.core.study import Level, StudySpec
from autotune.core.trial import Launch, Pass, Record, Stage
from autotune.tuning.events import CandidateBeaten, KStopped, Listener

OVERTIME = 1.5
"""A launch past its time ends after min_blocks, past this multiple of it after two; the baseline
never before min_blocks."""


@dataclass(slots=True, kw_only=True)
class Rounds:
    """The passes of one launch, as they are decided on."""

    spec: StudySpec
    launch: Launch
    known: Sequence[Record]
    fingerprint: str
    passes: Sequence[Pass]
    """What the launch has measured; it grows while the rounds go on."""
    notify: Listener
    stopped: list[Stopped] = field(default_factory=list)
    beaten: str | None = None
    """Why the candidate cannot win, once it is known."""

    def order(self) -> Iterator[tuple[int, int, int]]:
        """(block, concurrency, K) of each pass, decided when it is asked for."""
        spec, launch = self.spec, self.launch
        dice = Random(f"{spec.search.seed}/{launch.name}/{launch.stage}/{launch.repeat}")
        started = time.monotonic()
        for index in range(launch.max_blocks):
            for level in spec.workload.levels:
                if index >= spec.workload.blocks(launch.stage.prompts, level.concurrency):
                    continue
                ks = list(launch.num_speculative_tokens)
                dice.shuffle(ks)
                for k in ks:
                    if k in self.active(level.concurrency):
                        yield index, level.concurrency, k
            if index + 1 >= spec.search.min_blocks:
                self._stop()
            spent = time.monotonic() - started
            if self.over or self._time_up(spent, done=index + 1):
                return

    @property
    def over(self) -> bool:
        """Whether nothing is left to measure."""
        levels = self.spec.workload.levels
        return bool(self.beaten) or not any(self.active(lv.concurrency) for lv in levels)

    def active(self, concurrency: int) -> tuple[int, ...]:
        """The K still measured at a level; K = 0 beside others ends with the last of them."""
        out = {s.num_speculative_tokens for s in self.stopped if s.concurrency == concurrency}
        left = tuple(k for k in self.launch.num_speculative_tokens if k not in out)
        return left if any(left) or not out else ()

    def pruned(self, k: int) -> str | None:
        """Why this K was stopped before its time; None if it was not, or not at every level."""
        if self.beaten and k > 0:
            return self.beaten
        mine = [s for s in self.stopped if s.num_speculative_tokens == k and s.beaten]
        everywhere = len(mine) == len(self.spec.workload.levels)
        return (
            "; ".join(f"at concurrency {s.concurrency} {s.why}" for s in mine if everywhere) or None
        )

    def _stop(self) -> None:
        """Look at what is known; baseline and confirmation are measured to the end."""
        if self.launch.stage is not Stage.SCREEN:
            return
        everything = [*self.known, *State.records(self.launch, self.passes, self.fingerprint)]
        state = State(
            spec=self.spec,
            launch=self.launch,
            known=self.known,
            passes=self.passes,
            fingerprint=self.fingerprint,
            noise=noise_of(everything, self.spec.workload.levels),
        )
        for level in self.spec.workload.levels:
            active = self.active(level.concurrency)
            for stopped in settle(state, level, active, self._looks(level)):
                self.stopped.append(stopped)
                self.notify(KStopped(launch=self.launch, stopped=stopped))
        self.beaten = cannot_win(state, max(map(self._looks, self.spec.workload.levels)))
        if self.beaten:
            self.notify(CandidateBeaten(launch=self.launch, why=self.beaten))

    def _looks(self, level: Level) -> int:
        """How often this will be looked at, at the most."""
        blocks = self.spec.workload.blocks(self.launch.stage.prompts, level.concurrency)
        most = min(self.launch.max_blocks, blocks)
        return max(most - self.spec.search.min_blocks + 1, 1)

    def _time_up(self, spent: float, *, done: int) -> bool:
        allowed = self.launch.measure_s
        if allowed is None:
            return False
        another = spent * (done + 1) / done
        if done < self.spec.search.min_blocks:
            # Every candidate is paired with the baseline's blocks: fewer there, fewer everywhere.
            needed = self.launch.stage is Stage.BASELINE or done == 1
            return not needed and another > allowed * OVERTIME
        return another > allowed
