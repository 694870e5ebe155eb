"""Outputs on their way to the driver.

While a term or vote is being stored, no message is sent (S3): messages wait here, in order, until the driver reports
that it is durable. Everything else passes, so that who ceases to lead does so at once.
"""

from collections import deque
from collections.abc import Callable

from maxq.protocol.dledger.dledger_messages import Reply, Request
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.outputs import Answer, Output, SendRequest, StoreTerm

OnReply = Callable[[int, Reply | None, int], None]


class Outbox:
    """Collects outputs, and remembers the sender of each request."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._held: deque[SendRequest | Answer | StoreTerm] = deque()
        self._storing: HardState | None = None
        self._asked: dict[int, OnReply] = {}
        self._next_request_id = 1

    @property
    def storing(self) -> bool:
        """Whether a term or vote is not durable yet."""
        return self._storing is not None

    def send(self, peer: str, message: Request, on_reply: OnReply) -> int:
        """Send a request to `peer`; `on_reply(request_id, reply or None, now)` is called when there is an answer or
        will be none."""
        request_id = self._next_request_id
        self._next_request_id += 1
        self._asked[request_id] = on_reply
        self._say(SendRequest(peer, request_id, message))
        return request_id

    def replied(self, request_id: int, reply: Reply | None, now: int) -> None:
        """Note the answer to `request_id`; a second one is ignored."""
        on_reply = self._asked.pop(request_id, None)
        if on_reply is not None:
            on_reply(request_id, reply, now)

    def answer(self, token: object, reply: Reply) -> None:
        """Send the answer to the request that came with `token`."""
        self._say(Answer(token, reply))

    def put(self, output: Output) -> None:
        """Add an output that is not a message to another member."""
        self._outputs.append(output)

    def store(self, state: HardState) -> None:
        """Make `state` durable before any message that follows."""
        if self._storing is None:
            self._storing = state
            self._outputs.append(StoreTerm(state))
        else:
            self._held.append(StoreTerm(state))

    def stored(self, state: HardState) -> bool:
        """Note that `state` is durable. Returns whether it was the newest one."""
        if state != self._storing:
            return False
        self._storing = None
        while self._held and self._storing is None:
            output = self._held.popleft()
            if isinstance(output, StoreTerm):
                self._storing = output.state
            self._outputs.append(output)
        return self._storing is None

    def take(self) -> list[Output]:
        """Return all outputs since the last call, in order."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def _say(self, output: SendRequest | Answer) -> None:
        if self._storing is None:
            self._outputs.append(output)
        else:
            self._held.append(output)
