"""best-config.yaml read back: what is deployed, and the study of one candidate that verifies it.

Rule: what the document says is taken as it is, what it does not say is not known; a document that
cannot be read is one message. Keys that a later version adds do no harm.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from pydantic import ValidationError

from autotune.core.jsontype import JSON
from autotune.core.statistics import Interval
from autotune.core.study import Candidate, Constraint, Objective, Search, StudySpec, Target
from autotune.core.workload import MIN_BLOCKS, Level, Prompt, Sampling, Slo, Workload
from autotune.errors import UserError
from autotune.exporters._document import BLOCKS, Document
from autotune.exporters.best_config import SCHEMA_VERSION, prompts_sha256
from autotune.exporters.vllm_yaml import PLUGIN as VLLM_YAML

ROUNDS = 2
"""How often plain decoding and the deployment are launched in turn: A B A B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A recommended deployment, as deploy tooling has it."""

    file: Path
    document: Mapping[str, JSON]
    parsed: Document

    @property
    def study(self) -> str:
        """The study that recommended it."""
        return self.parsed.provenance.study

    @property
    def speculates(self) -> bool:
        """Whether the engine is to speculate; plain decoding else."""
        return self.parsed.engine.speculative_config is not None

    @property
    def unverified(self) -> bool:
        """Whether it was never launched as it is deployed."""
        return self.parsed.unverified

    @property
    def stale_paths(self) -> Sequence[str]:
        """Paths in the document; where one of them differs the evidence no longer holds."""
        return self.parsed.goes_stale_when_changed

    @property
    def prompts_sha256(self) -> str:
        """Of the prompts that the evidence is from."""
        return self.parsed.evidence.workload.prompts_sha256

    @property
    def speedup(self) -> Interval | None:
        """As recorded; None where nothing was measured."""
        ends = self.parsed.evidence.speedup
        return Interval(mean=ends.mean, low=ends.low, high=ends.high) if ends else None

    @property
    def engine(self) -> str:
        """The name of the engine's plugin."""
        return self.parsed.engine.name

    @property
    def launcher(self) -> tuple[str, ...]:
        """argv prefix that starts the engine; empty: beside autotune."""
        return self.parsed.engine.launcher

    @property
    def env(self) -> Mapping[str, str]:
        """Environment variables of the engine, credentials apart."""
        return self.parsed.engine.env

    @property
    def env_withheld(self) -> Sequence[str]:
        """Variables that the engine had, and whose values the document must not hold."""
        return self.parsed.engine.env_withheld

    @property
    def vllm_yaml(self) -> Path:
        """The file that the engine is started from, beside this one."""
        return self.file.with_name(VLLM_YAML.filename)

    @property
    def as_measured(self) -> bool:
        """Whether vllm.yaml is there, and is the file that the document is about."""
        if not self.vllm_yaml.is_file():
            return False
        digest = hashlib.sha256(self.vllm_yaml.read_bytes()).hexdigest()
        return digest == self.parsed.vllm_yaml_sha256

    def spec(self, prompts: Sequence[Prompt], root: Path, search: Search | None) -> StudySpec:
        """The study of this one configuration on these prompts.

        A model in a relative folder is looked for below `root`. `search` is that of the study
        which recommended it, where that is at hand.
        """
        args, workload = self.parsed.engine.args, self._workload(tuple(prompts))
        asked = self.parsed.evidence.objective
        bounds = (Constraint(metric=name, upper=upper) for name, upper in asked.constraints.items())
        objective = Objective(
            metric=asked.metric,
            tolerance=asked.tolerance,
            min_gain=asked.min_gain,
            constraints=tuple(bounds),
        )
        return StudySpec(
            name=self.study,
            target=Target(
                model=_found(args.model, root),
                engine=self.engine,
                engine_args=args.model_extra or {},
                env=self.env,
                launcher=self.launcher,
            ),
            workload=workload,
            candidates=tuple(self._candidates(root)),
            search=self._search(search or Search(), workload),
            objective=objective,
        )

    def now(self, about: Mapping[str, JSON], spec: StudySpec) -> dict[str, JSON]:
        """The document with what can have changed as it is now; `about` is the new provenance.

        Arguments, sampling and the models' names are the file's own: `spec` was made from them.
        """
        told, models = about.get("engine_env"), about.get("models")
        weights = next((c.weights for c in spec.candidates if c.weights), None)
        draft = {"draft": weights} if weights else {}
        env: dict[str, JSON] = {**self.env, **(told if isinstance(told, dict) else {})}
        engine = {"version": about.get("engine_version"), "env": env}
        sent = {"prompts_sha256": prompts_sha256(spec.workload.confirmation)}
        evidence = _mapping(self.document, "evidence")
        return {
            **self.document,
            "device": about.get("device"),
            "driver": about.get("driver"),
            "models": {**(models if isinstance(models, dict) else {}), **draft},
            "engine": {**_mapping(self.document, "engine"), **engine},
            "evidence": {**evidence, "workload": {**_mapping(evidence, "workload"), **sent}},
        }

    def _workload(self, prompts: tuple[Prompt, ...]) -> Workload:
        said = self.parsed.evidence.workload
        return Workload(
            search=prompts,
            confirmation=prompts,
            levels=tuple(
                Level(concurrency=lv.concurrency, weight=lv.weight, request_rate=lv.request_rate)
                for lv in self.parsed.evidence.levels
            )
            or (Level(concurrency=1),),
            max_tokens=said.max_tokens,
            sampling=Sampling(
                temperature=said.sampling.temperature, params=said.sampling.model_extra or {}
            ),
            ignore_eos=said.ignore_eos,
            chat_template_kwargs=said.chat_template_kwargs,
            requests_per_stream=said.requests_per_stream,
            slo=Slo(**said.slo) if said.slo else None,
            lora=said.lora,
            response_format=said.response_format,
        )

    def _candidates(self, root: Path) -> Sequence[Candidate]:
        config = self.parsed.engine.speculative_config
        if config is None:
            return ()
        settings = dict(config)
        method, k = str(settings.pop("method", "")), settings.pop("num_speculative_tokens", None)
        model = settings.pop("model", None)
        if not isinstance(k, int):
            rule = "engine.speculative_config has no num_speculative_tokens"
            raise UserError(f"{self.file}: {rule}")
        return (
            Candidate(
                name=self.parsed.evidence.candidate or method,
                method=method,
                model=_found(str(model), root) if model else None,
                num_speculative_tokens=(k,),
                settings=settings,
            ),
        )

    def _search(self, search: Search, workload: Workload) -> Search:
        measured = max((lv.blocks for lv in self.parsed.evidence.levels), default=BLOCKS)
        there = max(workload.blocks("confirmation", lv.concurrency) for lv in workload.levels)
        return replace(
            search,
            gpu_memory_utilization=(self.parsed.engine.args.gpu_memory_utilization,),
            min_blocks=MIN_BLOCKS,
            max_blocks=max(min(measured, there), MIN_BLOCKS),
            confirm_rounds=ROUNDS,
        )


def _mapping(values: Mapping[str, JSON], key: str) -> dict[str, JSON]:
    found = values.get(key)
    return found if isinstance(found, dict) else {}


def _found(model: str, root: Path) -> str:
    """A folder below the root with its whole path; anything else as it is written."""
    return str(root / model) if (root / model).is_dir() else model


def read_deployed(file: Path) -> Deployed:
    """Read best-config.yaml; whatever is wrong with it is one UserError."""
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        where = "a study leaves it in reports/<study>/"
        raise UserError(f"there is no file {file}: {where}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{file} cannot be read: {_one_line(error)}") from error
    if not isinstance(document, dict) or "schema_version" not in document:
        raise UserError(f"{file} is no best-config.yaml: it has no schema_version")
    if document["schema_version"] != SCHEMA_VERSION:
        raise UserError(
            f"{file} has schema_version {document['schema_version']}, this autotune knows "
            f"{SCHEMA_VERSION}: run the study again, or use the autotune that wrote it"
        )
    try:
        parsed = Document.model_validate(document)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
            for one in error.errors(include_url=False)
        )
        raise UserError(f"{file} is no best-config.yaml as autotune writes it: {wrong}") from error
    return Deployed(file=file, document=document, parsed=parsed)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
