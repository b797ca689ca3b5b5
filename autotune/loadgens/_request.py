"""One request of a pass: its body, and the bytes that go onto the wire.

Law: the workload's parameters cannot override what is measured.
"""

from collections.abc import Sequence

from autotune.core.study import JSON, Workload
from autotune.loadgens._http import Address
from autotune.ports import Request, Server

PATH = "/v1/chat/completions"


def posts(server: Server, workload: Workload, requests: Sequence[Request]) -> list[bytes]:
    """All requests of a pass as bytes, made before any clock starts."""
    address = Address.parse(server.base_url)
    return [address.post(PATH, body(server.model, workload, request)) for request in requests]


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
    return fields | {
        "model": model,
        "messages": [dict(message) for message in request.prompt.messages],
        "max_tokens": workload.max_tokens,
        "temperature": workload.sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
