"""Trains the demo's three drafts anew: `python studies/smollm2-135m/distill.py all`.

    data       the target answers prompts of our own ────────► distill/data/batch-*.safetensors
    train      one draft learns from them ──────────────────► distill/trained/<draft>.safetensors
    agreement  how often drafts guess the target's next token on answers kept from training
    adopt      move a trained draft to drafts/ and write its checksum

Every command goes on where a killed one stopped, and draws nothing that its seed does not fix.
About one hour on two cores. compare.py then measures what vLLM accepts.
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import distill_data
import models
from distill_data import Sequence
from distill_drafts import agreement, begin, finished, write
from distill_train import Head, Schedule, frequent_ids, train
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
TARGET = HERE / "models" / "target"
WORK = HERE / "distill"
DATA, TRAINED = WORK / "data", WORK / "trained"
PROMPTS = 9000  # more than are needed: `--batches` decides
BATCHES = 22  # of 192 answers; about 400,000 tokens
KEPT_BACK = 40  # one sequence in so many is never trained on
SCHEDULES = {
    "draft-2l": Schedule(steps=900, rate=1.2e-3),
    "draft-4l": Schedule(steps=700, rate=1.0e-3),
    "eagle": Schedule(steps=700, rate=1.5e-3),
}


def say(text: str) -> None:
    """One line of progress, at once also in a log file."""
    print(text, flush=True)


def need(path: Path, remedy: str) -> Path:
    """`path`, or the end of the program with what to do."""
    if not path.exists():
        sys.exit(f"{path} is missing. First run: python studies/smollm2-135m/{remedy}")
    return path


def data(batches: int) -> None:
    """Let the target answer."""
    tokenizer = Tokenizer.from_file(str(need(TARGET / "tokenizer.json", "models.py")))
    rows = distill_data.prompt_tokens(tokenizer, PROMPTS, HERE / "prompts.jsonl")
    for line in distill_data.generate(TARGET, rows, DATA, batches):
        say(line)


def sequences() -> tuple[list[Sequence], list[Sequence]]:
    """What is trained on, and what is kept back."""
    found = [
        item for path in sorted(DATA.glob("*.safetensors")) for item in distill_data.load(path)
    ]
    if not found:
        sys.exit(f"{DATA} is empty. First run: python {Path(__file__).name} data")
    kept = found[::KEPT_BACK]
    return [item for index, item in enumerate(found) if index % KEPT_BACK], kept


def learn(name: str, steps: int | None) -> None:
    """Train one draft and write its layers."""
    usual = SCHEDULES[name]
    schedule = Schedule(steps or usual.steps, usual.rate)
    need(TARGET, "models.py")
    if name == "draft-4l":
        need(TRAINED / "draft-2l-half.safetensors", "distill.py train draft-2l")
    student = begin(name, TARGET, TRAINED)
    training, kept = sequences()
    head = Head(student.embeddings, frequent_ids(training))
    say(f"{name}: {sum(p.numel() for p in student.parameters()):,} weights to train")
    for step, line in train(student, training, head, schedule, WORK / f"{name}.state"):
        say(f"{name}: {line}")
        if name == "draft-2l" and step == schedule.steps // 2:
            write(student, TRAINED / f"{name}-half.safetensors")
    write(student, TRAINED / f"{name}.safetensors")
    say(f"{name}: agrees on {shares(agreement(student, kept))} of the answers kept back")


def shares(values: list[float]) -> str:
    """Shares as text."""
    return ", ".join(f"{value:.3f}" for value in values)


def examine(folder: Path) -> None:
    """Agreement of the drafts in `folder` on the answers kept back."""
    _, kept = sequences()
    for draft in models.DRAFTS:
        path = folder / f"{draft.name}.safetensors"
        student = finished(draft.name, TARGET, path)
        say(f"{path}: {shares(agreement(student, kept))}")


def adopt(names: list[str]) -> None:
    """Make trained drafts those of the repository."""
    places = models.Places()
    for name in names:
        trained = need(TRAINED / f"{name}.safetensors", f"distill.py train {name}")
        shutil.copyfile(trained, places.drafts / trained.name)
    models.record(places)
    say("now run models.py to compose them")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; its help is the manual."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    names = list(SCHEDULES)
    for name, text in (
        ("data", "let the target answer"),
        ("all", "data, then the three drafts (draft-4l starts from draft-2l at half its training)"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "--batches", type=int, default=BATCHES, help="of 192 answers (default: %(default)s)"
        )
    command = commands.add_parser("train", help="train one draft")
    command.add_argument("draft", choices=names)
    command.add_argument("--steps", type=int, help="another length than the recipe's")
    command = commands.add_parser("agreement", help="examine drafts without vLLM")
    command.add_argument("--drafts", type=Path, default=TRAINED, help="folder of the drafts")
    command = commands.add_parser("adopt", help="take trained drafts into the repository")
    command.add_argument("draft", choices=names, nargs="+")
    return parser.parse_args(arguments)


def everything(batches: int) -> None:
    """The whole recipe."""
    data(batches)
    for name in SCHEDULES:
        learn(name, None)


def main() -> None:
    """Do what the command line says."""
    given = parse()
    run: dict[str, Callable[[], None]] = {
        "data": lambda: data(given.batches),
        "train": lambda: learn(given.draft, given.steps),
        "agreement": lambda: examine(given.drafts),
        "adopt": lambda: adopt(given.draft),
        "all": lambda: everything(given.batches),
    }
    run[given.command]()


if __name__ == "__main__":
    main()
