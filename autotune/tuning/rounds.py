"""Which pass of a launch is next: round by round, K in a seeded order, until enough is known.

Rules: in a round every K that is measured at a level runs the same block there, the drift reference
K = 0 included; what to measure is asked anew after each round (core/stages/asking.py), so one
launch screens a candidate and, unless it is beaten, goes on to the other levels and the K around
the best; what is known or beaten is measured no further; time is asked for after every round.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from autotune.core.noise import noise_of
from autotune.core.stages.asking import Asked, asked, contest, purpose
from autotune.core.stages.points import enough, of_point, of_search
from autotune.core.stages.survey import LIKELY, Survey, compared
from autotune.core.stopping import ERROR, State, Stopped, outdone, settle
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import BASELINE, Launch, Measurement, Pass, Record, Stage
from autotune.core.workload import MIN_BLOCKS, Level
from autotune.tuning.events import CandidateBeaten, KStopped, Listener

OVERTIME = 1.5
"""A launch past its time ends after min_blocks, past this multiple of it after two; the baseline
never before min_blocks."""
IN_A_HURRY = 0.5
"""Share of its time after which a screening of two blocks has to do."""

Place = tuple[int, int, list[int]]
"""Block, concurrency, and the K that run it."""


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
    cut_short: bool = False
    """Whether the launch ended at its limit: what it lacks was not measured in vain."""
    _hurry: bool = False
    _turns: dict[int, int] = field(default_factory=dict)
    """By concurrency: the position of the next block."""
    _asked: Asked = field(default_factory=dict)
    _purpose: set[tuple[int, int]] = field(default_factory=set)
    _first: Asked = field(default_factory=dict)
    _screening: bool = False

    def order(self) -> Iterator[tuple[int, int, int]]:
        """(block, concurrency, K) of each pass, decided when it is asked for."""
        launch = self.launch
        dice = Random(f"{self.spec.search.seed}/{launch.name}/{launch.stage}/{launch.repeat}")
        started = time.monotonic()
        self._begin()
        places = self._places()
        while places:
            for block, concurrency, ks in places:
                dice.shuffle(ks)
                for k in ks:
                    yield block, concurrency, k
            spent = time.monotonic() - started
            self._look(spent)
            places = [] if self.beaten else self._places()
            if self._time_up(spent, ahead=sum(len(ks) for _, _, ks in places)):
                return

    def active(self, concurrency: int) -> tuple[int, ...]:
        """The K measured next at a level, with K = 0 of a live launch beside them."""
        out = self._out(concurrency)
        ks = tuple(k for k in self._asked.get(concurrency, ()) if k not in out)
        beside = any(ks) and 0 in self.launch.num_speculative_tokens
        return (0, *ks) if beside else ks

    def _out(self, concurrency: int) -> set[int]:
        return {s.num_speculative_tokens for s in self.stopped if s.concurrency == concurrency}

    def pruned(self, k: int) -> str | None:
        """Why this K was stopped before its time; None if it was not, or not wherever it ran."""
        if self.beaten:
            return self.beaten
        mine = [s for s in self.stopped if s.num_speculative_tokens == k and s.beaten]
        ran = {p.concurrency for p in self.passes if p.num_speculative_tokens == k}
        everywhere = ran <= {s.concurrency for s in mine}
        return (
            "; ".join(f"at concurrency {s.concurrency} {s.why}" for s in mine if everywhere) or None
        )

    def _begin(self) -> None:
        """What the launch is for, and the first block that is new at each level."""
        levels, candidate = self.spec.workload.levels, self.launch.candidate
        if candidate is None or not self.launch.stage.searches:
            plain = self.launch.stage is Stage.BASELINE
            missing = [lv for lv in levels if not (plain and self._known_enough(lv))]
            ks = self.launch.num_speculative_tokens
            self._first = {lv.concurrency: ks for lv in missing or levels}
            self._purpose = {(c, k) for c in self._first for k in ks}
        else:
            # As the plan sees it: what it made this launch for is measured first.
            found = self._survey(candidate, error=LIKELY)
            self._first = asked(found, self.launch)
            self._screening = not found.screened
            self._purpose = self._purpose_of(found)
        self._asked = self._first
        self._turns = {lv.concurrency: self._first_turn(lv) for lv in levels}

    def _first_turn(self, level: Level) -> int:
        """The position of the first block: in the search one that is new; in a confirmation each
        round begins with others, so that several short ones see many prompts."""
        if self.launch.stage.prompts == "search":
            ks = self._first.get(level.concurrency, ())
            return min((len(self._known_blocks(level, k)) for k in ks), default=0)
        return self.launch.repeat * len(self._blocks(level)) // self.spec.search.confirm_rounds

    def _look(self, spent: float) -> None:
        """Judge what is known; baseline and confirmation are measured to the end."""
        candidate, levels = self.launch.candidate, self.spec.workload.levels
        if candidate is None or not self.launch.stage.searches:
            return
        allowed = self.launch.measure_s
        late = allowed is not None and spent > IN_A_HURRY * allowed
        self._hurry = self._hurry or (late and self._least_run(self._first) >= MIN_BLOCKS)
        state = self._state()
        for level in levels:
            self._settle(state, level)
        found = self._survey(candidate)
        decides = contest(found, self.launch)
        if decides:
            error = ERROR / max(map(self._looks, levels))
            least = min(map(state.least, decides.levels))
            self.beaten = outdone(self.spec, found.found, decides, error=error, least=least)
        if self.beaten:
            self.notify(CandidateBeaten(launch=self.launch, why=self.beaten))
            return
        self._purpose = self._purpose_of(found)
        self._asked = asked(found, self.launch, self._first)
        if self._hurry:
            due = {c: tuple(k for k in ks if self._is_due(c, k)) for c, ks in self._asked.items()}
            self._asked = due if any(due.values()) else self._asked

    def _purpose_of(self, found: Survey) -> set[tuple[int, int]]:
        return purpose(found, self.launch, self._first, screening=self._screening)

    def _is_due(self, concurrency: int, k: int) -> bool:
        return (concurrency, k) in self._purpose and len(self._run(concurrency, k)) < MIN_BLOCKS

    def _settle(self, state: State, level: Level) -> None:
        c = level.concurrency
        out = [s for s in self.stopped if s.concurrency == c]
        beaten = {s.num_speculative_tokens for s in out if s.beaten}
        known = {s.num_speculative_tokens for s in out}
        rivals = [k for k in self.launch.num_speculative_tokens if k not in beaten]
        for stopped in settle(state, level, rivals, self._looks(level)):
            if stopped.num_speculative_tokens not in known:
                self.stopped.append(stopped)
                self.notify(KStopped(launch=self.launch, stopped=stopped))

    def _state(self) -> State:
        everything = [*self.known, *State.records(self.launch, self.passes, self.fingerprint)]
        return State(
            spec=self.spec,
            launch=self.launch,
            known=self.known,
            passes=self.passes,
            fingerprint=self.fingerprint,
            noise=noise_of(everything, self.spec.workload.levels),
        )

    def _survey(self, candidate: Candidate, error: float = ERROR) -> Survey:
        """What is known of the candidate with this launch, which is under way and not over."""
        mine = [
            _unfinished(r, cut_short=not self._hurry)
            for r in State.records(self.launch, self.passes, self.fingerprint)
        ]
        records = [*of_search(self.known), *mine]
        return Survey(
            spec=self.spec,
            candidate=candidate,
            records=records,
            found=compared(self.spec, records),
            live=self.launch.live,
            error=error,
            exhausted=frozenset(
                (lv.concurrency, k)
                for lv in self.spec.workload.levels
                for k in self.launch.num_speculative_tokens
                if self._run(lv.concurrency, k) >= set(self._blocks(lv))
            ),
            begun=frozenset(
                (p.concurrency, p.num_speculative_tokens)
                for p in self.passes
                if p.num_speculative_tokens not in {0, *self._out(p.concurrency)}
            ),
        )

    def _places(self) -> list[Place]:
        """The next round: one block at each level, and the K that have not run it."""
        places: list[Place] = []
        for level in self.spec.workload.levels:
            c = level.concurrency
            active = self.active(c)
            block = self._next_block(level, [k for k in active if k > 0] or active)
            if block is not None:
                ks = [
                    k for k in active if len(active) == 1 or not k or block not in self._run(c, k)
                ]
                places.append((block, c, ks))
        return places

    def _next_block(self, level: Level, ks: Sequence[int]) -> int | None:
        """The next block, in turn, that one of these K has not run; a K that joins late runs what
        the others run now, and what it has missed at the end."""
        blocks, c = self._blocks(level), level.concurrency
        first = self._turns.get(c, 0)
        for turn in range(first, first + len(blocks)):
            block = blocks[turn % len(blocks)]
            if any(block not in self._run(c, k) for k in ks):
                self._turns[c] = turn + 1
                return block
        return None

    def _blocks(self, level: Level) -> Sequence[int]:
        """The blocks that are worth running: in the search those that the baseline has."""
        launch = self.launch
        there = self.spec.workload.blocks(launch.stage.prompts, level.concurrency)
        if launch.stage.searches and (plain := self._known_blocks(level, 0, BASELINE)):
            return sorted(plain)[: launch.max_blocks]
        return range(min(there, launch.max_blocks))

    def _run(self, concurrency: int, k: int) -> set[int]:
        """The blocks that need not be run again: tried here, or measured by an older baseline."""
        mine = {
            p.block
            for p in self.passes
            if (p.concurrency, p.num_speculative_tokens) == (concurrency, k)
        }
        if self.launch.stage is Stage.BASELINE:
            mine |= self._known_blocks(self.spec.workload.level(concurrency), k)
        return mine

    def _known_blocks(self, level: Level, k: int, name: str = "") -> set[int]:
        """The valid blocks that older launches of a point have."""
        mine = of_point(of_search(self.known), name or self.launch.name, k)
        found = [r.measurement.at(level.concurrency) for r in mine if r.measurement]
        return {p.block for passes in found for p in passes}

    def _known_enough(self, level: Level) -> bool:
        return enough(self.spec, of_point(of_search(self.known), BASELINE, 0), level)

    def _looks(self, level: Level) -> int:
        """How often new blocks of two K will have been looked at, at the most."""
        return max(len(self._blocks(level)) - self.spec.search.min_blocks + 1, 1)

    def _least_run(self, points: Asked) -> int:
        ran = [len(self._run(c, k)) for c, ks in points.items() for k in ks]
        return min(ran, default=0)

    def _time_up(self, spent: float, *, ahead: int) -> bool:
        allowed, limit = self.launch.measure_s, self.launch.limit_s
        if not ahead or not self.passes:
            return False
        another = spent * (1 + ahead / len(self.passes))
        self.cut_short = limit is not None and another > limit
        if self.cut_short or allowed is None:
            return self.cut_short
        done = min((len(self._run(c, k)) for c, k in self._purpose), default=MIN_BLOCKS)
        if done < self.spec.search.min_blocks:
            # Every candidate is paired with the baseline's blocks: fewer there, fewer everywhere.
            needed = self.launch.stage is Stage.BASELINE or done < MIN_BLOCKS
            return not needed and another > allowed * OVERTIME
        return another > allowed


def _unfinished(record: Record, *, cut_short: bool) -> Record:
    """A record of the launch under way: it does not say yet what its time allowed."""
    outcome = record.outcome
    if not isinstance(outcome, Measurement):
        return record
    return replace(record, outcome=replace(outcome, cut_short=cut_short))
