"""The Optuna study is the ledger: every record is one finished trial, told once.

Rules: a record is written in one piece (`add_trial`), so that no kill leaves half of one; telling a
record twice changes nothing; values and failures are Optuna's own (COMPLETE with the speedup,
PRUNED where measuring stopped because it cannot win, FAIL with the cause), the whole record rides
along in user attributes; a setting that a candidate searches is a parameter of its trials alone,
`ngram.prompt_lookup_max`; the objective of a stored study is never changed silently.
"""

import errno
import itertools
import json
import math
import re
import sqlite3
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)
from pydantic import TypeAdapter
from sqlalchemy.exc import SQLAlchemyError

from autotune.core.axes import Scalar, same
from autotune.core.constraints import excess
from autotune.core.methods import MAX_SPECULATIVE_TOKENS
from autotune.core.space import values_of
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Failure, Record, Stage
from autotune.errors import UserError
from autotune.tuning.search import distribution

Distributions = Mapping[str, BaseDistribution]
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
RECORD, RECORD_ID = "record", "record_id"
OBJECTIVE = "objective"
DISTRIBUTIONS = "distributions"
UID = "uid"
CHUNK = 32_000
"""Characters of a record in one attribute. Optuna keeps them as TEXT, which in MySQL ends at 65,535
bytes, and escaping may double them."""
SQLITE_PATIENCE_S = 120


class Ledger:
    """All records of a study, in an Optuna storage."""

    def __init__(self, storage: str, spec: StudySpec) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._storage = _open_storage(storage)
        self._spec = spec
        self._study = self._open()
        self._told = {t.user_attrs[RECORD_ID] for t in self._trials()}

    def records(self) -> list[Record]:
        """Everything told so far, in order."""
        return [_record(trial) for trial in self._trials()]

    def tell(self, record: Record, speedup: float | None) -> None:
        """Add a record; `speedup` is the trial's value, None when it has none (a failure)."""
        key = record_id(record)
        if key in self._told:
            return
        # Optuna takes infinity for the best value there is, and refuses NaN.
        value = speedup if speedup is not None and math.isfinite(speedup) else None
        pruned = record.measurement.pruned if record.measurement else None
        if isinstance(record.outcome, Failure) or (value is None and not pruned):
            state, value = optuna.trial.TrialState.FAIL, None
        else:
            # One that was beaten at the primary level has no overall speedup.
            state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
        trial = optuna.trial.create_trial(
            state=state,
            value=value,
            params=self._params(record),
            distributions=self._used(record),
            user_attrs=_attributes(record),
            constraints=dict(excess(self._spec, record)),
        )
        with _full_disk_is_told():
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
        names = sorted((n for n in known_names if _is_of(self._spec.name, n)), key=_generation)
        if names and self._cut_short(names[0]):
            optuna.delete_study(study_name=names.pop(0), storage=self._storage)
        if not names:
            return self._create(self._spec.name, self._wanted({}), uuid.uuid4().hex[:8])
        for name in names[1:]:
            # The copy into this one was cut short: the older one is deleted when it is whole.
            optuna.delete_study(study_name=name, storage=self._storage)
        study = optuna.load_study(study_name=names[0], storage=self._storage)
        stored = study.user_attrs.get(OBJECTIVE)
        if stored != self._spec.objective.metric:
            raise UserError(
                f"study {self._spec.name!r} was made for the objective {stored!r}, the file asks "
                f"for {self._spec.objective.metric!r}: rename the study or restore the objective"
            )
        known = _known(study)
        wanted = self._wanted(known)
        return study if wanted == known else self._extend(study, wanted)

    def _cut_short(self, name: str) -> bool:
        """Whether a study was killed while it was made: what is written last is missing."""
        study = optuna.load_study(study_name=name, storage=self._storage)
        return DISTRIBUTIONS not in study.user_attrs and not study.get_trials(deepcopy=False)

    def _extend(self, old: optuna.Study, wanted: Distributions) -> optuna.Study:
        """Copy a study to its next generation: Optuna fixes the choices of a parameter for ever.

        A value that its parameter has no more is left out there; the record has it.
        """
        name = f"{self._spec.name}~{_generation(old.study_name) + 1}"
        study = self._create(name, wanted, old.user_attrs[UID])
        for trial in old.get_trials(deepcopy=False):
            if RECORD not in trial.user_attrs:
                continue
            kept = {n: v for n, v in trial.params.items() if n in wanted and _holds(wanted[n], v)}
            study.add_trial(
                optuna.trial.create_trial(
                    state=trial.state,
                    value=trial.value,
                    params=kept,
                    distributions={n: wanted[n] for n in kept},
                    user_attrs=trial.user_attrs,
                    constraints=dict(trial.constraints),
                )
            )
        optuna.delete_study(study_name=old.study_name, storage=self._storage)
        return study

    def _create(self, name: str, wanted: Distributions, uid: str) -> optuna.Study:
        study = optuna.create_study(study_name=name, storage=self._storage, direction="maximize")
        study.set_user_attr(OBJECTIVE, self._spec.objective.metric)
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


@contextmanager
def _full_disk_is_told() -> Iterator[None]:
    """SQLite's word for a full disk becomes the system's."""
    try:
        yield
    except optuna.exceptions.StorageInternalError as error:
        origin = getattr(error.__cause__, "orig", None)
        if getattr(origin, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL:
            raise
        raise OSError(errno.ENOSPC, f"the study's database: {origin}") from error


def record_id(record: Record) -> str:
    """What makes a record itself: the launch and the K."""
    return f"{record.launch_id}:{record.trial.num_speculative_tokens}"


def _attributes(record: Record) -> dict[str, object]:
    attributes: dict[str, object] = {
        RECORD_ID: record_id(record),
        **_chunks(record),
        "why": record.why,
        "launch": record.launch_id,
    }
    if isinstance(record.outcome, Failure):
        attributes |= {"cause": record.outcome.cause.value, "detail": record.outcome.detail}
        return attributes
    if record.outcome.pruned:
        attributes |= {"pruned": record.outcome.pruned}
    if record.outcome.spec and record.outcome.spec.profile:
        profile = record.outcome.spec.profile
        attributes |= {"acceptance_rate": profile.rate, "acceptance_length": profile.length}
    return attributes


def _chunks(record: Record) -> dict[str, str]:
    """The record as text, in attributes that any database holds: `record`, `record.1`, ..."""
    # ASCII, so that no character takes more than two bytes when Optuna escapes the text again.
    text = json.dumps(json.loads(_RECORD.dump_json(record)))
    parts = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
    return {RECORD if i == 0 else f"{RECORD}.{i}": part for i, part in enumerate(parts)}


def _record(trial: optuna.trial.FrozenTrial) -> Record:
    names = (RECORD, *(f"{RECORD}.{i}" for i in range(1, len(trial.user_attrs))))
    held = itertools.takewhile(trial.user_attrs.__contains__, names)
    return _RECORD.validate_json("".join(trial.user_attrs[name] for name in held))


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
    opened = _open_storage(storage)
    names = sorted(
        (n for n in optuna.get_all_study_names(opened) if _is_of(name, n)), key=_generation
    )
    if not names:
        return []
    trials = optuna.load_study(study_name=names[0], storage=opened).get_trials(deepcopy=False)
    return [_record(t) for t in trials if RECORD in t.user_attrs]


def _open_storage(url: str) -> optuna.storages.RDBStorage:
    # A dashboard or a slow disk may hold SQLite's lock for longer than Optuna would wait (5 s).
    options = {"connect_args": {"timeout": SQLITE_PATIENCE_S}} if url.startswith("sqlite") else {}
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=options)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise UserError(f"the Optuna storage {url!r} cannot be opened: {error}") from error
    except RuntimeError as error:
        # Optuna's own words: another schema version, and the command that upgrades it.
        raise UserError(f"the Optuna storage {url!r} is of another version: {error}") from error


def _is_of(name: str, study_name: str) -> bool:
    return re.fullmatch(re.escape(name) + r"(~\d+)?", study_name) is not None


def _generation(study_name: str) -> int:
    number = study_name.partition("~")[2]
    return int(number) if number else 1
