"""vLLM's benchmark client as its users have it: the parser and the main() of `vllm bench serve`.

Law: a line of stdin is one benchmark, a JSON list of its arguments, and a line of stdout its
result. The process is started once: an import takes longer than a benchmark. The console script
is not used because it does not start with vLLM's CPU wheel.
"""

import json
import os
import sys
from typing import Any

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

FIGURES = (
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "output_throughput",
    "median_ttft_ms",
)
"""What is told of a result, by vLLM's names."""


def bench(argv: list[str]) -> dict[str, Any]:
    """One benchmark."""
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    result = main(parser.parse_args(argv))
    return {name: result[name] for name in FIGURES}


if __name__ == "__main__":
    # What else is written to stdout while vLLM is imported or runs must not look like an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(bench(json.loads(line))), file=answers, flush=True)
