"""MetadataReverse: a master that comes back takes from a slave what the slave kept for it.

    consumer offsets 43    the larger offset of each queue
    delay offsets 45, timer checkpoint 60    the files (see CarriedFiles)
    messages given to consumers 30091        see broker/pop/hand_back.py

the first three only if the slave's data version is not older than ours. Offsets never go back: where our own is the
larger one, a commit that the slave had not copied before this master died, that one stays. (Java takes the slave's
table of a group and topic whole, and a queue that the slave does not know is forgotten.)

Source:
    broker/BrokerPreOnlineService.java syncMetadataReverse; ha.md §8.
"""

import logging
from collections.abc import Callable
from typing import Any

from maxq.broker.acting.offset_authority import is_newer
from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.slave.carried_files import CarriedFiles
from maxq.broker.slave.master_api import MasterApi
from maxq.codes import ResponseCode
from maxq.errors import BrokerError
from maxq.protocol import json_dialect
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.runtime.blocking import TABLES, run_blocking

log = logging.getLogger(__name__)


class MetadataReverse:
    """One master's tables."""

    def __init__(
        self,
        api: MasterApi,
        offsets: ConsumerOffsetManager,
        files: CarriedFiles,
        *,
        timer_wheel: Callable[[], bool],
    ) -> None:
        """`timer_wheel` is timerWheelEnable; without it nothing of the timer is asked for."""
        self._api = api
        self._offsets = offsets
        self._files = files
        self._timer_wheel = timer_wheel
        self._pops: list[bytes] = []

    def take_pops(self) -> list[bytes]:
        """What slaves said of messages given to consumers, once; pop consumption takes it in when it starts."""
        taken, self._pops = self._pops, []
        return taken

    async def take_back(self, address: str) -> None:
        """Take everything that the slave at `address` has.

        Raises:
            MaxQError: it did not answer, or not as it should.
            OSError: the disk refuses.
        """
        await self._take_pops(address)  # before the offsets: from here on the slave moves none of them by itself
        await self._take_consumer_offsets(address)
        await self._take_delay_offsets(address)
        if self._timer_wheel():
            await self._take_timer_checkpoint(address)

    async def _take_consumer_offsets(self, address: str) -> None:
        page, following = await self._api.consumer_offsets(address)
        version = _version_of(page)
        if is_newer(self._offsets.data_version, version):
            log.info("the consumer offsets of slave %s are older (%s) than ours (%s): not taken",
                     address, version, self._offsets.data_version)  # fmt: skip
            return
        moved = self._offsets.take_back_from_slave(page)
        while following:
            page, following = await self._api.consumer_offsets(address, following)
            moved += self._offsets.take_back_from_slave(page)
        self._offsets.request_persist()
        log.info("took the consumer offsets of slave %s: %d queues moved on", address, moved)

    async def _take_pops(self, address: str) -> None:
        try:
            self._pops.append(await self._api.hand_back_pops(address))
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # Java's
                raise

    async def _take_delay_offsets(self, address: str) -> None:
        text = await self._api.delay_offsets(address)
        if not text:
            return
        own = await run_blocking(self._files.delay_offsets)
        if own is not None and is_newer(_version_of(json_dialect.loads(own)), _version_of(json_dialect.loads(text))):
            return
        if await TABLES.run(self._files.write_delay_offsets, text):
            log.info("took the delay offsets of slave %s", address)

    async def _take_timer_checkpoint(self, address: str) -> None:
        try:
            theirs = await self._api.timer_check_point(address)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # it has no timer
                return
            raise
        own = await run_blocking(self._files.timer_checkpoint) or TimerCheckpoint()
        if is_newer(own.data_version, theirs.data_version):
            return
        if await TABLES.run(self._files.write_timer_checkpoint, theirs):
            log.info("took the timer checkpoint of slave %s", address)


def _version_of(value: Any) -> DataVersion:
    """The data version that a table names; the oldest of all if it names none."""
    version = value.get("dataVersion") if isinstance(value, dict) else None
    return DataVersion() if version is None else DataVersion.from_json(version)
