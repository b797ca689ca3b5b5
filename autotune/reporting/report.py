"""The report of a study: report.md with its figures and the table of its curves.

Rules: the verdict comes first, in a sentence that can be quoted alone; every file is written
beside its name and then renamed, so a reader never sees half of one; a picture that cannot be drawn
costs the picture, never the report.
"""

import logging
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.core.memory import HEADROOM, Choice
from autotune.core.objective import FIGURES
from autotune.core.pareto import tradeoffs
from autotune.core.plan import pending
from autotune.core.proportion import CONFIDENCE
from autotune.core.recommendation import Basis, Recommendation
from autotune.core.redaction import shown, withheld
from autotune.core.replychecks import NO_CHECKS, ReplyChecks
from autotune.core.study import StudySpec
from autotune.core.trial import Record
from autotune.core.wording import conditions, effect_words, headline, queue_words, slo_words
from autotune.files import write_bytes
from autotune.reporting import diagnosis, replies, schedule, tables
from autotune.reporting.curves import curves_csv
from autotune.reporting.figures import figures
from autotune.reporting.pareto import pareto_figures

log = logging.getLogger(__name__)

TEMPLATES = Path(__file__).parent / "templates"


def write_report(
    folder: Path,
    spec: StudySpec,
    records: Sequence[Record],
    result: Recommendation,
    provenance: Mapping[str, JSON],
    checks: ReplyChecks = NO_CHECKS,
) -> list[Path]:
    """Write report.md, curves.csv and the figures; returns what was written."""
    drawn = _write_figures(folder, spec, records, result)
    files: dict[str, bytes] = {
        "curves.csv": curves_csv(result).encode(),
        # Last, so that a report never points to figures that are not there yet.
        "report.md": render_report(
            spec, records, result, provenance, checks, figures_drawn=bool(drawn)
        ).encode(),
    }
    return drawn + [write_bytes(folder / name, content) for name, content in files.items()]


def _write_figures(
    folder: Path, spec: StudySpec, records: Sequence[Record], result: Recommendation
) -> list[Path]:
    try:
        drawn = figures(spec, result) | pareto_figures(spec, records, result)
        return [write_bytes(folder / name, content) for name, content in drawn.items()]
    except (OSError, ValueError, RuntimeError) as error:  # all that matplotlib raises of its own
        log.warning("the report has no figures: %s: %s", type(error).__name__, error)
        return []


def render_report(
    spec: StudySpec,
    records: Sequence[Record],
    result: Recommendation,
    provenance: Mapping[str, JSON],
    checks: ReplyChecks = NO_CHECKS,
    *,
    figures_drawn: bool = True,
) -> str:
    """The text of report.md; it points to figures that were drawn only."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(enabled_extensions=("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.get_template("report.md.j2")
    return template.render(
        table=tables.markdown,
        **_verdict(spec, result, checks),
        left=[_sentence(launch.why) for launch in pending(spec, records)],
        figures=figures_drawn,
        **_evidence(spec, result),
        **_memory(result.memory),
        **schedule.section(spec, result),
        pareto=tables.pareto_table(tradeoffs(records, result.search)),
        **_replies(spec, result, checks),
        **diagnosis.section(spec, records, result, checks),
        **_history(records),
        **_deployment(spec, result, provenance),
    )


def _verdict(spec: StudySpec, result: Recommendation, checks: ReplyChecks) -> dict[str, object]:
    named = {c.name for c in spec.candidates} | set(spec.left_out)
    told = (*result.reasons, *checks.remarks)
    return {
        "title": f"Speculative decoding for {Path(spec.target.model).name}: study {spec.name}",
        "headline": headline(spec, result),
        "reasons": [_sentence(reason, named) for reason in told],
        "unverified": result.speculates and result.basis is not Basis.CONFIRMED,
    }


def _evidence(spec: StudySpec, result: Recommendation) -> dict[str, object]:
    best = result.finalist
    k = best.num_speculative_tokens if best else 0
    confirmed = result.basis is Basis.CONFIRMED
    return {
        "levels": tables.levels_table(result) if result.levels else [],
        "objective": _objective(spec),
        "by_steps": any(level.by_steps for level in result.levels),
        "latencies": tables.latencies_table(result.levels),
        "few": tables.few_for_p99(result.levels),
        "queues": [queue_words(lv) for lv in result.levels if lv.request_rate is not None],
        "goodput": tables.goodput_table(result.levels),
        "slo": slo_words(spec.workload.slo) if spec.workload.slo else "",
        "compared": f"{best.candidate} at K = {k} against plain decoding" if best else "",
        "prompts": "on the confirmation's prompts" if confirmed else "on the search's prompts",
        "conditions": conditions(spec),
        "max_tokens": spec.workload.max_tokens,
        "confidence": f"{CONFIDENCE:.0%}",
        "effect": effect_words(result.noise.launch),
        "curves": bool(result.search),
        "diluted": ", ".join(c.name for c in spec.candidates if not c.row.fixed_length),
        "knees": tables.knees_table(result),
    }


def _objective(spec: StudySpec) -> str:
    """What a speedup is a ratio of, where that is not the speed of replies."""
    figure = FIGURES[spec.objective.metric]
    if figure.by_steps:
        return ""
    if figure.less_is_better:
        return (
            f"Speedups are in {figure.gain}: that of plain decoding over the candidate's, block by "
            "block over the means of their passes."
        )
    return (
        f"Speedups are in {figure.gain}, good requests per second, the candidate's over that of "
        "plain decoding: from the pooled counts, each with a half added, so that none is 0; the "
        "interval is that of the counts or that of the blocks, whichever is wider."
    )


def _memory(choice: Choice | None) -> dict[str, object]:
    if choice is None or (choice.need_tokens is None and len(choice.options) == 1):
        return {"memory": [], "memory_headroom": f"{HEADROOM:.0%}"}
    need = "" if choice.need_tokens is None else f"{choice.need_tokens:,}"
    cold = "" if choice.confirmed_peak is None else f"{choice.confirmed_peak:.1%}"
    return {
        "memory": tables.memory_table(choice),
        "memory_why": _sentence(choice.why),
        "memory_need": need,
        "memory_cold": cold,
        "memory_headroom": f"{HEADROOM:.0%}",
    }


def _replies(spec: StudySpec, result: Recommendation, checks: ReplyChecks) -> dict[str, object]:
    return {
        "temperature": f"{spec.workload.sampling.temperature:g}",
        "matches": replies.matches_table(checks, result),
        "shifts": replies.shifts_table(checks, result),
        "buckets": replies.buckets_table(checks, result),
    }


def _history(records: Sequence[Record]) -> dict[str, object]:
    total, invalid = tables.count_passes(records)
    valid = f"{invalid} of them invalid and left out" if invalid else "all of them valid"
    return {
        "launches": tables.launches_table(records),
        "failures": tables.failures_table(records),
        "passes": f"{counted(total, 'pass', 'passes')} measured, {valid}.",
        "invalid": tables.invalid_table(records),
    }


def _deployment(
    spec: StudySpec, result: Recommendation, provenance: Mapping[str, JSON]
) -> dict[str, object]:
    given = provenance.get("engine_env")
    env = {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}
    env |= spec.target.env
    hidden = [f"`{name}` (set, its value is not shown)" for name in withheld(env)]
    return {
        "facts": tables.facts_table(provenance),
        "environment": [f"`{k}={v}`" for k, v in shown(env).items()] + hidden,
        "exports": [(name, shlex.quote(value)) for name, value in shown(env).items()],
        "deploys": _deploys(result),
        "local_models": _local_models(spec, result),
        "reproduce": (
            f"Seed {spec.search.seed}; {counted(len(spec.workload.search), 'prompt')} for the "
            f"search and {counted(len(spec.workload.confirmation), 'other')} for the confirmation, "
            f"{spec.workload.requests_per_stream} requests per concurrent stream in a block."
        ),
    }


def _deploys(result: Recommendation) -> str:
    best = result.finalist
    if result.speculates and best:
        return (
            f"`vllm.yaml` serves with {best.candidate} at num_speculative_tokens = "
            f"{best.num_speculative_tokens} and gpu_memory_utilization = "
            f"{best.gpu_memory_utilization:g}."
        )
    return "`vllm.yaml` serves without speculation."


def _local_models(spec: StudySpec, result: Recommendation) -> list[str]:
    models = [spec.target.model]
    if result.speculates and result.finalist:
        models.append(spec.candidate(result.finalist.candidate).model or "")
    return [f"`{model}`" for model in models if model.startswith(("/", ".", "~"))]


def _sentence(text: str, named: Collection[str] = ()) -> str:
    """With a capital, unless it begins with a name, which stays as the file has it."""
    first = text.partition(" ")[0]
    begins = text if "_" in first or first in named else f"{text[:1].upper()}{text[1:]}"
    return f"{begins}."
