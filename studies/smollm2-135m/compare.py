"""Measures how many draft tokens vLLM accepts, for one or more sets of drafts.

    python compare.py first=distill/before second=drafts

Every draft of every set answers the same prompts (the confirmation split of prompts.jsonl, on
which nothing was trained or chosen) at K = 5 and temperature 0, in an engine of its own. The
table goes to the terminal, everything it stands on to results/drafts-acceptance.json. Intervals
are 95 % bootstrap intervals over prompts: tokens of one answer are no independent trials.
"""

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import composing
import models
import numpy as np
import rawtensors
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
TARGET = HERE / "models" / "target"
SCRATCH = HERE / "distill" / "compare"
RESULT = HERE / "results" / "drafts-acceptance.json"
K = 5
ANSWER = 64  # tokens at most
AT_A_TIME = 64  # acceptance at temperature 0 does not depend on it; the wait does
RESAMPLES = 2000
SEED = 17

Histogram = list[int]  # how many verification steps accepted 0, 1, ... K tokens


@dataclass(frozen=True)
class Outcome:
    """What one draft got accepted: a histogram for each prompt, and the time it all took."""

    histograms: dict[str, Histogram]
    tokens: int
    seconds: float


# --- the arithmetic ---------------------------------------------------------------------------


def acceptance(histograms: list[Histogram]) -> list[float]:
    """Share of drafts whose token at position 1, 2, ... was accepted."""
    total = np.asarray(histograms).sum(axis=0)
    return [float(total[position:].sum() / total.sum()) for position in range(1, len(total))]


def intervals(histograms: list[Histogram]) -> list[tuple[float, float]]:
    """95 % bootstrap intervals of `acceptance`, drawing whole prompts."""
    return _middle(_resampled(histograms))


def gains(before: list[Histogram], after: list[Histogram]) -> list[tuple[float, float]]:
    """95 % intervals of how much more is accepted `after`, the same prompts drawn for both."""
    return _middle(_resampled(after) - _resampled(before))


def _resampled(histograms: list[Histogram]) -> np.ndarray:
    counts = np.asarray(histograms)
    drawn = np.random.default_rng(SEED).integers(len(counts), size=(RESAMPLES, len(counts)))
    sums = counts[drawn].sum(axis=1)
    reached = sums[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
    shares: np.ndarray = reached / sums.sum(axis=1, keepdims=True)
    return shares


def _middle(values: np.ndarray) -> list[tuple[float, float]]:
    low, high = np.percentile(values, (2.5, 97.5), axis=0)
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]


# --- one engine, in a process of its own --------------------------------------------------------


def confirmation() -> list[dict[str, object]]:
    """The prompts of the confirmation split."""
    rows = [json.loads(line) for line in (HERE / "prompts.jsonl").read_text().splitlines() if line]
    return [row for row in rows if row["split"] == "confirmation"]


def measure(draft: Path, method: str, out: Path) -> None:
    """Answer all prompts with this draft and write an Outcome. Runs as a child process."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415  # half a minute, and only here

    engine = LLM(
        model=str(TARGET),
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=2048,
        max_num_seqs=AT_A_TIME,
        gpu_memory_utilization=0.15,  # of the RAM, on CPU
        seed=SEED,
        speculative_config={"model": str(draft), "method": method, "num_speculative_tokens": K},
        per_request_spec_decode_metrics="summary",
    )
    prompts = confirmation()
    sampling = SamplingParams(temperature=0, max_tokens=ANSWER)
    start = time.monotonic()
    answers = engine.chat([row["messages"] for row in prompts], sampling, use_tqdm=False)
    seconds = time.monotonic() - start
    firsts = [answer.outputs[0] for answer in answers]
    histograms = {
        str(row["id"]): list(first.spec_decode_metrics.histogram)
        for row, first in zip(prompts, firsts, strict=True)
        if first.spec_decode_metrics is not None  # an answer of one token drafts nothing
    }
    outcome = Outcome(histograms, sum(len(first.token_ids) for first in firsts), seconds)
    out.write_text(json.dumps(asdict(outcome)))


def measured(name: str, folder: Path, draft: models.Draft) -> Outcome:
    """Compose a draft of a set and measure it; a result that is already there is kept."""
    trained = rawtensors.read(folder / f"{draft.name}.safetensors")
    home = SCRATCH / f"{name}-{draft.name}"
    out = home / f"outcome-{rawtensors.digest(trained)[:16]}.json"
    if not out.is_file():
        home.mkdir(parents=True, exist_ok=True)
        composing.compose(draft, TARGET, trained, home)
        method = "draft_model" if draft.embeddings else "eagle"
        command = [sys.executable, __file__, "--measure", str(home), method, str(out)]
        with (home / "engine.log").open("w") as log:
            done = subprocess.run(command, env=_environment(), stdout=log, stderr=log, check=False)
        if done.returncode:
            sys.exit(f"vLLM failed on {home.name}; see {home / 'engine.log'}")
    found = json.loads(out.read_text())
    return Outcome(found["histograms"], found["tokens"], found["seconds"])


def _environment() -> dict[str, str]:
    """All cores for the model, and the OpenMP library that vLLM asks for, if installed."""
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"
    extra = {"VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}", "HF_HUB_OFFLINE": "1"}
    preload = {"LD_PRELOAD": str(openmp)} if openmp.is_file() else {}
    return {**extra, **preload, **os.environ}  # whoever sets these knows the machine better


# --- the report -------------------------------------------------------------------------------


def row_of(
    name: str, folder: Path, draft: models.Draft, before: Outcome | None
) -> dict[str, object]:
    """One line of the table with all that it stands on, and the gain over the first set."""
    outcome = measured(name, folder, draft)
    histograms = list(outcome.histograms.values())
    by_task = {
        task: acceptance([h for key, h in outcome.histograms.items() if key.startswith(task)])
        for task in sorted({key.rsplit("-", 1)[0] for key in outcome.histograms})
    }
    return {
        "set": name,
        "draft": draft.name,
        "weights": rawtensors.digest(rawtensors.read(folder / f"{draft.name}.safetensors")),
        "drafts": int(np.asarray(histograms).sum()),
        "acceptance": acceptance(histograms),
        "interval95": intervals(histograms),
        "mean_accepted_length": 1 + sum(acceptance(histograms)),
        "gain95_over_first_set": before and paired_gains(before, outcome),
        "by_task": by_task,
        "histograms": outcome.histograms,
    }


def paired_gains(before: Outcome, after: Outcome) -> list[tuple[float, float]]:
    """`gains` on the prompts that both have answered."""
    both = sorted(before.histograms.keys() & after.histograms.keys())
    return gains([before.histograms[key] for key in both], [after.histograms[key] for key in both])


def table_of(rows: list[dict[str, object]]) -> Table:
    """The table for the terminal."""
    table = Table("set", "draft", "drafts", *(f"pos {at}" for at in range(1, K + 1)), "length")
    for row in rows:
        shares = zip(row["acceptance"], row["interval95"], strict=True)  # type: ignore[call-overload]
        cells = [f"{share:.3f} ({low:.3f}-{high:.3f})" for share, (low, high) in shares]
        length = f"{row['mean_accepted_length']:.2f}"
        table.add_row(str(row["set"]), str(row["draft"]), str(row["drafts"]), *cells, length)
    return table


def engine_version() -> str:
    """The installed package that brings vLLM, and its version."""
    for package in ("vllm-cpu", "vllm"):
        with contextlib.suppress(PackageNotFoundError):
            return f"{package} {version(package)}"
    return "unknown"


def as_json(facts: dict[str, object], rows: list[dict[str, object]]) -> str:
    """The result as JSON with a line for each draft, so that a difference can be read."""
    head = json.dumps(facts, indent=1).removesuffix("\n}")
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    return f'{head},\n "rows": [\n  {lines}\n ]\n}}\n'


def main() -> None:
    """Measure the sets named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", metavar="NAME=FOLDER", help="default: drafts=drafts")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)  # the child process
    given = parser.parse_args()
    if given.measure:
        draft, method, out = given.measure
        measure(Path(draft), method, Path(out))
        return
    pairs = [text.split("=", 1) for text in given.sets or ["drafts=drafts"]]
    sets = [(name, (HERE / folder).resolve()) for name, folder in pairs]
    rows = []
    for draft in models.DRAFTS:
        before = None
        for name, folder in sets:
            rows.append(row_of(name, folder, draft, before))
            before = before or measured(name, folder, draft)
            Console(width=150).print(table_of(rows))
    facts = {
        "split": "confirmation",
        "prompts": len(confirmation()),
        "max_tokens": ANSWER,
        "num_speculative_tokens": K,
        "temperature": 0,
        "interval": f"95 % bootstrap over prompts, {RESAMPLES} resamples",
        "eager": True,
        "engine": engine_version(),
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(as_json(facts, rows))


if __name__ == "__main__":
    main()
