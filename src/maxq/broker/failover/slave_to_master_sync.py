"""SlaveToMasterSync: a master that comes back takes over the state of a slave that acted for it.

    consumer offsets 43    the larger offset of each queue
    delay offsets 45, timer checkpoint 60    the files (see ReplicatedConfigFiles)
    messages given to consumers 30091        see broker/pop/hand_back.py

Nothing is taken from a slave whose log mark shows that its log differs (replication/ha/log_mark.py).

Consumer offsets are taken only if the slave's data version is not older than this master's was before its return. They
never go back: if the own offset is larger, because the slave had not copied a commit before this master died, the own
one stays. (Java takes the slave's table of a group and topic as it is, and forgets queues that the slave does not
know.) Nor do they go beyond the ends of the queues here: a master that lost the end of its log gives the offsets of
lost messages, which may have been consumed, to other messages, whether the slave had copied the lost ones or not.
Offsets that operators have set or removed here are kept if the slave does not know of the change.

Delayed and timer messages count as delivered if this broker has delivered them, or if the slave has delivered them to
another broker group (enableRemoteEscape): the larger offset of each level counts, and the timer that has come further.
Versions cannot decide, because both brokers have counted since the slave's last copy. A slave whose log is longer than
this one speaks of another log. Java's slaves do not say how long their log is; there the version decides.

A slave that does not act copies the same state from the slave that acts, every few seconds, so that it has nearly all
of it if that slave dies, and can hand it to the master.

Source:
    broker/BrokerPreOnlineService.java syncMetadataReverse.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from maxq.broker.failover.consumer_offset_ownership import is_newer
from maxq.broker.failover.master_link import HALink
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.pop import hand_back
from maxq.broker.slave.master_api import MasterApi
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.broker.tables.offset.consumer_offset_manager import (
    ACTS_SINCE,
    UNHEARD,
    ConsumerOffsetManager,
    tells_of_acting,
)
from maxq.broker.tables.offset.offset_table import OffsetTable, keys_on
from maxq.broker.tables.offset.operator_changes import OperatorChanges
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, RemoteProtocolError, ReplicationDivergedError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.runtime.blocking import TABLES, run_blocking

log = logging.getLogger(__name__)


class SlaveToMasterSync:
    """Takes over, for one master, the tables that its slave kept while it acted for the master."""

    def __init__(
        self,
        api: MasterApi,
        own: BrokerAddress,
        offsets: ConsumerOffsetManager,
        files: ReplicatedConfigFiles,
        *,
        timer_wheel: Callable[[], bool],
        log_end: Callable[[], int],
        queue_end: Callable[[str, int], int],
        ha: HALink,
    ) -> None:
        """
        Args:
            timer_wheel: timerWheelEnable; without it nothing of the timer is asked for.
            log_end: physical end of this broker's log.
            queue_end: offset of the next message of a queue, `(topic, queue id)`, of this broker.
            ha: marks and compares logs.
        """
        self._api = api
        self._own = own
        self._offsets = offsets
        self._files = files
        self._timer_wheel = timer_wheel
        self._log_end = log_end
        self._queue_end = queue_end
        self._ha = ha
        self._pops: dict[str, bytes] = {}  # state of popped messages by the slave's address
        self._copied: dict[str, bytes] = {}  # the same, copied from slaves that went on acting as master
        # address of the slave that was copied from, since when it acts, and the offsets it had then
        self._copied_offsets: tuple[str, Any, OffsetTable] = "", 0, {}
        # id of this master's return, and the version of its offsets before it
        self._return: tuple[str, DataVersion] | None = None

    def take_pops(self) -> list[bytes]:
        """Return, once, what slaves reported of popped messages. Pop consumption adopts it when it starts."""
        taken, self._pops = self._copied | self._pops, {}
        self.forget_copies()
        return list(taken.values())

    def copied_of(self, address: str) -> bytes:
        """Return what `copy` has found out about messages that the slave at `address` gave to consumers; empty if it
        has not copied it."""
        return self._copied.get(address, b"")

    def forget_copies(self) -> None:
        """Forget what `copy` has found out about popped messages, and which offsets it has copied: another broker is
        active."""
        self._copied = {}
        self._copied_offsets = "", 0, {}

    async def take_back(self, address: str, return_id: str) -> bool:
        """Take back everything that the slave at `address` has. `return_id` names this return of the master: a repeated
        request has the same one. Returns whether the slave may have acted for this master.

        Raises:
            MaxQError: it did not answer, or not as it should.
            OSError: the disk refuses.
        """
        # Pops are before the offsets: from here on the slave moves none of them by itself.
        has_popped = await self._take_pops(address, return_id)
        has_acted = await self._take_consumer_offsets(address, self._version_before(return_id))
        await self._take_delay_offsets(address)
        if self._timer_wheel():
            await self._take_timer_checkpoint(address)
        return has_popped or has_acted

    async def take_over(self, address: str) -> None:
        """Take over, on a slave that is about to act, what the slave at `address` kept while it acted. That one ends to
        act. Offsets of a slave that has not acted are not taken: they are an older copy, perhaps.

        Raises:
            MaxQError: it did not answer, does not leave the group to this slave, or did not answer as it should.
            OSError: the disk refuses.
        """
        try:
            told, mark = await self._api.leave_group(address, self._own, self._ha.log_mark())
            self._check_log(address, mark)
            if told:
                self._pops[address] = told
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # a Java broker does not know the request
                raise
        page, following = await self._api.consumer_offsets(address)
        if tells_of_acting(page):
            log.info("took over the consumer offsets of slave %s: %d queues moved on",
                     address, await self._merge_offsets(address, page, following))  # fmt: skip
            self._offsets.request_persist()
        await self._take_delay_offsets(address)
        if self._timer_wheel():
            await self._take_timer_checkpoint(address)

    async def copy(self, address: str, is_wanted: Callable[[], bool]) -> None:
        """Copy, on a slave that does not act, what the slave at `address` keeps while it acts. That one goes on. Where
        the offset of a queue is the one that was copied last it follows that slave also if the group went back there.
        Otherwise the larger one counts, as it does when that slave has begun to act anew since the last copy: after a
        kill it may not have all that it had before.

        Args:
            is_wanted: does that slave still act for this one, as far as is known? It is asked after each answer.

        Raises:
            MaxQError: it did not answer, or not as it should; RocketMQ's do not.
            OSError: the disk refuses.
        """
        told, mark = await self._api.copy_pops(address)
        self._check_log(address, mark)
        page, following = await self._api.consumer_offsets(address)
        if not tells_of_acting(page) or not is_wanted():
            return
        if told:
            self._copied[address] = told
        since = page.get(ACTS_SINCE)
        if not told or self._copied_offsets[:2] != (address, since):
            self._copied_offsets = address, since, {}
        await self._merge_offsets(address, page, following, is_wanted, self._copied_offsets[2])
        if is_wanted():
            self._offsets.has_acted = True
            await self._take_delay_offsets(address)
        if self._timer_wheel() and is_wanted():
            await self._take_timer_checkpoint(address)

    def _version_before(self, return_id: str) -> DataVersion:
        """Return the version of this master's offsets before it took any back in this return. If two slaves have acted
        in turn, the later one may not know of commits at the other."""
        if self._return is None or self._return[0] != return_id:
            self._return = return_id, self._offsets.data_version
        return self._return[1]

    async def _take_consumer_offsets(self, address: str, ours: DataVersion) -> bool:
        """Take what the slave has of consumer offsets. Returns whether it says that it has acted."""
        page, following = await self._api.consumer_offsets(address)
        version = _version_of(page)
        if is_newer(ours, version):
            log.info("the consumer offsets of slave %s are older (%s) than ours (%s): not taken",
                     address, version, ours)  # fmt: skip
            return tells_of_acting(page)
        moved = await self._merge_offsets(address, page, following)
        self._offsets.not_beyond(self._queue_end)
        self._offsets.request_persist()
        log.info("took the consumer offsets of slave %s: %d queues moved on", address, moved)
        return tells_of_acting(page)

    async def _merge_offsets(
        self,
        address: str,
        page: dict[str, Any],
        following: str,
        is_wanted: Callable[[], bool] = lambda: True,
        copied: OffsetTable | None = None,
    ) -> int:
        """Merge the offsets on all pages of a slave's table, of which this is the first, or those on the first ones if
        they are wanted no longer; `copied`: as `take_back_from_slave` has it. Returns how many queues moved on."""
        known, named, unheard = OperatorChanges.from_json(page), keys_on(page), _unheard_on(page)
        moved = self._merge_page(page, known, unheard, copied)
        while following:
            page, following = await self._api.consumer_offsets(address, following)
            if not is_wanted():
                return moved
            moved += self._merge_page(page, known, unheard, copied)
            named |= keys_on(page)
        self._offsets.took_back_from_slave(known, named)
        return moved

    def _merge_page(
        self,
        page: dict[str, Any],
        known: OperatorChanges | None,
        unheard: Mapping[str, Collection[int]],
        copied: OffsetTable | None,
    ) -> int:
        moved = self._offsets.take_back_from_slave(page, known, unheard, copied)
        if self._own.broker_id != MASTER_ID:
            self._offsets.note_unheard(page, unheard, self._queue_end)
        return moved

    async def _take_pops(self, address: str, return_id: str) -> bool:
        """Take what the slave knows of messages given to consumers: it does if it has acted. RocketMQ's do not say."""
        try:
            told, mark = await self._api.hand_back_pops(address, return_id, self._own.address, self._ha.log_mark())
            self._check_log(address, mark)
            # adopted at once, while this broker still takes no messages
            self._pops[address] = hand_back.within(told, self._queue_end)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # a Java broker does not know the request
                raise
            return True
        return bool(told)

    def _check_log(self, address: str, mark: str) -> None:
        if self._ha.has_other_log(mark):
            raise ReplicationDivergedError(
                f"the log of slave {address} differs from this broker's, so what it knows belongs to other messages",
                physical_offset=self._log_end(),
            )

    async def _take_delay_offsets(self, address: str) -> None:
        text = await self._api.delay_offsets(address)
        if not text:
            return
        own, theirs = await run_blocking(self._files.delay_offsets), DelayOffsetSerializeWrapper.decode(text)
        if theirs.physical_offset is not None and theirs.physical_offset > self._log_end():
            log.warning("the delay offsets of slave %s are not taken: its log ends at %d, and this one at %d",
                        address, theirs.physical_offset, self._log_end())  # fmt: skip
            return
        if own is not None:
            ours = DelayOffsetSerializeWrapper.decode(own)
            if theirs.physical_offset is not None:
                text = _delivered_by_either(ours, theirs).encode()
            elif is_newer(ours.data_version or DataVersion(), theirs.data_version or DataVersion()):
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
        if theirs.log_end:
            # what another slave has said already counts before this broker's checkpoint has it
            known_ms = await run_blocking(self._files.timer_read_time_ms)
            if theirs.last_read_time_ms <= known_ms or theirs.log_end > self._log_end():
                return
        elif is_newer(own.data_version, theirs.data_version):
            return
        if await TABLES.run(self._files.write_timer_checkpoint, theirs):
            log.info("took the timer checkpoint of slave %s", address)


def _delivered_by_either(
    ours: DelayOffsetSerializeWrapper, theirs: DelayOffsetSerializeWrapper
) -> DelayOffsetSerializeWrapper:
    """Merge two tables: a message counts as delivered unless both tables have it as undelivered."""
    offsets = dict(ours.offset_table)
    for level, offset in theirs.offset_table.items():
        offsets[level] = max(offset, offsets.get(level, 0))
    postponed: dict[int, list[int]] = {}
    for level, end in offsets.items():
        named = {at for table in (ours, theirs) for at in (table.postponed or {}).get(level, ()) if at < end}
        left = sorted(at for at in named if all(_waits(table, level, at) for table in (ours, theirs)))
        postponed |= {level: left} if left else {}
    mine, other = ours.data_version or DataVersion(), theirs.data_version or DataVersion()
    return DelayOffsetSerializeWrapper(
        offsets,
        mine if is_newer(mine, other) else other,
        max(ours.physical_offset or 0, theirs.physical_offset or 0),
        postponed or None,
    )


def _waits(table: DelayOffsetSerializeWrapper, level: int, offset: int) -> bool:
    """Return whether a table has this message of a level as undelivered."""
    return offset >= table.offset_table.get(level, 0) or offset in (table.postponed or {}).get(level, ())


def _unheard_on(page: dict[str, Any]) -> dict[str, list[int]]:
    """Read UNHEARD on the first page of a slave's offsets; slaves of earlier versions and RocketMQ's do not say it."""
    unheard: Any = page.get(UNHEARD, {})
    if not isinstance(unheard, dict) or not all(
        isinstance(row, list) and all(isinstance(queue_id, int) for queue_id in row) for row in unheard.values()
    ):
        raise RemoteProtocolError(f"{UNHEARD} are queue ids by topic@group, not {unheard!r:.80}")
    return dict(unheard)


def _version_of(value: Any) -> DataVersion:
    """Returns the data version of a table; the oldest possible one if the table names none."""
    version = value.get("dataVersion") if isinstance(value, dict) else None
    return DataVersion() if version is None else DataVersion.from_json(version)
