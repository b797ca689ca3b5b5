"""Whether every prompt leaves room for its replies in the context, before anything is launched.

Rule: the engine refuses a request whose prompt and max_tokens together exceed max_model_len, and a
pass with failed requests is no measurement. So such prompts are refused here, or dropped where the
file says so; in a conversation every reply is taken to be as long as it may be.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autotune.config.loader import LoadedFile
from autotune.config.tokens import (
    Count,
    Counted,
    Messages,
    NotCountedError,
    ToCount,
    context_length,
    count_tokens,
    template_of,
)
from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.core.study import StudySpec
from autotune.core.workload import Prompt, Workload
from autotune.errors import CandidatesFileError, Fault

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Length:
    """What one prompt needs."""

    tokens: int | None
    """Of its first request, without the reply."""
    needed: int | None
    """Of its last request, with every reply as long as it may be."""


def fit(loaded: LoadedFile, count: Count = count_tokens) -> LoadedFile:
    """The file with the tokens of its prompts; raises CandidatesFileError if one does not fit.

    Where tokens cannot be counted the file comes back as it was, with a note.
    """
    spec = loaded.spec
    prompts = (*spec.workload.search, *spec.workload.confirmation)
    try:
        answer = count(_to_count(spec, prompts))
    except NotCountedError as error:
        return _noted(loaded, f"not checked whether the prompts fit into the context: {error}")
    limit = context_length(spec.target) or answer.context
    lengths = _lengths(spec.workload, prompts, answer)
    too_long = [p for p in prompts if limit and (lengths[p.id].needed or 0) > limit]
    told = _listed(loaded, too_long, lengths, limit or 0)
    if too_long and not loaded.drop_too_long:
        raise _refusal(loaded, f"{told}: {_REMEDY}")
    for note, there in (
        (f"dropped: {told}", too_long),
        (_NO_LIMIT, limit is None),
        (_UNREAD, any(length.needed is None for length in lengths.values())),
    ):
        loaded = _noted(loaded, note) if there else loaded
    out = {p.id for p in too_long}
    return _with_prompts(
        loaded, lambda p: None if p.id in out else replace(p, tokens=lengths[p.id].tokens)
    )


_NO_LIMIT = (
    "not checked whether the prompts fit into the context: neither max_model_len in "
    "target.engine_args nor the model's config.json says how long it is"
)
_UNREAD = "some prompts were not checked for their length: the chat template refuses them"
_REMEDY = (
    "shorten them, lower max_tokens, raise max_model_len in target.engine_args, or go on without "
    "them (workload.too_long: drop)"
)


def _to_count(spec: StudySpec, prompts: tuple[Prompt, ...]) -> ToCount:
    args, params = spec.target.engine_args, spec.workload.sampling.params
    revision = args.get("tokenizer_revision") or args.get("revision")
    defaults = args.get("default_chat_template_kwargs")
    own = {key: params[key] for key in ("add_generation_prompt",) if key in params}
    whole = [_whole(p) for p in prompts if p.later_turns]
    return ToCount(
        model=spec.target.model,
        tokenizer=str(args.get("tokenizer") or spec.target.model),
        revision=str(revision) if revision else None,
        chat_template=template_of(params.get("chat_template"), args.get("chat_template")),
        template_kwargs={
            **(defaults if isinstance(defaults, dict) else {}),
            **own,
            **spec.workload.chat_template_kwargs,
        },
        tools=params.get("tools"),
        conversations=[*(p.messages for p in prompts), *whole],
    )


def _whole(prompt: Prompt) -> Messages:
    """The last request of a conversation, with empty replies."""
    later: list[Mapping[str, JSON]] = []
    for turn in prompt.later_turns:
        later += [{"role": "assistant", "content": ""}, {"role": "user", "content": turn}]
    return [*prompt.messages, *later]


def _lengths(
    workload: Workload, prompts: tuple[Prompt, ...], answer: Counted
) -> Mapping[str, _Length]:
    """By id; the counts of whole conversations stand after those of the openings."""
    whole = iter(answer.tokens[len(prompts) :])
    found = {}
    for prompt, tokens in zip(prompts, answer.tokens, strict=False):
        last = next(whole) if prompt.later_turns else tokens
        replies = prompt.requests * workload.max_tokens_of(prompt)
        needed = None if last is None else last + replies
        found[prompt.id] = _Length(tokens=tokens, needed=needed)
    return found


def _listed(
    loaded: LoadedFile, too_long: list[Prompt], lengths: Mapping[str, _Length], limit: int
) -> str:
    workload = loaded.spec.workload
    prompts = counted(len(workload.search) + len(workload.confirmation), "prompt")
    shown = [
        f"{p.id} (line {loaded.prompt_lines.get(p.id, '?')}: {lengths[p.id].needed} tokens)"
        for p in too_long[:_SHOWN]
    ]
    more = f" and {len(too_long) - _SHOWN} more" if len(too_long) > _SHOWN else ""
    return (
        f"{len(too_long)} of {prompts} too long for the context of {limit} tokens, with "
        f"max_tokens = {workload.max_tokens} for each reply: {', '.join(shown)}{more}"
    )


def _with_prompts(loaded: LoadedFile, changed: Callable[[Prompt], Prompt | None]) -> LoadedFile:
    workload = loaded.spec.workload
    search, confirmation = (
        tuple(new for prompt in side if (new := changed(prompt)) is not None)
        for side in (workload.search, workload.confirmation)
    )
    try:
        workload = replace(workload, search=search, confirmation=confirmation)
    except ValueError as error:
        raise _refusal(loaded, f"without the prompts that are too long: {error}") from error
    return replace(loaded, spec=replace(loaded.spec, workload=workload))


def _noted(loaded: LoadedFile, note: str) -> LoadedFile:
    return replace(loaded, notes=(*loaded.notes, note))


def _refusal(loaded: LoadedFile, message: str) -> CandidatesFileError:
    fault = Fault(path="workload.prompts", line=loaded.prompts_at, message=message)
    return CandidatesFileError(str(loaded.path), [fault])
