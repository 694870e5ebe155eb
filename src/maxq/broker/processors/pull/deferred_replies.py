"""DeferredReplies: readers whose answer cannot be given in the turn they came in, because of a quota, of the disk, or
of a reset of offsets that ends with the answer.

Pull and pop share it. A request that is taken up again goes through its first pass once more, which must not wait for
the disk a second time. A client that lost its permission while it waited gets no data.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from maxq.broker.bundles import Environment, Limits
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.endpoint import failure_reply
from maxq.remoting.server import Connection
from maxq.runtime.blocking import COLD_READS
from maxq.store.store_results import GetMessageResult

#: The first pass of a request; `was_read`: it has waited for the disk, and must not again.
Pass = Callable[[Connection, RemotingCommand, bool], RemotingCommand | None]


class DeferredReplies:
    """Answers later the requests that must wait for a quota or the disk; see the module's docstring.

    Args:
        again: the first pass of a request.
    """

    def __init__(self, env: Environment, limits: Limits, again: Pass) -> None:
        self._again = again
        self._fast_failure = limits.fast_failure
        self._quotas = limits.quotas
        self._clock = env.clock
        self._guard = env.guard
        self._reading: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()  # tasks that wait for a quota

    def when_allowed(
        self,
        connection: Connection,
        request: RemotingCommand,
        group: str,
        most_ms: int,
        not_now: Callable[[], RemotingCommand],
    ) -> None:
        """Process `request` again when the quota of `group` allows it.

        Args:
            most_ms: longest wait; then the answer is `not_now()`.
        """

        async def refusal() -> RemotingCommand | None:
            is_allowed = await self._is_allowed(connection, request, group, most_ms)
            return None if is_allowed or connection.is_closed else not_now()

        _keep(self._waiting, self._pass_after(refusal, connection, request, self.rules))

    async def _is_allowed(self, connection: Connection, request: RemotingCommand, group: str, most_ms: int) -> bool:
        """Wait for the quota, at most `most_ms` and while the connection is open. Returns whether the quota allows the
        pull."""
        end_ms = self._clock.monotonic_ms() + most_ms
        self._fast_failure.pulls.enter()
        try:
            while (wait_ms := self._quotas.pull_wait_ms(group, request)) and not connection.is_closed:
                left_ms = end_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    break
                await asyncio.sleep(min(wait_ms, left_ms) / 1000)
        finally:
            self._fast_failure.pulls.leave()
        return not wait_ms

    def when_read(self, connection: Connection, request: RemotingCommand, result: GetMessageResult) -> None:
        """Process `request` again when the bytes its filter examines are in memory."""

        wait = partial(self._bring_in, connection, request, result)
        _keep(self._reading, self._pass_after(wait, connection, request, self.rules, was_read=True))

    def after(
        self, connection: Connection, request: RemotingCommand, wait: Callable[[], Awaitable[RemotingCommand | None]]
    ) -> None:
        """Answer `request` with what `wait` returns; process it again if that is None."""
        _keep(self._reading, self._pass_after(wait, connection, request, self.rules))

    async def _pass_after(
        self,
        wait: Callable[[], Awaitable[RemotingCommand | None]],
        connection: Connection,
        request: RemotingCommand,
        since: object,
        *,
        was_read: bool = False,
    ) -> None:
        """Process `request` again after a wait, unless the wait ended in an answer or the connection is closed."""
        reply = await wait()
        if connection.is_closed:
            return
        if reply is None:
            reply = self.refusal(connection, request, since) or self._try_again(connection, request, was_read)
        if reply is not None:
            connection.send(reply)

    def send_when_read(
        self,
        connection: Connection,
        request: RemotingCommand,
        reply: RemotingCommand,
        cold: Iterable[GetMessageResult],
    ) -> None:
        """Send `reply` when its messages are in memory, or an error if the disk cannot read them."""
        _keep(self._reading, self._send_cold(connection, request, reply, cold, self.rules))

    async def _send_cold(
        self,
        connection: Connection,
        request: RemotingCommand,
        reply: RemotingCommand,
        cold: Iterable[GetMessageResult],
        since: object,
    ) -> None:
        for result in cold:
            refusal = await self._bring_in(connection, request, result)
            if refusal is not None:
                connection.send(refusal)
                return
        connection.send(self.refusal(connection, request, since) or reply)

    @property
    def rules(self) -> object:
        """Returns the present version of the access rules, for `refusal`."""
        return None if self._guard is None else self._guard.rules

    def refusal(self, connection: Connection, request: RemotingCommand, since: object) -> RemotingCommand | None:
        """Return the refusal of a request that has waited since the access rules had version `since`, if it may no
        longer be served; None if it may."""
        return None if self._guard is None else self._guard.again(connection, request, since)

    def _try_again(self, connection: Connection, request: RemotingCommand, was_read: bool) -> RemotingCommand | None:
        try:
            return self._again(connection, request, was_read)
        except Exception as error:  # without it the client would get no answer
            return failure_reply(request, error)

    async def _bring_in(
        self, connection: Connection, request: RemotingCommand, result: GetMessageResult
    ) -> RemotingCommand | None:
        """Load the bytes of `result` into memory. Returns an error as the answer to `request` if the disk cannot read
        them."""
        self._fast_failure.pulls.enter()
        try:
            await COLD_READS.run(result.bring_in)
        except Exception as error:  # without it the client would get no answer
            reply = failure_reply(request, error)
            reply.remark = f"the messages could not be read from the disk: {reply.remark}"
            return reply
        finally:
            self._fast_failure.pulls.leave()
        return None

    async def drain(self) -> None:
        """Wait for the answers that wait for the disk; requests that wait for a quota are not answered."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
