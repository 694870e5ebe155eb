"""POP_MESSAGE (200050): give the group messages, or have it wait for some.

Source:
    broker/processor/PopMessageProcessor.java.
"""

import logging
from collections.abc import Mapping
from typing import Final

from maxq.broker.bundles import Clients, Environment, Limits, Messages
from maxq.broker.longpolling.pop_long_polling import PollingResult, PopLongPollingService, PopRequest
from maxq.broker.pop.pop_checks import PopChecks
from maxq.broker.pop.pop_journal import NOT_NOTED
from maxq.broker.pop.pop_reader import PopAsk, PopFound, PopReader
from maxq.broker.pop.pop_service import NOTHING_NOTED, PopService
from maxq.broker.processors.acknowledgement import STAYS, remark_of
from maxq.broker.processors.pull.deferred_replies import DeferredReplies
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.stats import names
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PopMessageRequestHeader
from maxq.remoting.connection import Processor
from maxq.remoting.server import Connection

log = logging.getLogger(__name__)

MAX_POP_NUMS: Final = 32
_TOO_LATE_MS: Final = 500
_GIVEN: Final = STAYS - {ResponseCode.FLUSH_DISK_TIMEOUT}
CLOCKS_DIFFER_MS: Final = 3_600_000  # no request is so late: a larger difference means that the clocks differ


class PopMessageProcessor(RequestProcessor):
    """Answers POP_MESSAGE: gives a group's next messages to one client, which has to acknowledge them."""

    def __init__(
        self,
        env: Environment,
        clients: Clients,
        messages: Messages,
        limits: Limits,
        checks: PopChecks,
        reader: PopReader,
        polling: PopLongPollingService,
        service: PopService,
    ) -> None:
        self._settings = env.settings
        self._own = env.own
        self._checks = checks
        self._reader = reader
        self._polling = polling
        self._stats = env.stats
        self._clock = env.clock
        self._service = service
        self._quotas = limits.quotas
        self._silent = clients.consumers.silent
        self._acknowledgement = messages.acknowledgement
        self._later = DeferredReplies(env, limits, self._pass)

    def routes(self) -> Mapping[int, Processor]:
        return {RequestCode.POP_MESSAGE: self.pop, RequestCode.POP_ROLLBACK: self.roll_back}

    def roll_back(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer mqadmin exportPopRecord: MaxQ has no check points in RocksDB that would have to be exported."""
        return request.reply()

    def pop(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Answer a pop in its first pass, or park it."""
        if not request.ext.get("bornTime"):
            request.ext["bornTime"] = str(self._clock.wall_ms())
        return self._pass(connection, request, was_read=False)

    def _pass(self, connection: Connection, request: RemotingCommand, was_read: bool) -> RemotingCommand | None:
        header = PopMessageRequestHeader.decode(request.ext)
        ask = self._check(connection, header)
        if self._quotas.pull_wait_ms(header.consumer_group, request):
            self._wait_for_quota(connection, request, header)
            return None
        found = self._reader.read(ask, may_wait=not was_read, was_read=was_read)
        if found.unread is not None and not found.count:
            self._later.when_read(connection, request, found.unread)
            return None
        if found.count:
            return self._found(connection, request, ask, found)
        return self._nothing(connection, request, header, ask, found)

    def _check(self, connection: Connection, header: PopMessageRequestHeader) -> PopAsk:
        late_ms = self._clock.wall_ms() - header.born_time - header.poll_time
        if not header.born_time or late_ms > CLOCKS_DIFFER_MS:
            header.born_time = self._clock.wall_ms()
        elif late_ms > _TOO_LATE_MS:
            raise RequestRefusedError(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self._own.ip}] pop message is timeout too much: it came {late_ms} ms after its client "
                f"gave up, the limit is {_TOO_LATE_MS} ms; look at the clocks of both machines",
            )
        if header.max_msg_nums > MAX_POP_NUMS:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._own.ip}] pop message's num is greater than {MAX_POP_NUMS}: {header.max_msg_nums} "
                "were asked for; ask for fewer at a time",
            )
        refusal = self._service.not_ready()
        if refusal is not None:
            raise RequestRefusedError(refusal.code, refusal.remark)
        topic, group = self._checks.may_read(connection, header.topic, header.consumer_group, header.queue_id, "pop")
        subscription, wanted = self._checks.filters.of(header.topic, header.exp, header.exp_type)
        self._silent.says(header.consumer_group, subscription)
        return PopAsk(
            connection.remote_address, group, topic, header.queue_id, header.max_msg_nums, header.invisible_time,
            header.init_mode, bool(header.order), header.attempt_id, subscription, wanted,
        )  # fmt: skip

    # --- answers -----------------------------------------------------------------------------------------------------

    def _found(
        self, connection: Connection, request: RemotingCommand, ask: PopAsk, found: PopFound
    ) -> RemotingCommand | None:
        topic, group = ask.topic.topic_name, ask.group.group_name
        if found.points:
            self._stats.add(names.GROUP_CK_NUMS, f"{topic}@{group}", len(found.points))
            self._stats.add(names.BROKER_CK_NUMS, self._own.cluster, len(found.points))
        if self._quotas.limits_pulls:
            self._quotas.delivered(group, request, found.count, sum(map(len, found.buffers)))
        ext = self._ext(ask, found)
        ext["startOffsetInfo"] = ";".join(found.start_offset_info)
        ext["msgOffsetInfo"] = ";".join(found.msg_offset_info)
        if ask.order:
            ext["orderCountInfo"] = ";".join(found.order_count_info)
        reply = request.reply(ResponseCode.SUCCESS, "FOUND", ext, found.buffers)
        if found.rest_num > 0:
            self._polling.poke(topic, group, ask.queue_id)
        return self._when_noted(connection, request, reply, found)

    def _when_noted(
        self, connection: Connection, request: RemotingCommand, reply: RemotingCommand, found: PopFound
    ) -> RemotingCommand | None:
        """Return the answer once the record of the messages given out is as safe as the settings promise. Otherwise,
        after a crash or a change of master, an ack would meet no check point, and another consumer might get the
        message. A slave that lags gets the record when it is back, unless it has acted as master meanwhile; a disk
        that lags may have failed."""
        if found.end_offset == NOT_NOTED:
            return request.reply(ResponseCode.SYSTEM_BUSY, NOTHING_NOTED)
        since, reign = self._later.rules, self._service.reign

        def noted(code: ResponseCode) -> None:
            if (refused := self._later.refusal(connection, request, since)) is not None:
                connection.send(refused)
            elif code not in _GIVEN or not self._may_give(code, reign):
                what = "the record of this pop"
                connection.send(request.reply(code, remark_of(code, what, "the messages come again")))
            elif found.cold:
                self._later.send_when_read(connection, request, reply, found.cold)
            else:
                connection.send(reply)

        if found.end_offset and self._acknowledgement.when(found.end_offset, noted):
            return None
        if found.cold:
            self._later.send_when_read(connection, request, reply, found.cold)
            return None
        return reply

    def _may_give(self, code: ResponseCode, reign: int) -> bool:
        """Return whether messages may be given out that were read when the service had begun its `reign`th time as the
        active one. A slave that does not know of them may have given the messages to others since."""
        return code is ResponseCode.SUCCESS or self._service.is_as_in(reign)

    def _nothing(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PopMessageRequestHeader,
        ask: PopAsk,
        found: PopFound,
    ) -> RemotingCommand | None:
        waiting = PopRequest(
            connection, request, (header.topic, header.consumer_group, header.queue_id), self._again, ask.order
        )
        result = self._polling.polling(waiting, born_time=header.born_time, poll_time=header.poll_time)
        if result is PollingResult.POLLING_SUC:
            self._go_on(ask, found)
            return None
        full = result is PollingResult.POLLING_FULL
        code = ResponseCode.POLLING_FULL if full else ResponseCode.POLLING_TIMEOUT
        return request.reply(code, "NO_MESSAGE_IN_QUEUE", self._ext(ask, found))

    def _ext(self, ask: PopAsk, found: PopFound) -> dict[str, str]:
        return {
            "popTime": str(found.pop_time),
            "invisibleTime": str(ask.invisible_time),
            "reviveQid": str(found.revive_qid),
            "restNum": str(found.rest_num),
        }

    def _again(self, waiting: PopRequest, last: bool) -> bool:
        """Process a parked request again; with `last` it is answered in any case.

        Returns:
            Whether it need not stay parked: it was answered, or waits for its group's quota.
        """
        connection, request = waiting.connection, waiting.request
        header = PopMessageRequestHeader.decode(request.ext)
        header.born_time = self._clock.wall_ms()  # the request waited here, so the time of its arrival no longer counts
        ask = self._check(connection, header)
        if not last and self._quotas.pull_wait_ms(header.consumer_group, request):
            self._wait_for_quota(connection, request, header)
            return True
        found = self._reader.read(ask, may_wait=False)
        if found.count:
            reply = self._found(connection, request, ask, found)
            if reply is not None:
                connection.send(reply)
            return True
        if last:
            connection.send(request.reply(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", self._ext(ask, found)))
        else:
            self._go_on(ask, found)
        return last

    def _go_on(self, ask: PopAsk, found: PopFound) -> None:
        """Continue a pop in a later turn of the loop, because the messages examined so far did not match and there are
        more."""
        if found.passed and found.rest_num > 0:
            self._polling.poke(ask.topic.topic_name, ask.group.group_name, ask.queue_id)

    # --- later -------------------------------------------------------------------------------------------------------

    def _wait_for_quota(
        self, connection: Connection, request: RemotingCommand, header: PopMessageRequestHeader
    ) -> None:
        self._later.when_allowed(
            connection, request, header.consumer_group, header.poll_time, lambda: self._not_now(request, header)
        )

    def _not_now(self, request: RemotingCommand, header: PopMessageRequestHeader) -> RemotingCommand:
        ext = {"popTime": "0", "invisibleTime": str(header.invisible_time), "reviveQid": "0", "restNum": "0"}
        remark = self._quotas.pull_remark(header.consumer_group, request)
        return request.reply(ResponseCode.POLLING_TIMEOUT, remark, ext)

    async def drain(self) -> None:
        """Wait for the pops whose messages are being read from the disk; those that wait for a quota are not answered.
        Messages that could not be read become visible again after their invisible time."""
        await self._later.drain()
