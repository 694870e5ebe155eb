"""MasterApi: what a slave asks of its master.

The tables of topics and groups come in pages. One entry is asked for first: its answer carries the version of the
table, so an unchanged table of any size costs one small exchange.

Source:
    broker/out/BrokerOuterAPI.java (getAllTopicConfig, getAllConsumerOffset, getAllDelayOffset,
    getAllSubscriptionGroupConfig, getAllMessageRequestMode, getTimerMetrics, getTimerCheckPoint).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from maxq.broker.identity.broker_identity import BrokerAddress, SlaveSign
from maxq.broker.tables.offset.slave_commits import SlaveCommit
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.route import KVTable
from maxq.protocol.body.subscription import SubscriptionGroupWrapper
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.protocol.body.topic_config import TopicConfigAndMappingSerializeWrapper
from maxq.protocol.frame.header_fields import HeaderFields, parse_long
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PULL_FLAG_SUBSCRIPTION, PullMessageRequestHeader, PullMessageResponseHeader
from maxq.protocol.json import json_dialect
from maxq.remoting.client import RemotingClient

_TIMEOUT_MS: Final = 3_000
_TABLE_TIMEOUT_MS: Final = 30_000
_AWAIT_MS: Final = 10_000
_PAGE_ENTRIES: Final = 2_000
_TOOLS_GROUP: Final = "TOOLS_CONSUMER"  # every broker knows it; it commits nothing
_PULLED_MESSAGES: Final = 32
_PULLED: Final = (
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)  # fmt: skip
_RESTARTS: Final = 10  # most restarts of the copy of a table that changes while it is read

_Table = TypeVar("_Table", TopicConfigAndMappingSerializeWrapper, SubscriptionGroupWrapper)


@dataclass(frozen=True, slots=True)
class _Paging(Generic[_Table]):
    """Describes how a slave requests one of its master's tables in pages: the fields, and how pages are joined."""

    code: RequestCode
    sequence_field: str
    count_field: str
    total_field: str
    decode: Callable[[bytes], _Table]
    entries: Callable[[_Table], int]
    merge: Callable[[_Table, _Table], None]  # adds the second page to the first


def _merge_topics(table: TopicConfigAndMappingSerializeWrapper, page: TopicConfigAndMappingSerializeWrapper) -> None:
    table.topic_config_table.update(page.topic_config_table)
    table.topic_queue_mapping_detail_map.update(page.topic_queue_mapping_detail_map)


def _merge_groups(table: SubscriptionGroupWrapper, page: SubscriptionGroupWrapper) -> None:
    table.subscription_group_table.update(page.subscription_group_table)
    table.forbidden_table.update(page.forbidden_table)


_TOPICS: Final = _Paging(
    RequestCode.GET_ALL_TOPIC_CONFIG, "topicSeq", "maxTopicNum", "totalTopicNum",
    TopicConfigAndMappingSerializeWrapper.decode, lambda table: len(table.topic_config_table), _merge_topics,
)  # fmt: skip
_GROUPS: Final = _Paging(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "groupSeq", "maxGroupNum", "totalGroupNum",
    SubscriptionGroupWrapper.decode, lambda table: len(table.subscription_group_table), _merge_groups,
)  # fmt: skip


class KnownTables(NamedTuple):
    """Versions of the master's tables that a slave has: those of topics and groups, and `TableChange.offsets_set` of
    the last answer after which it copied the consumer offsets (0 before the first)."""

    topics: DataVersion
    groups: DataVersion
    offsets: int


class TableChange(NamedTuple):
    """Whether a table has changed, and how often operators have set consumer offsets, counted from any number (0: the
    master does not say)."""

    is_changed: bool
    offsets_set: int


class OffsetsPage(NamedTuple):
    """A page of a broker's consumer offsets, with all other members of `consumerOffset.json`, and the mark of the next
    page; empty: there is none."""

    value: dict[str, Any]
    next_page: str


class MasterApi:
    """Requests to a master, `host:port`.

    Every call raises RemotingError when there is no answer, BrokerError when the answer is not success, and
    RemoteProtocolError when it cannot be decoded.
    """

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def topics(self, address: str, known: DataVersion) -> TopicConfigAndMappingSerializeWrapper | None:
        """Fetch all topics (21); None if their version is `known`."""
        return await self._table(address, _TOPICS, known)

    async def groups(self, address: str, known: DataVersion) -> SubscriptionGroupWrapper | None:
        """Fetch all subscription groups and the topics that each must not read (201); None if their version is
        `known`."""
        return await self._table(address, _GROUPS, known)

    async def await_change(self, address: str, known: KnownTables, rest_s: float) -> TableChange:
        """Return when one of the master's tables differs from `known`, or after `_AWAIT_MS` (30090). RocketMQ's masters
        do not know the request: BrokerError.

        Args:
            rest_s: seconds during which it does not return, unless somebody waits until slaves have the changes.
        """
        ext = {
            "topicVersion": known.topics.encode().decode(), "groupVersion": known.groups.encode().decode(),
            "offsetsTaken": str(known.offsets), "waitMs": str(_AWAIT_MS), "restMs": str(int(rest_s * 1000)),
        }  # fmt: skip
        request = RemotingCommand(RequestCode.MAXQ_AWAIT_TABLE_CHANGE, ext)
        answer = await self._client.invoke(address, request, _AWAIT_MS + _TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address=address)
        fields = HeaderFields(answer.ext)
        if not fields.opt_bool("rested"):
            await asyncio.sleep(rest_s)
        return TableChange(fields.required_bool("changed"), fields.opt_long("offsetsSet") or 0)

    async def consumer_offsets(self, address: str, page: str = "", *, deletions: bool = False) -> OffsetsPage:
        """Fetch a page of the consumer offsets (43); from RocketMQ's masters, which know no pages, all of them.

        Args:
            page: what the page before said; empty for the first.
            deletions: ask a MaxQ master for the table of deleted topics, too: `deletedTopics` of the first page.
        """
        ext = {"deletions": str(deletions).lower(), "page": page}
        answer = await self._answer(address, RequestCode.GET_ALL_CONSUMER_OFFSET, _TABLE_TIMEOUT_MS, ext)
        return OffsetsPage(_object(bytes(answer.body_bytes)), HeaderFields(answer.ext).opt_str("nextPage") or "")

    async def update_consumer_offset(self, address: str, commit: SlaveCommit, read_at: int) -> None:
        """Tell the master a group's offset (15), unless the master has a larger one, or the topic was deleted behind
        the physical offset `read_at`; RocketMQ's masters accept it in any case."""
        ext = {
            "consumerGroup": commit.group,
            "topic": commit.topic,
            "queueId": str(commit.queue_id),
            "commitOffset": str(commit.offset),
            "lo": "false",  # a physical queue, also of a static topic
            "maxqIfAhead": "true",
            "maxqReadAt": str(read_at),
        }
        if commit.not_copied_of:
            ext["maxqNotCopiedOf"] = str(commit.not_copied_of)
        if commit.change:
            ext["maxqOperatorChange"] = str(commit.change)
        if commit.master_since:
            ext["maxqMasterSince"] = str(commit.master_since)
        answer = await self._client.invoke(
            address, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext), _TIMEOUT_MS
        )
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address=address)

    async def record(self, address: str, topic: str, physical_offset: int) -> bytes:
        """Fetch the message of a topic at a place of the master's log as it is stored (33). BrokerError: none begins
        there."""
        ext = {"topic": topic, "offset": str(physical_offset)}
        return await self._invoke(address, RequestCode.VIEW_MESSAGE_BY_ID, _TIMEOUT_MS, ext)

    async def delay_offsets(self, address: str) -> bytes:
        """Fetch the text of `delayOffset.json` (45)."""
        return await self._invoke(address, RequestCode.GET_ALL_DELAY_OFFSET, _TIMEOUT_MS)

    async def message_request_modes(self, address: str) -> dict[str, Any]:
        """Fetch the content of `messageRequestMode.json` (402)."""
        return _object(await self._invoke(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, _TIMEOUT_MS))

    async def timer_metrics(self, address: str) -> bytes:
        """Return the text of the master's file `timermetrics` (request 61)."""
        return await self._invoke(address, RequestCode.GET_TIMER_METRICS, _TIMEOUT_MS)

    async def timer_check_point(self, address: str) -> TimerCheckpoint:
        """Fetch the checkpoint of the master's timer (60)."""
        return TimerCheckpoint.decode(await self._invoke(address, RequestCode.GET_TIMER_CHECK_POINT, _TIMEOUT_MS))

    async def hand_back_pops(self, address: str, return_id: str, master: str, mark: str) -> tuple[bytes, str]:
        """Fetch an acting slave's state of messages given to consumers (30091; see broker/pop/hand_back.py), for the
        `master` at this `host:port`, whose log has this mark. Returns it with the mark of the slave's log. The slave
        then gives out none for some seconds. RocketMQ's slaves do not know the request: BrokerError."""
        return await self._kept(address, {"returnId": return_id, "masterAddress": master}, mark)

    async def leave_group(self, slave: str, own: BrokerAddress, mark: str) -> tuple[bytes, str]:
        """Ask another slave to leave the group to `own`, a slave that is to act and whose log has this mark. Returns
        the other slave's pop state (30091), empty if it was not acting, and the mark of its log. Raises BrokerError
        with SERVICE_NOT_AVAILABLE if it does not give the group up, and with REQUEST_CODE_NOT_SUPPORTED if it is
        RocketMQ's."""
        return await self._kept(slave, {SlaveSign.ID: str(own.broker_id), SlaveSign.ADDRESS: own.address}, mark)

    async def copy_pops(self, slave: str) -> tuple[bytes, str]:
        """Fetch what another slave, which goes on to act, knows of messages given to consumers (30092), empty if it
        does not act, and the mark of its log. RocketMQ's slaves do not know the request: BrokerError."""
        answer = await self._answer(slave, RequestCode.MAXQ_COPY_POPS, _TIMEOUT_MS, {})
        return bytes(answer.body_bytes), HeaderFields(answer.ext).opt_str(SlaveSign.LOG_MARK) or ""

    async def _kept(self, slave: str, ext: dict[str, str], mark: str) -> tuple[bytes, str]:
        ext[SlaveSign.LOG_MARK] = mark
        answer = await self._answer(slave, RequestCode.MAXQ_HAND_BACK_POPS, _TIMEOUT_MS, ext)
        return bytes(answer.body_bytes), HeaderFields(answer.ext).opt_str(SlaveSign.LOG_MARK) or ""

    async def min_physical_offset(self, address: str) -> int | None:
        """Fetch the physical offset at which the master's log begins (28); None if it does not say."""
        table = KVTable.decode(await self._invoke(address, RequestCode.GET_BROKER_RUNTIME_INFO, _TIMEOUT_MS)).table
        return parse_long(table.get("commitLogMinOffset", ""))

    async def compacted(self, address: str, topic: str, queue_id: int, offset: int) -> tuple[int, bytes]:
        """Fetch the messages of a compacted queue that the master keeps, from a message offset on (11): next offset,
        and records. Without records, the next offset is `offset` or the end of the queue."""
        header = PullMessageRequestHeader(
            _TOOLS_GROUP, topic, queue_id, offset, _PULLED_MESSAGES, PULL_FLAG_SUBSCRIPTION, 0, 0, 0, "*", "TAG"
        )
        request = RemotingCommand(RequestCode.PULL_MESSAGE, header.encode())
        answer = await self._client.invoke(address, request, _TABLE_TIMEOUT_MS)
        if answer.code not in _PULLED:
            raise BrokerError(answer.code, answer.remark, address=address)
        next_offset = PullMessageResponseHeader.decode(answer.ext).next_begin_offset
        return next_offset, bytes(answer.body_bytes) if answer.code == ResponseCode.SUCCESS else b""

    async def compacted_to(self, address: str, topic: str, queue_id: int) -> int | None:
        """Fetch the message offset up to which the master has compacted a queue (31); None if it does not say, as
        RocketMQ's brokers."""
        ext = {"topic": topic, "queueId": str(queue_id)}
        answer = await self._answer(address, RequestCode.GET_MIN_OFFSET, _TIMEOUT_MS, ext)
        return parse_long(answer.ext.get("maxqCompactedTo", ""))

    # --- tables in pages ----------------------------------------------------------------------------------------------

    async def _table(self, address: str, paging: _Paging[_Table], known: DataVersion) -> _Table | None:
        table, total = await self._page(address, paging, 0, 1, None)
        if table.data_version == known:
            return None
        if total is None or paging.entries(table) >= total:  # a master that does not know pages sends the whole table
            return table
        for _ in range(_RESTARTS):
            whole = await self._pages(address, paging)
            if whole is not None:
                return whole
        raise RemoteProtocolError(f"{paging.code.name}: the table of {address} changed {_RESTARTS} times while read")

    async def _pages(self, address: str, paging: _Paging[_Table]) -> _Table | None:
        """Fetch a whole table in pages; None if its version changed between two pages."""
        table, total = await self._page(address, paging, 0, _PAGE_ENTRIES, None)
        while total is not None and (count := paging.entries(table)) < total:
            page, total = await self._page(address, paging, count, _PAGE_ENTRIES, table.data_version)
            if page.data_version != table.data_version:
                return None
            paging.merge(table, page)
            if paging.entries(table) == count:
                raise RemoteProtocolError(
                    f"{paging.code.name}: {address} says it has {total} entries, but sent only {count}"
                )
        return table

    async def _page(
        self, address: str, paging: _Paging[_Table], start: int, count: int, version: DataVersion | None
    ) -> tuple[_Table, int | None]:
        ext = {
            paging.sequence_field: str(start),
            paging.count_field: str(count),
            "dataVersion": "" if version is None else version.encode().decode(),
        }
        answer = await self._client.invoke(address, RemotingCommand(paging.code, ext), _TABLE_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address=address)
        return paging.decode(answer.body_bytes), HeaderFields(answer.ext).opt_int(paging.total_field)

    async def _invoke(
        self, address: str, code: RequestCode, timeout_ms: int, ext: dict[str, str] | None = None
    ) -> bytes:
        return bytes((await self._answer(address, code, timeout_ms, ext or {})).body_bytes)

    async def _answer(self, address: str, code: RequestCode, timeout_ms: int, ext: dict[str, str]) -> RemotingCommand:
        answer = await self._client.invoke(address, RemotingCommand(code, ext), timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address=address)
        return answer


def log_end_of(page: dict[str, Any]) -> int:
    """Return the physical offset at which a broker's log ended when it sent this page of its consumer offsets; 0 if it
    does not say, as RocketMQ's brokers.

    Raises:
        RemoteProtocolError: it is not a number.
    """
    end = page.get("logEnd", 0)
    if not isinstance(end, int):
        raise RemoteProtocolError(f"logEnd is {end!r:.80}")
    return end


def _object(body: bytes) -> dict[str, Any]:
    value = json_dialect.loads(body) if body else {}
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"a table is a JSON object, not {type(value).__name__}")
    return value
