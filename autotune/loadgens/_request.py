"""One request of a pass: its body, and the bytes that go onto the wire.

Law: the workload's parameters cannot override what is measured.
"""

from collections.abc import Sequence
from dataclasses import replace

from autotune.core.jsontype import JSON
from autotune.core.workload import Workload
from autotune.loadgens._conversation import Conversation
from autotune.loadgens._http import Address
from autotune.ports import Request, Server

PATH = "/v1/chat/completions"


def conversations(
    server: Server, workload: Workload, requests: Sequence[Request]
) -> list[Conversation]:
    """All requests of a pass, their first turns as bytes before any clock starts."""
    address = Address.parse(server.base_url)

    def post(request: Request) -> bytes:
        return address.post(PATH, body(server.model, workload, request))

    return [Conversation(_in_format(workload, request), post) for request in requests]


def _in_format(workload: Workload, request: Request) -> Request:
    """The request with the format of its replies, which the reader of a reply is to know."""
    form = request.prompt.response_format or workload.response_format
    return replace(request, prompt=replace(request.prompt, response_format=form))


def body(model: str, workload: Workload, request: Request) -> dict[str, JSON]:
    """The JSON of one request."""
    fields: dict[str, JSON] = dict(workload.sampling.params)
    if request.xargs:
        given = fields.get("vllm_xargs")
        fields["vllm_xargs"] = (given if isinstance(given, dict) else {}) | dict(request.xargs)
    if request.cache_salt:
        fields["cache_salt"] = request.cache_salt
    if workload.ignore_eos:
        fields["ignore_eos"] = True
    if workload.chat_template_kwargs:
        fields["chat_template_kwargs"] = dict(workload.chat_template_kwargs)
    form = request.prompt.response_format or workload.response_format
    if form:
        fields["response_format"] = dict(form)
    return fields | {
        "model": workload.lora or model,
        "messages": [dict(message) for message in request.prompt.messages],
        "max_tokens": workload.max_tokens_of(request.prompt),
        "temperature": workload.sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
