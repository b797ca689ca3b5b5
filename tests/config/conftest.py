"""A good candidates file, and the faults of a bad one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.config import load
from autotune.errors import CandidatesFileError, Fault

GOOD = """\
study: s
target:
  model: org/target
  engine_args: {max_model_len: 64}
workload:
  prompts: prompts.jsonl
  concurrency: [1]
  max_tokens: 16
  sampling: {temperature: 0}
candidates:
  - name: a
    method: ngram
search:
  num_speculative_tokens: [1, 2]
  gpu_memory_utilization: 0.3
  budget: 18m
"""

PROMPTS = "".join(
    f'{{"id": "{i}", "messages": [{{"role": "user", "content": "q{i}"}}]}}\n' for i in range(60)
)


@pytest.fixture
def good() -> str:
    """A file with which nothing is wrong; tests spoil one thing and count lines."""
    return GOOD


@pytest.fixture
def faults_of(tmp_path: Path) -> Callable[..., list[Fault]]:
    """The faults of a file beside some prompts; none if it loads."""

    def find(text: str | bytes, prompts: str | bytes = PROMPTS) -> list[Fault]:
        for name, content in (("prompts.jsonl", prompts), ("c.yaml", text)):
            raw = content.encode() if isinstance(content, str) else content
            (tmp_path / name).write_bytes(raw)
        try:
            load(tmp_path / "c.yaml", environ={})
        except CandidatesFileError as error:
            return list(error.faults)
        return []

    return find
