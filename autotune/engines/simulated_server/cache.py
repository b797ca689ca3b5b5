"""The KV cache: how much running requests need of it, and which prefixes it remembers.

Rule: a request needs whole blocks for its context and for the tokens that it may verify next, so
a larger K costs cache; remembered prefixes are dropped oldest first and never stand in the way.
"""

from collections.abc import Iterable

from autotune.engines.simulated_server.launch import BLOCK_SIZE, Launch
from autotune.engines.simulated_server.request import Request


class Cache:
    """The blocks of one launch."""

    def __init__(self, launch: Launch) -> None:
        self._blocks = launch.kv_tokens // BLOCK_SIZE
        self._ahead = 1 + launch.k_max
        self._remembers = launch.options.prefix_caching
        self._known: dict[int, None] = {}

    def usage(self, requests: Iterable[Request]) -> float:
        """The share of the cache that these requests need; more than 1 is too much."""
        needed = sum(-(-(r.length + self._ahead) // BLOCK_SIZE) for r in requests)
        return needed / max(1, self._blocks)

    def enter(self, request: Request) -> int | None:
        """How many tokens of the prompt are cached already; None with prefix caching off."""
        if not self._remembers:
            return None
        hits = 0
        while hits < len(request.blocks) and request.blocks[hits] in self._known:
            hits += 1
        self._remember(request.blocks)
        return min(hits, (request.prompt_tokens - 1) // BLOCK_SIZE) * BLOCK_SIZE

    def _remember(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._known.pop(block, None)
            self._known[block] = None
        while len(self._known) > self._blocks:
            self._known.pop(next(iter(self._known)))
