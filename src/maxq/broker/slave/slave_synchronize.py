"""SlaveSynchronize: a slave's copies of what its master knows besides messages.

    compacted queues 11       what the master keeps of messages that are older than this broker's log, once
    topics 21, groups 201     whole tables, taken with the master's version when that differs from ours
    consumer offsets 43       the master's win, what only we have stays; what clients committed here while they could
                              not reach the master, and is ahead of its table, is handed over first (15), also while
                              the logs do not join, if the master has the message before it; none while this broker
                              acts as master
    request modes 402         the master's table
    delay offsets 45, timer metrics 61, timer checkpoint 60     files (see ReplicatedConfigFiles)

A round starts when a master becomes known, when the replication link to it opens, and `PERIOD` seconds after the last
one; after two that took long, up to a minute later. (Java begins after 10 s and repeats every 60 s.) Topics
and groups are taken between rounds, too: a question waits at the master until they change (30090), so what was made
there outlives it unless it dies within some milliseconds. Java's masters do not know the question. Offsets wait for the
round: they change all the time, and clients that live tell the next master theirs. Members of a DLedger group have
topics, groups and request modes by their log, and ask nobody for them unless a Java member leads. They take no consumer
offsets of a member that knows of less of the log than they do, for it leads no more, and none that lack what operators
have set in the log that is here. The
slave's tables carry the master's DataVersion, never one of their own: a change made on the slave alone is undone by the
next round. Failures are logged when they begin and when they end; nothing of it stops the broker.

Source:
    broker/slave/SlaveSynchronize.java, broker/BrokerController.java (handleSlaveSynchronize).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from maxq.access.access_control import with_remedy
from maxq.broker.processors.clients.message_request_mode_manager import MessageRequestModeManager
from maxq.broker.slave.master_api import KnownTables, MasterApi, log_end_of
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.tables.offset.offset_table import OffsetTable, keys_on
from maxq.broker.tables.offset.slave_commits import SlaveCommit
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.tables.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, MaxQError, RemoteProtocolError, RemotingConnectError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.runtime.background import count_failure
from maxq.runtime.blocking import TABLES
from maxq.runtime.interfaces import Clock
from maxq.store.compaction.compaction_store import CompactionStore, LackingQueue
from maxq.store.log.deletions import Deletions

log = logging.getLogger(__name__)

#: Seconds between two rounds.
PERIOD: Final = 3.0
#: Largest share of the time that rounds may take, so that tables of gigabytes are not copied without a break.
_SHARE: Final = 0.05
#: … but the next round begins after this many seconds at the latest: a slave that acts for the master has the offsets
#: of that time.
_LONGEST: Final = 60.0
#: Least seconds between two changes that are copied one by one, while nobody waits for slaves to have them.
_PAUSE: Final = 0.05
#: Seconds after which a master that did not say what changes is asked again.
_RETRY: Final = 3.0
#: Times, and seconds each, that a slave waits for its log to reach the end that a table refers to.
_LOOKS: Final = 5
_LOOK_SECONDS: Final = 0.02
#: … and times for a table that cannot be replaced by a newer one: a slave that is always some seconds behind must get
#: offsets, too.
_LONG_LOOKS: Final = 150
#: Milliseconds for which a slave may be without a compared link before this counts as a failure.
_JOIN_MS: Final = 10_000
#: Milliseconds between two questions where the master's log begins, while there are compaction topics.
_LOG_BEGINS_MS: Final = 600_000
#: Most copies of a compacted queue during which the master may compact it; the last one is kept all the same.
_COPIES: Final = 3
#: Most topics that one line of the log names.
_NAMED: Final = 20

#: Answers of a master to offsets that mean nothing to it any more: the topic, group or queue is gone.
_KNOWN_NO_LONGER: Final = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.INVALID_PARAMETER,
)

_Answer = TypeVar("_Answer")


class _LinkEndedError(RemoteProtocolError):
    """The replication link ended while the master was asked. `_may_take` reports it if it stays so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveTables:
    """The tables of a slave into which it copies those of its master."""

    topics: TopicConfigManager
    mappings: TopicQueueMappingManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    request_modes: MessageRequestModeManager
    files: ReplicatedConfigFiles
    deletions: Deletions

    def adopt_deletions(self, value: dict[str, Any]) -> None:
        """Learn deletions before this log's beginning from a broker whose log is the same (Deletions.to_json).

        Raises:
            RemoteProtocolError: it is not such a table; nothing was changed.
        """
        try:
            newest = self.deletions.adopt(value)
        except ValueError as error:
            raise RemoteProtocolError(f"the table of deleted topics cannot be read: {error}") from error
        # the offsets that are here belong to topics that were made after the deletion
        self.offsets.take_deletion([], newest)


class OwnLog(Protocol):
    """The part of the message store that a slave needs when it copies its master's tables."""

    @property
    def compaction(self) -> CompactionStore | None:
        """Return the compacted queues, which may lack messages that only the master has; None if there are none."""
        ...

    @property
    def max_physical_offset(self) -> int:
        """Return the physical offset behind the last record of the own CommitLog."""
        ...

    def queue_units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return (physical offset, size, tags code) of up to `count` messages of a queue from `offset` on."""
        ...

    def select_one_message(self, physical_offset: int) -> memoryview | None:
        """Return the record at `physical_offset`; None if none starts there."""
        ...


class SlaveSynchronize:
    """Copies a master's tables to its slave. Runs between `start` and `stop`, which follow the broker's role."""

    def __init__(
        self,
        api: MasterApi,
        tables: SlaveTables,
        *,
        clock: Clock,
        own_address: Callable[[], str],
        timer_wheel: Callable[[], bool],
        own_log: OwnLog,
        joins_master: Callable[[], bool],
        tables_in_log: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            own_address: this broker's own `host:port`: it is not its own master.
            timer_wheel: timerWheelEnable; without it nothing of the timer is asked for.
            joins_master: is the own log, as far as it goes, the master's? Tables say what is in a log and how far
                readers are in it, so those that belong to another log are not taken.
            tables_in_log: does the log say what topics, groups and request modes are? An answer may be older: it comes
                late, or from a broker that was the leader, has ended, and is back without the end of its tables.
        """
        self._api = api
        self._tables = tables
        self._clock = clock
        self._own_address = own_address
        self._timer_wheel = timer_wheel
        self._own_log = own_log
        self._joins_master = joins_master
        self._tables_in_log = tables_in_log
        self._master_address = ""
        self._wanted = asyncio.Event()
        self._joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None
        # held while a table is copied, so that an older answer does not replace a newer one
        self._taking = asyncio.Lock()
        # held while offsets are copied: these wait for the log, which topics do not
        self._taking_offsets = asyncio.Lock()
        self._failing: dict[str, str] = {}  # table → why it cannot be copied at the moment
        # monotonic ms since which it is not known that the two logs are the same
        self._apart_since_ms: int | None = None
        # for steps that the end of the link interrupts: monotonic ms since the last success
        self._cut_off_since_ms: dict[str, int] = {}
        # compacted queues that are being copied → up to where the master had compacted them when that began
        self._copied_at: dict[tuple[str, int], int | None] = {}
        # compacted queues → copies that were given up because the master had compacted the queue meanwhile
        self._given_up: dict[tuple[str, int], int] = {}
        self._log_begins_due_ms = 0  # monotonic: when the master is asked next where its log begins
        self.rounds = 0  # rounds that were finished without a failure

    @property
    def master_address(self) -> str:
        """Return `host:port`; empty while no master is known."""
        return self._master_address

    def set_master_address(self, address: str) -> None:
        """Copy from this master from now on, starting at once; an empty address stops the copying."""
        if address == self._master_address:
            return
        log.info("the master is %s now, was %s", address or "unknown", self._master_address or "unknown")
        self._master_address = address
        self._copied_at.clear()
        self._given_up.clear()
        self._log_begins_due_ms = 0
        self._wanted.set()
        if self._task is not None:
            self._task.cancel()  # it may be waiting for a master that is gone; nothing else copies a table meanwhile
            self._task = asyncio.get_running_loop().create_task(self._run(), name="SlaveSynchronize")
            self._watch()

    async def master_min_offset(self) -> int | None:
        """Return the physical offset at which the master's log begins; None if the master is not known or does not
        say."""
        if not self._master_address:
            return None
        try:
            return await self._api.min_physical_offset(self._master_address)
        except MaxQError as error:
            log.info("master %s does not say where its log begins: %s", self._master_address, error)
            return None

    def wake(self) -> None:
        """Begin a round now, and ask for changes, because the logs have joined on a new replication link. The master
        counts a slave as copying its tables by these requests."""
        self._wanted.set()
        self._joined.set()

    def start(self) -> None:
        """Start copying; does nothing if it runs already."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="SlaveSynchronize")
            self._watch()

    async def stop(self) -> None:
        """Stop. The copies taken so far are kept, and so are the commits that the master does not have yet."""
        tasks = [task for task in (self._task, self._watch_task) if task is not None]
        self._task = self._watch_task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        before = 0.0  # seconds that the last round took; a long one may have met a master that stood still
        while True:
            self._wanted.clear()
            began_ms = self._clock.monotonic_ms()
            try:
                if await self.sync_all():
                    await self.sync_timer_check_point()
            except Exception:  # a slave whose tables are outdated continues to serve; the next round may succeed
                count_failure("synchronisation with the master")
                log.exception("a round of the slave's synchronisation failed")
            took = (self._clock.monotonic_ms() - began_ms) / 1000
            pause, before = max(PERIOD, min(min(took, before) / _SHARE, _LONGEST)), took
            try:
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    # --- between rounds -----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Wait for changes at the present master, and stop waiting at a former one."""
        if self._watch_task is not None:
            self._watch_task.cancel()
        self._watch_task = asyncio.get_running_loop().create_task(
            self._take_changes(self._master_address), name="SlaveSynchronize, changes"
        )

    async def _take_changes(self, address: str) -> None:
        if not address or address == self._own_address():
            return
        tables = self._tables
        rest, offsets_taken = 0.0, 0
        while True:
            self._joined.clear()
            if self._tables_in_log():
                await self._joined_or(_RETRY)
                continue
            try:
                # the slave that asks is told the changes only when they are on this disk
                await tables.topics.persisted()
                await tables.groups.persisted()
                known = KnownTables(tables.topics.data_version, tables.groups.data_version, offsets_taken)
                change, rest = await self._api.await_change(address, known, rest), 0.0
                if not change.is_changed:
                    continue
                began_ms = self._clock.monotonic_ms()
                is_taken = await self._take_tables(address)
                if is_taken and change.offsets_set > offsets_taken:
                    is_taken = await self._take_offsets(address)
                if is_taken:
                    offsets_taken = change.offsets_set
                    took = (self._clock.monotonic_ms() - began_ms) / 1000
                    rest = min(max(_PAUSE, took / _SHARE), PERIOD)
                    continue
            except BrokerError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    return  # a Java master, which does not know the request
            except (MaxQError, OSError) as error:
                log.debug(
                    "master %s could not be asked which tables change: %s", address, error
                )  # the next round reports the cause
            except Exception:
                count_failure("changes of the master's tables")
                log.exception("the changes that master %s reported cannot be applied; it is asked again", address)
            await self._joined_or(_RETRY)

    async def _joined_or(self, seconds: float) -> None:
        """Return when the logs have joined on a new link, or after so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._joined.wait()

    async def _take_tables(self, address: str) -> bool:
        """Copy topics and groups. Returns whether both were copied."""
        if not self._may_take(address):
            return False
        is_done = await self._try("topics", address, self._sync_topics)
        return await self._try("subscription groups", address, self._sync_groups) and is_done

    async def _take_offsets(self, address: str) -> bool:
        """Copy consumer offsets. Returns whether they were copied and are durable."""
        if not self._may_take(address) or not await self._try("consumer offsets", address, self._sync_consumer_offsets):
            return False
        self._tables.offsets.request_persist()
        await self._tables.offsets.persisted()
        return True

    # --- one round ----------------------------------------------------------------------------------------------------

    async def sync_all(self) -> bool:
        """Copy every table that the log does not tell. Returns False if the master is unknown, this broker itself, or
        unreachable, or if its log is not known to be this broker's."""
        address = self._master_address
        if not address or address == self._own_address():
            return False
        if not self._may_take(address):
            await self._try_to_connect("commits that clients made here", address, self._hand_over_common)
            return False
        in_log = (self._sync_topics, self._sync_groups, self._sync_request_modes) if self._tables_in_log() else ()
        steps: list[tuple[str, Callable[[str], Awaitable[None]]]] = [
            ("topics", self._sync_topics),
            ("consumer offsets", self._sync_consumer_offsets),
            ("delay offsets", self._sync_delay_offsets),
            ("subscription groups", self._sync_groups),
            ("message request modes", self._sync_request_modes),
        ]
        steps = [(what, step) for what, step in steps if step not in in_log]
        if self._timer_wheel():
            steps.append(("timer metrics", self._sync_timer_metrics))
        if self._own_log.compaction is not None:
            steps.append(("compacted queues", self._take_compacted))
        done = 0
        for what, step in steps:
            is_done = await self._try_to_connect(what, address, step)
            if is_done is None:
                return False
            done += is_done
        self._succeeded("connection", address)
        self.rounds += done == len(steps)
        return True

    async def sync_timer_check_point(self) -> None:
        """Copy the checkpoint of the master's timer."""
        address = self._master_address
        if address and address != self._own_address() and self._timer_wheel() and self._joins_master():
            await self._try_to_connect("timer checkpoint", address, self._sync_timer_check_point)

    def _may_take(self, address: str) -> bool:
        if self._joins_master():
            self._apart_since_ms = None
            self._succeeded("tables", address)
            return True
        now_ms = self._clock.monotonic_ms()
        if self._apart_since_ms is None:
            self._apart_since_ms = now_ms
            log.info("tables of master %s are copied once this slave's log is found to be the master's", address)
        elif now_ms - self._apart_since_ms >= _JOIN_MS:
            self._failed(
                "tables", address,
                "they are copied while the replication link to the master stands and the two logs join (haLinkFailure "
                "of brokerStatus tells why not): those of another log would hide messages of this one",
            )  # fmt: skip
        return False

    async def _ask(self, question: Awaitable[_Answer]) -> _Answer:
        """Ask the master; the answer is used only if its log is still this broker's when the answer arrives.

        Raises:
            _LinkEndedError: the link ended meanwhile. Another master, or one with another log, may have answered.
        """
        answer = await question
        if not self._joins_master():
            raise _LinkEndedError("the replication link ended before the master answered")
        return answer

    async def _try_to_connect(self, what: str, address: str, step: Callable[[str], Awaitable[None]]) -> bool | None:
        """Take one step. Returns whether it was done; None if the master cannot be reached."""
        try:
            return await self._try(what, address, step)
        except RemotingConnectError as error:
            self._failed("connection", address, error)
            return None

    async def _try(self, what: str, address: str, step: Callable[[str], Awaitable[None]]) -> bool:
        try:
            await step(address)
        except RemotingConnectError:
            raise
        except _LinkEndedError as error:  # a new slave makes its link anew when it has received its first record
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._cut_off_since_ms.setdefault(what, now_ms) < _JOIN_MS:
                log.info("%s of master %s are asked for again: %s", what, address, error)
            else:
                self._failed(what, address, f"{error}, each time for {_JOIN_MS // 1000} s or longer")
            return False
        except BrokerError as error:
            # a master that does not know the request has nothing to copy
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._failed(what, address, error)
                return False
        except (MaxQError, OSError) as error:
            self._failed(what, address, error)
            return False
        self._succeeded(what, address)
        return True

    def _failed(self, what: str, address: str, error: "Exception | str") -> None:
        text = error if isinstance(error, str) else with_remedy(error)
        if what not in self._failing:
            log.warning("synchronization with master %s failed, trying again: %s: %s", address, what, text)
        self._failing[what] = text

    def _succeeded(self, what: str, address: str) -> None:
        self._cut_off_since_ms.pop(what, None)
        if self._failing.pop(what, None) is not None:
            log.warning("synchronization with master %s works again: %s", address, what)

    # --- the tables ---------------------------------------------------------------------------------------------------

    async def _sync_topics(self, address: str) -> None:
        topics = self._tables.topics
        async with self._taking:
            table = await self._ask(self._api.topics(address, topics.data_version))
            if table is None:
                return
            if not table.topic_config_table:
                raise RemoteProtocolError("the table is empty, and no broker is without topics of its own")
            self._tell_missing(address, topics.topic_config_table.keys() - table.topic_config_table.keys())
            self._tables.mappings.take_from_master(table.topic_queue_mapping_detail_map, table.mapping_data_version)
            topics.take_from_master(table.topic_config_table, table.data_version)
        log.info("topics copied from master %s: %d", address, len(table.topic_config_table))

    def _tell_missing(self, address: str, gone: set[str]) -> None:
        """Log topics that the master lacks: a master that lost its tables looks like one on which they were deleted."""
        if gone:
            names = ", ".join(sorted(gone)[:_NAMED]) + (", …" if len(gone) > _NAMED else "")
            log.warning(
                "master %s no longer has %d topics; they are deleted on this slave, too: %s", address, len(gone), names
            )

    async def _sync_groups(self, address: str) -> None:
        groups = self._tables.groups
        async with self._taking:
            table = await self._ask(self._api.groups(address, groups.data_version))
            if table is None:
                return
            groups.take_from_master(table.subscription_group_table, table.forbidden_table, table.data_version)
        log.info("groups copied from master %s: %d", address, len(table.subscription_group_table))

    async def _sync_consumer_offsets(self, address: str) -> None:
        offsets, deletions = self._tables.offsets, self._tables.deletions
        async with self._taking_offsets:
            if offsets.owns_offsets:
                return
            if offsets.slave_commits:
                await self._hand_over(address, offsets.ahead_of_master(await self._ask(self._known_to(address))))
            committed = self._own_log.max_physical_offset if self._tables_in_log() else 0
            first, following = await self._ask(
                self._api.consumer_offsets(address, deletions=deletions.unknown_before > 0)
            )
            if 0 < log_end_of(first) < committed:
                raise RemoteProtocolError("it knows of less of the log than is committed here, and leads no more")
            offsets.note_master(first)
            if "deletedTopics" in first:
                self._tables.adopt_deletions(first["deletedTopics"])
            named: set[str] | None = set() if offsets.has_news_of_operators(first) else None
            offsets.begin_copy()
            page = first
            while True:
                await self._take_page(page)
                if named is not None:
                    named |= keys_on(page)
                if not following:
                    break
                page, following = await self._ask(self._api.consumer_offsets(address, following))
            offsets.took_from_master(first, named)

    async def _take_page(self, page: dict[str, Any]) -> None:
        """Apply a page of the master's consumer offsets once this log has the records it depends on: a pop group's
        offset may have passed an unacknowledged message because the log has a copy of it.

        Raises:
            RemoteProtocolError: the log is far behind, or these are not offsets, or older ones than the log says that
                operators have set; nothing was changed.
        """
        end = log_end_of(page)
        if not await self._has_log(end, _LONG_LOOKS):
            raise RemoteProtocolError(
                f"they need the log up to {end}, this slave's log ends at {self._own_log.max_physical_offset}: they "
                "are copied when this slave has caught up"
            )
        if not self._joins_master():
            raise _LinkEndedError("the replication link ended before the log was copied")
        if end and self._tables_in_log() and self._tables.offsets.lacks_set(page):
            raise RemoteProtocolError("they lack offsets that operators have set according to this broker's log")
        self._tables.offsets.take_from_master(page)

    async def _known_to(self, address: str) -> OffsetTable:
        """Returns the rows of the master's table for the topics and groups for which clients have committed offsets
        here."""
        offsets = self._tables.offsets
        page, following = await self._api.consumer_offsets(address)
        offsets.forget_commits_before_changes(page)
        masters = offsets.of_slave_commits(page)
        while following:
            page, following = await self._api.consumer_offsets(address, following)
            masters |= offsets.of_slave_commits(page)
        return masters

    async def _hand_over_common(self, address: str) -> None:
        """Hand over what clients committed here to a master whose log is not known to be this broker's, as far as it
        has the same messages: those that begin before the place where the two part. A commit behind a message that is
        not here (it was deleted for its age, say) waits, and holds up no other.

        Raises:
            RemoteProtocolError: some commits are of messages that it does not have.
        """
        async with self._taking_offsets:
            offsets = self._tables.offsets
            if offsets.owns_offsets or not offsets.slave_commits:
                return
            ahead = [(self._begin_of_last(one), one) for one in offsets.ahead_of_master(await self._known_to(address))]
            left = [commit for begin, commit in sorted(ahead) if begin >= 0 or not commit.offset]
            unknown = [commit for begin, commit in ahead if begin < 0 and commit.offset]
            while left and await self._has_message_before(address, left[0]):
                await self._hand_over(address, [left.pop(0)])
            left += unknown
            if left:
                raise RemoteProtocolError(
                    f"{len(left)} of them belong to messages that differ on the master or are missing there, such as "
                    f"{left[0]}"
                )

    def _begin_of_last(self, commit: SlaveCommit) -> int:
        """Returns where the last message before a commit begins, physical; −1 if it is not here, or none is before."""
        units = self._own_log.queue_units(commit.topic, commit.queue_id, commit.offset - 1, 1)
        return units[0][0] if units else -1

    async def _has_message_before(self, address: str, commit: SlaveCommit) -> bool:
        """Returns whether the master has the last message before a commit, at the same place and byte for byte."""
        if commit.offset == 0:
            return True
        begin = self._begin_of_last(commit)
        own = self._own_log.select_one_message(begin) if begin >= 0 else None
        if own is None:
            return False
        try:
            return await self._api.record(address, commit.topic, begin) == own
        except BrokerError:
            return False

    async def _hand_over(self, address: str, commits: list[SlaveCommit]) -> None:
        """Hand over the offsets that clients committed here while they could not reach the master. Each is sent with
        the place in the log of the last message that was read: the master's log may have a deletion behind it that has
        not been copied here, and the new topic may have the same offsets."""
        for commit in commits:
            begin = self._begin_of_last(commit)
            try:
                await self._api.update_consumer_offset(
                    address, commit, begin if begin >= 0 else self._own_log.max_physical_offset
                )
            except BrokerError as error:
                if error.code not in _KNOWN_NO_LONGER:
                    raise
                log.warning("master %s does not take %s: %s", address, commit, error)
            self._tables.offsets.slave_commits.drop(commit)
        if commits:
            log.info(
                "%d offsets that were committed on this slave were handed over to master %s", len(commits), address
            )

    async def _sync_request_modes(self, address: str) -> None:
        self._tables.request_modes.take_from_master(await self._ask(self._api.message_request_modes(address)))

    async def _take_compacted(self, address: str) -> None:
        """Copy messages of compaction topics that are older than this broker's log."""
        compaction = self._own_log.compaction
        assert compaction is not None
        now_ms = self._clock.monotonic_ms()
        if compaction.topics and now_ms >= self._log_begins_due_ms:
            log_begins = await self._ask(self._api.min_physical_offset(address))
            compaction.master_log_begins = 0 if log_begins is None else log_begins
            self._log_begins_due_ms = now_ms + _LOG_BEGINS_MS
        for queue in compaction.lacking():
            if await self._copy_compacted(address, compaction, queue):
                log.info("%s-%d: copied the messages that master %s has kept below offset %d",
                         queue.topic, queue.queue_id, address, queue.low)  # fmt: skip

    async def _copy_compacted(self, address: str, compaction: CompactionStore, queue: LackingQueue) -> bool:
        """Copy a queue from the master, perhaps over several rounds. Returns False if the master has compacted it
        meanwhile: then a message that deletes a key may be gone there, and the message before it was copied. The next
        round begins again, at most twice: a master may compact a large queue more often than it can be copied. Copies
        from before this process are of no known moment, and stay."""
        topic, queue_id, offset = queue.topic, queue.queue_id, queue.next_offset
        if not offset:
            self._copied_at[topic, queue_id] = await self._ask(self._api.compacted_to(address, topic, queue_id))
        while offset < queue.low:
            next_offset, records = await self._ask(self._api.compacted(address, topic, queue_id, offset))
            offset = next_offset if next_offset > offset else queue.low
            if offset >= queue.low and (topic, queue_id) in self._copied_at:
                compacted_to = await self._ask(self._api.compacted_to(address, topic, queue_id))
                if self._copied_at.pop((topic, queue_id)) != compacted_to and self._is_given_up(queue):
                    await compaction.copy_anew(queue)
                    return False
            compaction.adopt(queue, memoryview(records), offset)
        self._given_up.pop((topic, queue_id), None)
        return True

    def _is_given_up(self, queue: LackingQueue) -> bool:
        """Return whether a copy during which the master compacted the queue is made again: not the third one."""
        key = (queue.topic, queue.queue_id)
        given_up = self._given_up.get(key, 0)
        if given_up == _COPIES - 1:
            log.warning(
                "%s-%d: the master compacted this queue during each of %d copies of it, and the last copy is kept. "
                "Keys that were deleted meanwhile may be shown by this slave; to copy the queue once more, stop the "
                "slave and delete its compaction/ folder",
                *key, _COPIES,
            )  # fmt: skip
            return False
        self._given_up[key] = given_up + 1
        return True

    async def _sync_delay_offsets(self, address: str) -> None:
        """Copy the master's table of delivery offsets, unless it covers deliveries that this log may not have yet: if
        the master were lost then, those messages would not be delivered. The earlier table is kept then; the log has
        the deliveries since."""
        text = await self._ask(self._api.delay_offsets(address))
        if text and await self._has_log(DelayOffsetSerializeWrapper.decode(text).physical_offset or 0):
            await TABLES.run(self._tables.files.write_delay_offsets, text)

    async def _has_log(self, end: int, looks: int = _LOOKS) -> bool:
        for _ in range(looks):
            if self._own_log.max_physical_offset >= end:
                return True
            await asyncio.sleep(_LOOK_SECONDS)
        return False

    async def _sync_timer_metrics(self, address: str) -> None:
        text = await self._ask(self._api.timer_metrics(address))
        if text:
            await TABLES.run(self._tables.files.write_timer_metrics, text)

    async def _sync_timer_check_point(self, address: str) -> None:
        checkpoint = await self._ask(self._api.timer_check_point(address))
        await TABLES.run(self._tables.files.write_timer_checkpoint, checkpoint)
