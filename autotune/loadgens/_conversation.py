"""A conversation under way: a request for each turn, the next one made when a reply has come.

Laws: a turn is a request of its own, with an id and a cache salt that no other one has; every turn
gets a reply, also the one that could not be sent; a reply goes back into the conversation as chat
clients send it, without its reasoning.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from autotune.core.jsontype import JSON
from autotune.loadgens._framing import Reply
from autotune.loadgens._transcript import said
from autotune.ports import Request

Post = Callable[[Request], bytes]

STALLED = "not sent: the server stalled earlier in this pass"
"""What becomes of a request after another one of its pass had to be given up."""


class Conversation:
    """What is to be sent next, and every turn so far with the reply to it.

    The first turn is made before any clock starts; a later one cannot be, since it holds the reply
    before it, and takes the stream that is waiting for it a fraction of a millisecond.
    """

    def __init__(self, request: Request, post: Post) -> None:
        self._first = request
        self._request = request
        self._make = post
        self.post: bytes | None = post(request)
        """What to send next; None when all has been said."""
        self.turns: list[tuple[Request, Reply]] = []

    def heard(self, reply: Reply) -> None:
        """Take the reply to what was sent, and get the next turn ready."""
        self._keep(reply)
        if self.post is None:
            return
        text = said(reply)
        if text is None:
            self.give_up("not sent: the turn before it failed")
        else:
            self._request = self._with_reply(text)
            self.post = self._make(self._request)

    def give_up(self, why: str) -> None:
        """Fail the turns that have not been sent."""
        while self.post is not None:
            self._keep(_not_sent(why))

    def _keep(self, reply: Reply) -> None:
        self.turns.append((self._request, reply))
        if len(self.turns) == self._first.prompt.requests:
            self.post = None
        else:
            self._request = self._with_reply("")

    def _with_reply(self, text: str) -> Request:
        """The turn after those that have been kept, `text` being the last reply."""
        number = len(self.turns) + 1
        before, prompt = self.turns[-1][0].prompt, self._first.prompt
        exchange: tuple[dict[str, JSON], ...] = (
            {"role": "assistant", "content": text},
            {"role": "user", "content": before.later_turns[0]},
        )
        turn = replace(
            before,
            id=f"{prompt.id}#{number}",
            messages=(*before.messages, *exchange),
            later_turns=before.later_turns[1:],
            tokens=None,
        )
        return replace(
            self._first, prompt=turn, cache_salt=f"{self._first.cache_salt}.turn{number}"
        )


def _not_sent(why: str) -> Reply:
    reply = Reply(time.perf_counter())
    reply.error = why
    return reply
