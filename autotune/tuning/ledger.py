"""The Optuna study is the ledger: every record is one finished trial, told once.

Rules: a record is written in one piece (`add_trial`), so that no kill leaves half of one; telling a
record twice changes nothing; values and failures are Optuna's own (COMPLETE with the speedup,
PRUNED where measuring stopped because it cannot win, FAIL with the cause), the whole record rides
along in user attributes; a setting that a candidate searches is a parameter of its trials alone,
`ngram.prompt_lookup_max`; values of two objectives never stand in one study: another objective
judges what was measured anew.
"""

import math
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TypedDict

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)

from autotune.core.axes import Scalar, same
from autotune.core.constraints import excess
from autotune.core.jsontype import JSON
from autotune.core.methods import MAX_SPECULATIVE_TOKENS
from autotune.core.space import values_of, with_variants
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Failure, Record, Stage
from autotune.tuning.attributes import RECORD, RECORD_ID, attributes, record_id, record_of
from autotune.tuning.search import distribution
from autotune.tuning.storage import full_disk_is_told, generation, is_of, open_storage
from autotune.tuning.values import value_of

Distributions = Mapping[str, BaseDistribution]
OBJECTIVE = "objective"
DISTRIBUTIONS = "distributions"
UID = "uid"


class Judged(TypedDict):
    """What the objective makes of a record, as Optuna is told."""

    state: optuna.trial.TrialState
    value: float | None
    constraints: dict[str, float]


class Ledger:
    """All records of a study, in an Optuna storage."""

    def __init__(self, storage: str, spec: StudySpec) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._storage = open_storage(storage)
        self._spec = spec
        self.judged_anew = False
        """Whether the objective had changed since the study was stored."""
        self._study = self._open()
        self._told = {t.user_attrs[RECORD_ID] for t in self._trials()}

    def records(self) -> list[Record]:
        """Everything told so far, in order."""
        return [record_of(trial.user_attrs) for trial in self._trials()]

    def tell(self, record: Record, speedup: float | None) -> None:
        """Add a record; `speedup` is the trial's value, None when it has none (a failure)."""
        key = record_id(record)
        if key in self._told:
            return
        trial = optuna.trial.create_trial(
            **self._judged(record, speedup),
            params=self._params(record),
            distributions=self._used(record),
            user_attrs=attributes(record),
        )
        with full_disk_is_told():
            self._study.add_trial(trial)
        self._told.add(key)

    @property
    def uid(self) -> str:
        """Tells this study from an earlier one of the same name that was deleted."""
        uid: str = self._study.user_attrs[UID]
        return uid

    @property
    def study_name(self) -> str:
        """The name under which Optuna and its dashboard know the study."""
        return self._study.study_name

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        """The trials that are records; whoever else adds some to the study is not our concern."""
        return [t for t in self._study.get_trials(deepcopy=False) if RECORD in t.user_attrs]

    def _open(self) -> optuna.Study:
        known_names = optuna.get_all_study_names(self._storage)
        names = sorted((n for n in known_names if is_of(self._spec.name, n)), key=generation)
        if names and self._cut_short(names[0]):
            optuna.delete_study(study_name=names.pop(0), storage=self._storage)
        if not names:
            return self._create(self._spec.name, self._wanted({}), uuid.uuid4().hex[:8])
        for name in names[1:]:
            # The copy into this one was cut short: the older one is deleted when it is whole.
            optuna.delete_study(study_name=name, storage=self._storage)
        study = optuna.load_study(study_name=names[0], storage=self._storage)
        known = _known(study)
        wanted = self._wanted(known)
        self.judged_anew = study.user_attrs.get(OBJECTIVE) != _objective(self._spec)
        same_study = wanted == known and not self.judged_anew
        return study if same_study else self._extend(study, wanted)

    def _cut_short(self, name: str) -> bool:
        """Whether a study was killed while it was made: what is written last is missing."""
        study = optuna.load_study(study_name=name, storage=self._storage)
        return DISTRIBUTIONS not in study.user_attrs and not study.get_trials(deepcopy=False)

    def _extend(self, old: optuna.Study, wanted: Distributions) -> optuna.Study:
        """Copy a study to its next generation: Optuna fixes the choices of a parameter for ever,
        and the value of a trial, too.

        A value that its parameter has no more is left out there; the record has it.
        """
        name = f"{self._spec.name}~{generation(old.study_name) + 1}"
        study = self._create(name, wanted, old.user_attrs[UID])
        trials = [t for t in old.get_trials(deepcopy=False) if RECORD in t.user_attrs]
        for trial, judged in zip(trials, self._judgements(trials), strict=True):
            kept = {n: v for n, v in trial.params.items() if n in wanted and _holds(wanted[n], v)}
            study.add_trial(
                optuna.trial.create_trial(
                    **judged,
                    params=kept,
                    distributions={n: wanted[n] for n in kept},
                    user_attrs=trial.user_attrs,
                )
            )
        optuna.delete_study(study_name=old.study_name, storage=self._storage)
        return study

    def _judgements(self, trials: Sequence[optuna.trial.FrozenTrial]) -> Iterator[Judged]:
        """What each trial is worth: as it stands, or by the present objective, with what was known
        when its launch had ended."""
        if not self.judged_anew:
            for trial in trials:
                constraints = dict(trial.constraints)
                yield {"state": trial.state, "value": trial.value, "constraints": constraints}
            return
        records = [record_of(trial.user_attrs) for trial in trials]
        ended = {record.launch_id: i + 1 for i, record in enumerate(records)}
        for record in records:
            known = records[: ended[record.launch_id]]
            speedup = value_of(with_variants(self._spec, known), known, record)
            yield self._judged(record, speedup)

    def _judged(self, record: Record, speedup: float | None) -> Judged:
        # Optuna takes infinity for the best value there is, and refuses NaN.
        value = speedup if speedup is not None and math.isfinite(speedup) else None
        pruned = record.measurement.pruned if record.measurement else None
        if isinstance(record.outcome, Failure) or (value is None and not pruned):
            state, value = optuna.trial.TrialState.FAIL, None
        else:
            # One that was beaten at the primary level has no overall speedup.
            state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
        return {"state": state, "value": value, "constraints": dict(excess(self._spec, record))}

    def _create(self, name: str, wanted: Distributions, uid: str) -> optuna.Study:
        study = optuna.create_study(study_name=name, storage=self._storage, direction="maximize")
        study.set_user_attr(OBJECTIVE, _objective(self._spec))
        study.set_user_attr(UID, uid)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(["speedup"])
        texts = {n: distribution_to_json(d) for n, d in wanted.items()}
        study.set_user_attr(DISTRIBUTIONS, texts)
        return study

    def _wanted(self, known: Distributions) -> dict[str, BaseDistribution]:
        """What every parameter may be, so that it has room for what is stored and what may come."""
        names = (BASELINE, *(c.name for c in self._spec.candidates))
        asked: dict[str, BaseDistribution] = {
            "candidate": CategoricalDistribution(names),
            "num_speculative_tokens": IntDistribution(0, MAX_SPECULATIVE_TOKENS),
            "gpu_memory_utilization": FloatDistribution(0.0, 1.0),
            "stage": CategoricalDistribution([stage.value for stage in Stage]),
        }
        for candidate in self._spec.candidates:
            for axis_name, axis in candidate.space.items():
                asked[f"{candidate.name}.{axis_name}"] = distribution(axis)
        return {**known, **{n: _with_room(known.get(n), d) for n, d in asked.items()}}

    def _used(self, record: Record) -> dict[str, BaseDistribution]:
        known = _known(self._study)
        return {name: known[name] for name in self._params(record)}

    def _params(self, record: Record) -> dict[str, Scalar]:
        trial = record.trial
        params: dict[str, Scalar] = {
            "candidate": trial.family,
            "num_speculative_tokens": trial.num_speculative_tokens,
            "gpu_memory_utilization": trial.gpu_memory_utilization,
            "stage": trial.stage.value,
        }
        for candidate in self._spec.candidates:
            if candidate.name == trial.family:
                values = values_of(candidate, trial) or {}
                params |= {f"{candidate.name}.{name}": v for name, v in values.items()}
        return params


def _objective(spec: StudySpec) -> dict[str, JSON]:
    """All that the value and the constraints of a trial follow from, beside its record."""
    objective, slo = spec.objective, spec.workload.slo
    return {
        "metric": objective.metric,
        "constraints": {c.metric: c.upper for c in objective.constraints},
        "levels": {str(level.concurrency): level.weight for level in spec.workload.levels},
        "slo": {name: bound for name, bound in asdict(slo).items() if bound} if slo else {},
    }


def _known(study: optuna.Study) -> dict[str, BaseDistribution]:
    texts: Mapping[str, str] = study.user_attrs.get(DISTRIBUTIONS, {})
    return {name: json_to_distribution(text) for name, text in texts.items()}


def _with_room(known: BaseDistribution | None, asked: BaseDistribution) -> BaseDistribution:
    """What is asked for, with room for all that is stored where both are of one kind."""
    match known, asked:
        case CategoricalDistribution(), CategoricalDistribution():
            new = [c for c in asked.choices if not _holds(known, c)]
            return CategoricalDistribution([*known.choices, *new])
        case IntDistribution() | None, IntDistribution():
            ends = [d for d in (known, asked) if isinstance(d, IntDistribution)]
            low, high = min(d.low for d in ends), max(d.high for d in ends)
            return IntDistribution(low, high, log=asked.log and low > 0)
        case FloatDistribution() | None, FloatDistribution():
            bounds = [d for d in (known, asked) if isinstance(d, FloatDistribution)]
            lowest, highest = min(d.low for d in bounds), max(d.high for d in bounds)
            return FloatDistribution(lowest, highest, log=asked.log and lowest > 0)
        case _:
            return asked


def _holds(distribution: BaseDistribution, value: object) -> bool:
    match distribution:
        case CategoricalDistribution():
            return any(same(value, choice) for choice in distribution.choices)
        case IntDistribution() | FloatDistribution():
            if isinstance(value, bool) or not isinstance(value, int | float):
                return False
            return distribution.low <= value <= distribution.high
        case _:
            return False


def read_records(storage: str, name: str) -> list[Record]:
    """The records of a study, read without changing anything; none if there is no such study."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    opened = open_storage(storage)
    names = sorted(
        (n for n in optuna.get_all_study_names(opened) if is_of(name, n)), key=generation
    )
    if not names:
        return []
    trials = optuna.load_study(study_name=names[0], storage=opened).get_trials(deepcopy=False)
    return [record_of(t.user_attrs) for t in trials if RECORD in t.user_attrs]
