"""A file with one thing spoilt is refused at its line and key, with the rule and the remedy."""

from collections.abc import Callable

import pytest

from autotune.errors import Fault

Faults = Callable[..., list[Fault]]

# (what is replaced, by what) -> line, key, part of the message
EDITS = [
    ("study: s", "study: My Study", 1, "study", "did you mean 'my-study'?"),
    ("study: s", "study: 3", 1, "study", "must be a text (quote it), got 3"),
    ("study: s", "studdy: s", 1, "studdy", "did you mean 'study'?"),
    ("study: s", "study: ${NOPE}", 1, "study", "the variable NOPE is not set"),
    ("org/target", "nope", 3, "target.model", "neither a folder here"),
    ("org/target", "./nope", 3, "target.model", "there is no folder"),
    ("org/target", "/nope", 3, "target.model", "there is no folder /nope"),
    ("org/target", "./studies/x/models/t", 3, "target.model", "`make models`"),
    ("org/target", ".", 3, "target.model", "holds no config.json"),
    ("  model: org/target\n", "", 2, "target.model", "model is missing. A local folder"),
    ("{max_model_len: 64}", "{port: 80}", 4, "target.engine_args.port", "remove it"),
    ("{max_model_len: 64}", "{scheduler-cls: x}", 4, "target.engine_args.scheduler_cls", "K with"),
    (
        "{max_model_len: 64}",
        "{disable-log-stats: true}",
        4,
        "target.engine_args.disable_log_stats",
        "acceptance is read from the engine's metrics; remove it",
    ),
    (
        "{max_model_len: 64}",
        "{gpu-memory-utilization: 0.9}",
        4,
        "target.engine_args.gpu_memory_utilization",
        "search.gpu_memory_utilization",
    ),
    (
        "{max_model_len: 64}",
        "{max_model_len: 64, max-model-len: 32}",
        4,
        "target.engine_args.max-model-len",
        "stands here twice, first in line 4",
    ),
    (
        "{max_model_len: 64}",
        "{max_model_len: 16}",
        8,
        "workload.max_tokens",
        "no room for a prompt",
    ),
    ("{max_model_len: 64}", "{x: .inf, y: !!int z}", 4, "target.engine_args.y", "finite number"),
    ("{max_model_len: 64}", "{x: !y [1]}", 4, "target.engine_args.x", "the tag !y"),
    ("{max_model_len: 64}", "&a {x: *a}", 4, "target.engine_args.x", "may not contain itself"),
    ("{max_model_len: 64}", "{1: 2}", 4, "target.engine_args", "a key is a text"),
    ("engine_args: {max_model_len: 64}", "env: {A: true}", 4, "target.env.A", "quote it"),
    (
        "engine_args: {max_model_len: 64}",
        "env: {VLLM_API_KEY: x}",
        4,
        "target.env.VLLM_API_KEY",
        "takes no key",
    ),
    ("engine_args: {max_model_len: 64}", "launcher: x", 4, "target.launcher", "must be a list"),
    ("prompts.jsonl", "nope.jsonl", 6, "workload.prompts", "there is no file"),
    ("prompts.jsonl", "random", 6, "workload.prompts.file", "says nothing about production"),
    ("prompts.jsonl", "{hf: random}", 6, "workload.prompts.hf", "random tokens are refused"),
    ("prompts.jsonl", "{format: text}", 6, "workload.prompts", "give one of file and hf"),
    ("prompts.jsonl", "{file: a, hf: b}", 6, "workload.prompts.file", "give one of file and hf"),
    ("prompts.jsonl", "{file: a, format: x}", 6, "workload.prompts.format", "'sharegpt'"),
    ("prompts.jsonl", "{file: a, split: x}", 6, "workload.prompts.split", "belongs to hf"),
    ("prompts.jsonl", "{hf: a, format: text}", 6, "workload.prompts.format", "name the column"),
    ("prompts.jsonl", "{hf: a/b/c}", 6, "workload.prompts.hf", "must match"),
    ("prompts.jsonl", "{file: a, limit: 0}", 6, "workload.prompts.limit", "at least 1"),
    ("prompts.jsonl", '""', 6, "workload.prompts.file", "must not be empty"),
    ("prompts.jsonl", "3", 6, "workload.prompts", "must be a mapping"),
    ("prompts.jsonl", "{file: nope.jsonl}", 6, "workload.prompts.file", "there is no file"),
    ("16", "16\n  too_long: cut", 9, "workload.too_long", "'refuse' or 'drop'"),
    ("16", "16\n  lora: ''", 9, "workload.lora", "must not be empty"),
    ("16", "16\n  response_format: {}", 9, "workload.response_format", "a type of json_schema"),
    (
        "{temperature: 0}",
        "{temperature: 0, response_format: {type: text}}",
        9,
        "workload.sampling.response_format",
        "it stands in workload.response_format",
    ),
    ("[1]", "0", 7, "workload.concurrency[0].level", "must be at least 1, got 0"),
    ("[1]", "[]", 7, "workload.concurrency", "at least one entry"),
    ("[1]", "[1, 1]", 7, "workload.concurrency[1]", "stands here twice"),
    ("[1]", "[{level: 1, weight: 0}]", 7, "workload.concurrency[0].weight", "greater than 0"),
    ("[1]", "[{level: 1, request_rate: 0}]", 7, "workload.concurrency[0].request_rate", "than 0"),
    (
        "[1]",
        "[1, {level: 1, request_rate: 2}]",
        7,
        "workload.concurrency[1].level",
        "one request_rate or none",
    ),
    ("max_tokens: 16", "max_tokens: 16\n  slo: {ttft: 300}", 9, "workload.slo.ttft", "its unit"),
    ("max_tokens: 16", "max_tokens: 16\n  slo: {}", 9, "workload.slo", "at least one of ttft"),
    ("max_tokens: 16", "max_tokens: 16\n  slo: {e2e: 0 s}", 9, "workload.slo", "be positive"),
    ("[1]", "[100]", 7, "workload.concurrency", "2 blocks of 400"),
    ("max_tokens: 16", 'max_tokens: "16"', 8, "workload.max_tokens", "must be a whole number"),
    ("{temperature: 0}", "{}", 9, "workload.sampling.temperature", "no default"),
    ("{temperature: 0}", "{temperature: true}", 9, "workload.sampling.temperature", "a number"),
    (
        "{temperature: 0}",
        "{temperature: 0, min_p: 0.1}",
        9,
        "workload.sampling.min_p",
        "while it speculates",
    ),
    (
        "{temperature: 0}",
        "{temperature: 0, topp: 0.9}",
        9,
        "workload.sampling.topp",
        "did you mean 'top_p'?",
    ),
    ("  - name: a\n    method: ngram", "  []", 10, "candidates", "at least one entry"),
    ("name: a", "name: baseline", 11, "candidates[0].name", "name of plain decoding"),
    ("name: a", "name: a/b", 11, "candidates[0].name", "must match"),
    ("method: ngram", "method: ngrm", 12, "candidates[0].method", "did you mean 'ngram'?"),
    ("method: ngram", "method: qwen3_5_mtp", 12, "candidates[0].method", "method: mtp"),
    ("method: ngram", "method: eagle", 12, "candidates[0].method", "needs a draft `model`"),
    ("    method: ngram\n", "", 11, "candidates[0].method", "method is missing"),
    ("[1, 2]", "[2, 1]", 14, "search.num_speculative_tokens", "rise without repetition"),
    ("[1, 2]", "[]", 14, "search.num_speculative_tokens", "at least one value"),
    ("[1, 2]", "[64, 200]", 14, "search.num_speculative_tokens", "rejection sampler"),
    ("[1, 2]", "{low: 3}", 14, "search.num_speculative_tokens.low", "the keys low, high"),
    ("[1, 2]", "{low: 3, high: 1}", 14, "search.num_speculative_tokens.low", "low <= high"),
    ("[1, 2]", "{low: 1, high: true}", 14, "search.num_speculative_tokens.low", "whole numbers"),
    ("0.3", "95", 15, "search.gpu_memory_utilization", "did you mean 0.95?"),
    ("0.3", "0", 15, "search.gpu_memory_utilization", "(0, 1]"),
    ("0.3", '"90%"', 15, "search.gpu_memory_utilization", 'got "90%"'),
    ("0.3", "[0.4, 0.3]", 15, "search.gpu_memory_utilization", "rise without repetition"),
    ("0.3", "[]", 15, "search.gpu_memory_utilization", "at least one number"),
    ("0.3", "[0.3, 95]", 15, "search.gpu_memory_utilization[1]", "did you mean 0.95?"),
    ("0.3", "{low: 0.3}", 15, "search.gpu_memory_utilization.low", "the keys low, high, step"),
    ("0.3", "{low: 0.9, high: 0.3}", 15, "search.gpu_memory_utilization.low", "low <= high"),
    ("0.3", "{low: 0.3, high: 95}", 15, "search.gpu_memory_utilization.high", "mean 0.95?"),
    ("0.3", "{low: 0.1, high: 1, step: 0}", 15, "search.gpu_memory_utilization.step", "[0.001"),
    ("18m", "1:30", 16, "search.budget", "90s, 18m or 1h30m"),
    ("study: s", 'study: "\\0"', 1, "study", "neither NUL"),
    ("org/target", f"{'x' * 300}/y/z", 3, "target.model", "neither a folder here"),
    ("18m", "0s", 16, "search.budget", "must be positive"),
    ("18m", "18m\n  min_blocks: 9", 17, "search.min_blocks", "min_blocks <= max_blocks"),
    ("18m", "18m\n  seed: x", 17, "search.seed", "must be a whole number"),
    ("18m", "18m\nobjective: {tolerance: 2}", 17, "objective.tolerance", "did you mean 2%?"),
    ("18m", "18m\nobjective: {tolerance: 0%}", 17, "objective.tolerance", "(0, 1)"),
    ("18m", "18m\nobjective: {metric: x}", 17, "objective.metric", "'output_throughput'"),
    ("18m", "18m\nobjective: {metric: goodput}", 17, "objective.metric", "write workload.slo"),
    ("18m", "18m\nconstraints: {p99_ttft: 300}", 17, "constraints.p99_ttft", "needs its unit"),
    ("18m", "18m\nconstraints: {p95_ttft: 1 s}", 17, "constraints.p95_ttft", "unknown key"),
    (
        "18m",
        "18m\ntracking: {mlflow: {uri: ./mlruns}}",
        17,
        "tracking.mlflow.uri",
        "sqlite:///studies/mlflow.db",
    ),
    ("18m", "18m\ntracking: {mlflow: 1}", 17, "tracking.mlflow", "must be a mapping"),
]


@pytest.mark.parametrize(("old", "new", "line", "path", "message"), EDITS)
def test_one_edit_makes_one_place_at_fault(
    good: str, faults_of: Faults, old: str, new: str, line: int, path: str, message: str
) -> None:
    """A good file with one thing spoilt has a fault at that line and key, with its remedy."""
    assert old in good
    text = good.replace(old, new, 1)
    found = faults_of(text)
    assert (line, path) in {(fault.line, fault.path) for fault in found}
    assert any(message in f.message for f in found if (f.line, f.path) == (line, path)), found


VOCAB = "use_heterogeneous_vocab"

# what stands in the candidate beside `method: ...` -> key, part of the message
CANDIDATES = [
    ("ngram, model: org/x", "model", "drafts without a model"),
    ("ngram, prompt_lookup_min: 5, prompt_lookup_max: 3", "prompt_lookup_min", "got 5 > 3"),
    ("ngram, prompt-lookup-min: 0", "prompt_lookup_min", "must be at least 1"),
    ("ngram, prompt_lookup_min: true", "prompt_lookup_min", "of type integer, got true"),
    ("ngram, prompt_lookup_max: {low: 2, high: x}", "prompt_lookup_max", 'type integer, got "x"'),
    ("ngram, prompt_lookup_max: {low: 6, high: 2}", "prompt_lookup_max", "need low < high"),
    ("ngram, prompt_lookup_max: {low: 2}", "prompt_lookup_max", "high is missing"),
    ("ngram, prompt_lookup_max: {low: 2, hihg: 6}", "prompt_lookup_max", "did you mean 'high'?"),
    ("ngram, prompt_lookup_max: {low: 2, high: 6, log: 1}", "prompt_lookup_max", "log is true or"),
    ("ngram, prompt_lookup_max: {low: 2, high: 6, step: 0.5}", "prompt_lookup_max", "the step of"),
    ("ngram, prompt_lookup_max: {low: 0, high: 6}", "prompt_lookup_max", "must be at least 1"),
    ("ngram, prompt_lookup_max: []", "prompt_lookup_max", "an empty list"),
    ("ngram, prompt_lookup_max: [2, 2]", "prompt_lookup_max", "each once, repeated: 2"),
    ("ngram, prompt_lookup_max: [2, a]", "prompt_lookup_max", 'of type integer, got "a"'),
    ("ngram, prompt_lookup_max: [[2]]", "prompt_lookup_max", "of type integer, got [2]"),
    ("suffix, suffix_decoding_min_token_prob: 2", "suffix_decoding_min_token_prob", "at most 1"),
    ("eagle, model: org/x, quantization: {low: 1, high: 2}", "quantization", "has no range"),
    ("eagle, model: org/x, draft_sample_method: [greedy, x]", "draft_sample_method", "is one of"),
    ("ngram, rejection_sample_method: [standard, x]", "rejection_sample_method", "how drafts are"),
    (
        "ngram, prompt_lookup_min: [6, 7], prompt_lookup_max: {low: 2, high: 5}",
        "prompt_lookup_min",
        "no combination of its values is allowed: need prompt_lookup_min <= prompt_lookup_max",
    ),
    ("ngram, engine_args: {max_num_seqs: 0}", "engine_args.max_num_seqs", "must be at least 1"),
    ("ngram, engine_args: {max_num_seq: 8}", "engine_args.max_num_seq", "mean 'max_num_seqs'?"),
    ("ngram, engine_args: {dtype: half}", "engine_args.dtype", "stands in target.engine_args"),
    ("ngram, engine_args: {port: 1}", "engine_args.port", "serves on the loopback"),
    (
        "ngram, engine_args: {max_num_seqs: 8, max_num_batched_tokens: 4}",
        "engine_args.max_num_seqs",
        "need max_num_seqs <= max_num_batched_tokens, got 8 > 4",
    ),
    ("ngram, ngram_prompt_lookup_max: 4", "ngram_prompt_lookup_max", "word is prompt_lookup_max"),
    ("ngram, prompt_lookup_mx: 4", "prompt_lookup_mx", "did you mean 'prompt_lookup_max'?"),
    ("ngram, settings: {}", "settings", "has no field 'settings'"),
    ("ngram, disable_by_batch_size: 8", "disable_by_batch_size", "workload.concurrency"),
    ("ngram, k: 3", "k", "num_speculative_tokens"),
    ("ngram, num_speculative_token: 3", "num_speculative_token", "'num_speculative_tokens'?"),
    ("ngram, rejection_sample_method: synthetic", "rejection_sample_method", "what the replies"),
    ("ngram, synthetic_acceptance_rates: [1]", "synthetic_acceptance_rates", "what the replies"),
    ("ngram, target_model_config: x", "target_model_config", "vLLM fills it itself"),
    ("ngram, use_heterogeneous_vocab: true", "use_heterogeneous_vocab", "draft_model only"),
    ("eagle, model: org/x, prompt_lookup_max: 3", "prompt_lookup_max", "ngram and ngram_gpu only"),
    ("eagle, model: org/x, draft_sample_method: x", "draft_sample_method", "greedy, probabilistic"),
    ("eagle, model: org/x, tensor_parallel_size: 1", "tensor_parallel_size", "draft_tensor"),
    ("eagle, model: ./x", "model", "there is no folder"),
    (
        f"draft_model, model: org/x, {VOCAB}: true, draft_sample_method: probabilistic",
        "draft_sample_method",
        "must sample greedily",
    ),
]


@pytest.mark.parametrize(("given", "key", "message"), CANDIDATES)
def test_what_vllm_would_refuse_or_ignore_is_a_fault(
    good: str, faults_of: Faults, given: str, key: str, message: str
) -> None:
    """Fields of SpeculativeConfig are checked before any launch."""
    text = good.replace("- name: a\n    method: ngram", f"- {{method: {given}}}")
    (fault,) = faults_of(text)
    assert (fault.line, fault.path) == (11, f"candidates[0].{key}")
    assert message in fault.message


def test_each_bad_k_is_named(good: str, faults_of: Faults) -> None:
    """Zero, negative, broken, quoted and true K are refused one by one; vLLM takes true for 1."""
    text = good.replace("[1, 2]", '\n    - 0\n    - -2\n    - 2.5\n    - "4"\n    - true\n    - 3')
    found = faults_of(text)
    assert [fault.line for fault in found] == [15, 16, 17, 18, 19]
    assert [fault.message.split(" is ")[1].split()[0].rstrip(":") for fault in found] == [
        "0",
        "-2",
        "2.5",
        '"4"',
        "true",
    ]


def test_two_names_for_one_engine_are_a_fault(good: str, faults_of: Faults) -> None:
    """N-gram without bounds and with 5 to 5 is the same engine: both are named."""
    twin = "    method: ngram\n  - {name: b, method: ngram, prompt_lookup_max: 5}\n"
    (fault,) = faults_of(good.replace("    method: ngram\n", twin))
    assert (fault.line, fault.path) == (13, "candidates[1]")
    assert "'b' is the same engine configuration as candidates[0] 'a'" in fault.message


def test_a_setting_at_its_default_makes_no_other_engine(good: str, faults_of: Faults) -> None:
    """Spelling out what vLLM does anyway does not make a candidate of its own."""
    twins = (
        "- {method: eagle, model: org/x, name: a}\n"
        "  - {method: eagle, model: org/x, name: b, draft_sample_method: greedy}"
    )
    (fault,) = faults_of(good.replace("- name: a\n    method: ngram", twins))
    assert fault.path == "candidates[1]"


def test_equal_names_are_a_fault(good: str, faults_of: Faults) -> None:
    """Two candidates cannot be told apart in a report by nothing."""
    twin = "    method: ngram\n  - {name: a, method: ngram, prompt_lookup_max: 4}\n"
    (fault,) = faults_of(good.replace("    method: ngram\n", twin))
    assert (fault.line, fault.path) == (13, "candidates[1].name")


def test_all_faults_come_at_once_in_the_order_of_the_file(good: str, faults_of: Faults) -> None:
    """A fault in one section hides none in another, nor in the files beside it."""
    text = (
        good.replace("study: s", "study: ${NOPE}")
        .replace("org/target", "./nope")
        .replace("max_tokens: 16", "max_token: 16")
        .replace("name: a", "nam: a")
        .replace("18m", "soon")
    )
    found = [(f.line, f.path) for f in faults_of(text)]
    assert found == [
        (1, "study"),
        (3, "target.model"),
        (5, "workload.max_tokens"),
        (8, "workload.max_token"),
        (11, "candidates[0].nam"),
        (16, "search.budget"),
    ]
