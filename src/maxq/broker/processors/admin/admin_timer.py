"""AdminTimerProcessor: how far delayed messages are delivered, as slaves ask for it (45, 60, 61).

A running service answers; otherwise the files that it has left under config/ (ReplicatedConfigFiles). Without files
there is nothing that waits, and everything up to now counts as delivered: a Java slave that becomes master starts its
wheel there, not in 1970.

Source:
    broker/processor/AdminBrokerProcessor.java (getAllDelayOffset, getTimerCheckPoint, getTimerMetrics).
"""

from collections.abc import Mapping
from typing import Final

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.tables.topic.topic_validator import TIMER_TOPIC
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.blocking import TOOLS

_SECOND_MS: Final = 1000  # the wheel's times are multiples of it if timerPrecisionMs is so


class AdminTimerProcessor(RequestProcessor):
    """Answers GET_ALL_DELAY_OFFSET (45), GET_TIMER_CHECK_POINT (60) and GET_TIMER_METRICS (61)."""

    def __init__(self, env: Environment, tables: Tables, messages: Messages) -> None:
        self._settings = env.settings
        self._clock = env.clock
        self._store = messages.store
        self._files = tables.files
        self._version = DataVersion(timestamp=env.clock.wall_ms())

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_all_delay_offset,
            RequestCode.GET_TIMER_CHECK_POINT: self.get_timer_check_point,
            RequestCode.GET_TIMER_METRICS: self.get_timer_metrics,
        }

    async def get_all_delay_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_DELAY_OFFSET (45)."""
        body = await TOOLS.run(self._files.delay_offsets)
        return request.reply(body=body or DelayOffsetSerializeWrapper({}, self._version).encode())

    async def get_timer_check_point(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_TIMER_CHECK_POINT (60) with Java's 56 bytes, and MaxQ's own fields behind them."""
        self._refuse_without_wheel("The checkpoint is null")
        checkpoint = await TOOLS.run(self._files.timer_checkpoint)
        if checkpoint is None:
            now_ms = self._clock.wall_ms()
            end = self._store.max_offset(TIMER_TOPIC, 0)
            checkpoint = TimerCheckpoint(now_ms - now_ms % _SECOND_MS, 0, end, end, self._version)
        return request.reply(body=checkpoint.encode_answer())

    async def get_timer_metrics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_TIMER_METRICS (61)."""
        self._refuse_without_wheel("The timer message store is null")
        body = await TOOLS.run(self._files.timer_metrics)
        if body is None:
            body = json_dialect.dumps({"dataVersion": self._version.to_json(), "timingCount": {}})
        return request.reply(body=body)

    def _refuse_without_wheel(self, remark: str) -> None:
        if not self._settings.store.timer_wheel_enable:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{remark}: timerWheelEnable is false")
