"""SendRelay: a member that does not lead gives the sends which reach it to the one that does.

Java's producer asks for the route every 30 s, and tries a send three times within milliseconds; clients of other
languages are made like it. After a change of leader they send to the old one until they have asked, and all of it would
be refused. So the old one keeps such a send until it is known who leads, and passes it on as it came: fields, body and
signature. The leader's answer is the producer's.

| what happens | the producer gets |
|---|---|
| the leader answers | what the leader answers |
| this member leads before anybody else does | what this member answers |
| nobody takes it within 2.5 s | SERVICE_NOT_AVAILABLE (14): nothing was stored |
| the leader has it and does not answer | SYSTEM_ERROR (1): it may be stored, or not |

A member that has not led since its start refuses sends, as Java's does (but for 20 s after a start with a log, for it
may have led before that): no client that asked for the route sends to it, and a client that tries the members in turn
learns which one leads. MaxQ's clients are refused at once, for they ask for the route then. A send that was passed on
is not passed on again, because two members that consider each other the leader would do so without end.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from maxq.broker.bundles import Environment, Peers
from maxq.codes import LanguageCode, RequestCode, ResponseCode
from maxq.errors import MaxQError, RemotingConnectError, RemotingError
from maxq.protocol.body.route import TopicRouteData
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import Connection
from maxq.remoting.connection import Processor
from maxq.remoting.server import RemotingServer
from maxq.runtime.refusals import Cause

log: Final = logging.getLogger(__name__)

#: Requests that are passed on.
SENDS: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
#: Remark of a request that was passed on. Signatures do not cover remarks.
RELAYED: Final = "relayed"

_PATIENCE_MS: Final = 2_500  # time for the whole send, in ms: less than the 3 s that Java's producer waits
_PAUSE_SECONDS: Final = 0.02  # before each question to the name servers
_MOST_KEPT: Final = 64 * 1024 * 1024  # most bytes of all sends that are kept at a time
_OBJECTS: Final = 4_096  # bytes that a kept send takes besides its body, about
_NOT_TAKEN: Final = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY)


class SendRelay:
    """Passes sends on from a member that does not lead to the leader, by wrapping the processors of sends."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        *,
        leads: Callable[[], bool],
        is_asked: Callable[[], bool],
        hindrance: Callable[[], str],
    ) -> None:
        """
        Args:
            leads: may this member take messages now, as the leader of its group?
            is_asked: may clients take this member for the leader? A send that another member has passed on is refused.
            hindrance: why this member's own store accepts no messages; empty: it accepts them.
        """
        self._leads = leads
        self._is_asked = is_asked
        self._own = env.own
        self._client = peers.client
        self._topic_route = peers.outer_api.topic_route
        self._clock = env.clock
        self._guard = env.guard
        self._hindrance = hindrance
        self._behind: dict[int, Processor] = {}
        self._leader = ""  # where it answers clients; empty: not known
        self._search: asyncio.Task[None] | None = None
        self._kept_bytes = 0

    def register(self, server: RemotingServer) -> None:
        """Handle sends before the processors that the server has for them now."""
        for code in SENDS:
            self._behind[code] = server.processor(code)
            server.register(code, self)

    def keeps(self, request: RemotingCommand) -> bool:
        """Return whether this send is kept for the next leader instead of being refused."""
        return (
            request.code in self._behind
            and request.language != LanguageCode.PYTHON
            and request.remark != RELAYED
            and not self._leads()
            and self._is_asked()
            and self._kept_bytes + _size(request) <= _MOST_KEPT
        )

    def leader_changed(self) -> None:
        """Forget the leader, because another member leads or none; the next send looks for it."""
        self._leader = ""

    def __call__(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        if not self.keeps(request):
            return self._behind[request.code](connection, request)
        self._kept_bytes += _size(request)
        return self._relay(connection, request)

    async def _relay(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        deadline_ms = self._clock.monotonic_ms() + _PATIENCE_MS
        guard = self._guard
        since = None if guard is None else guard.rules
        try:
            while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
                if guard is not None and (refused := guard.again(connection, request, since)) is not None:
                    return refused
                if self._leads():
                    answer = self._behind[request.code](connection, request)
                    return await answer if inspect.isawaitable(answer) else answer
                if not self._leader:
                    await self._find(left_ms)
                elif (reply := await self._pass_on(self._leader, request, deadline_ms)) is not None:
                    return reply
        finally:
            self._kept_bytes -= _size(request)
        remark = (
            f"[{Cause.NOT_MASTER}]this member of a DLedger group is not its leader, and no leader took the "
            f"message within {_PATIENCE_MS} ms; send it again"
        )
        if why := self._hindrance():
            remark += f". The store of this member is not writable: {why}"
        return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    async def _pass_on(self, leader: str, request: RemotingCommand, deadline_ms: int) -> RemotingCommand | None:
        """Send the request on to `leader` and return the answer for the producer; None if `leader` has not accepted it.
        This broker does not sign the request: the leader checks the producer's own signature, as this broker
        does."""
        copy = replace(request, remark=RELAYED, flag=0)
        try:
            link = await self._client.connect(leader, max(1, deadline_ms - self._clock.monotonic_ms()))
            answer = await link.invoke(copy, max(1, deadline_ms - self._clock.monotonic_ms()))
        except RemotingConnectError as error:
            self._forget(leader, str(error))
            return None
        except RemotingError as error:
            self._forget(leader, str(error))
            remark = f"the message was passed on to {leader}, which led the group, and may be stored, or not: {error}"
            return request.reply(ResponseCode.SYSTEM_ERROR, f"{remark}; send it again")
        if answer.code in _NOT_TAKEN:
            self._forget(leader, answer.remark or "")
            return None
        return answer

    def _forget(self, leader: str, why: str) -> None:
        if self._leader == leader:
            log.info("%s does not take the sends that are passed on: %s", leader, why)
            self._leader = ""

    async def _find(self, most_ms: int) -> None:
        """Wait until the search under way has ended, but at most `most_ms`."""
        if self._search is None or self._search.done():
            self._search = asyncio.get_running_loop().create_task(self._find_leader(), name="SendRelay")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_ms / 1000):
                await asyncio.shield(self._search)

    async def _find_leader(self) -> None:
        """Ask the name servers until they name another broker as master, or this one leads; give up when all sends that
        wait for the search have timed out."""
        end_ms = self._clock.monotonic_ms() + _PATIENCE_MS
        while not self._leads() and self._clock.monotonic_ms() < end_ms:
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                route = await self._topic_route(self._own.broker_name)  # each broker has a topic of its name
            except MaxQError as error:
                log.debug("the name servers were not asked who leads: %s", error)
                continue
            address = "" if route is None else self._master_in(route)
            if address not in ("", self._own.address):
                log.info("sends that reach this member, which does not lead, are passed on to %s", address)
                self._leader = address
                return

    def _master_in(self, route: TopicRouteData) -> str:
        masters = (data.master_address for data in route.broker_datas if data.broker_name == self._own.broker_name)
        return next(filter(None, masters), "")

    async def stop(self) -> None:
        """Cancel the search for the leader of the group, if one is under way."""
        if self._search is not None:
            self._search.cancel()
            await asyncio.gather(self._search, return_exceptions=True)


def _size(request: RemotingCommand) -> int:
    return request.body_length + _OBJECTS
