"""Clients that ask all brokers of a group for promises of every kind, whoever leads, and note what they are told.

They ask as a client with an old route would: brokers that lead no more are asked as often as the one that does. Shared
by the simulation and by the tortures of real processes; loop, clock and chance are the caller's.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import MaxQError
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody
from maxq.protocol.body.subscription import SubscriptionGroupConfig, SubscriptionGroupWrapper
from maxq.protocol.body.topic_config import TopicConfigAndMappingSerializeWrapper
from maxq.protocol.message_queue import MessageQueue
from maxq.protocol.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from tests.promise_history import History, Kind, Told

QUEUES: Final = 2
GROUP: Final = "promised-group"
TOPIC: Final = "promised-topic"
_TIMEOUT_MS: Final = 15_000
_T = TypeVar("_T")


class Chance(Protocol):
    """SimRng, or random.Random by another name."""

    def uniform(self, low: float, high: float, /) -> float: ...


class PromiseClients:
    """Between `start` and `stop`.

    Args:
        brokers: name → address of all brokers of the group, those that are down, too.
        broker_name: of the group.
    """

    def __init__(
        self,
        client: RemotingClient,
        history: History,
        brokers: Mapping[str, str],
        chance: Chance,
        *,
        broker_name: str,
        pause_s: float = 0.2,
    ) -> None:
        self.history = history
        self._client = client
        self._brokers = brokers
        self._chance = chance
        self._broker_name = broker_name
        self._pause_s = pause_s
        self._tasks: list[asyncio.Task[None]] = []
        self._ends = False

    def start(self) -> None:
        """Ask until `stop`."""
        works = [self._lock(name, broker) for name in ("one", "two") for broker in self._brokers]
        works += [self._commit(), *(self._read_offsets(broker) for broker in self._brokers), self._make_topics(),
                  self._make_groups()]  # fmt: skip
        self._tasks = [asyncio.ensure_future(work) for work in works]

    async def stop(self) -> None:
        """What is under way is waited for."""
        self._ends = True
        await asyncio.gather(*self._tasks)

    # -- asking --

    async def _ask(
        self, broker: str, code: int, ext: dict[str, str], body: bytes = b""
    ) -> RemotingCommand | None:
        try:
            return await self._client.invoke(self._brokers[broker], RemotingCommand(code, ext, body), _TIMEOUT_MS)
        except MaxQError:
            return None

    async def _rest(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.1, 1.0) * self._pause_s)

    def _said(self, one: Told, reply: RemotingCommand | None) -> bool:
        """Note the answer, if there is one."""
        if reply is not None:
            self.history.answered(one, reply.code == ResponseCode.SUCCESS)
        return bool(one.ok)

    # -- locks --

    async def _lock(self, client: str, broker: str) -> None:
        queue = 0
        while not self._ends:
            queue = (queue + 1) % QUEUES
            body = LockBatchRequestBody(GROUP, client, mq_set=[MessageQueue(TOPIC, self._broker_name, queue)]).encode()
            one = self.history.ask(Kind.LOCK, f"{TOPIC}-{queue}", client, broker)
            reply = await self._ask(broker, RequestCode.LOCK_BATCH_MQ, {}, body)
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                owned = LockBatchResponseBody.decode(reply.body_bytes).lock_ok_mq_set
                self.history.answered(one, bool(owned))
                if owned and self._chance.uniform(0, 1) < 0.5:
                    given = self.history.ask(Kind.UNLOCK, one.key, client, broker)
                    self._said(given, await self._ask(broker, RequestCode.UNLOCK_BATCH_MQ, {}, body))
            elif reply is not None:
                self.history.answered(one, False)
            await self._rest()

    # -- offsets --

    async def _commit(self) -> None:
        """One consumer: at each broker in turn, always further."""
        offset, at = 0, 0
        brokers = list(self._brokers)
        while not self._ends:
            offset += 1
            broker = brokers[at]
            one = self.history.ask(Kind.COMMIT, TOPIC, "consumer", broker, offset)
            ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
            if not self._said(one, await self._ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext)):
                at = (at + 1) % len(brokers)
            await self._rest()

    async def _read_offsets(self, broker: str) -> None:
        ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "setZeroIfNotFound": "false"}
        while not self._ends:
            one = self.history.ask(Kind.OFFSET, TOPIC, "reader", broker)
            reply = await self._ask(broker, RequestCode.QUERY_CONSUMER_OFFSET, ext)
            if reply is not None:
                is_ok = reply.code == ResponseCode.SUCCESS
                self.history.answered(one, is_ok, int(reply.ext["offset"]) if is_ok else None)
            await self._rest()

    # -- tables --

    async def _make_topics(self) -> None:
        await self._make(TOPIC, self._topic_request)
        number = 0
        while not self._ends:
            number += 1
            await self._make_and_delete(f"topic-{number}", self._topic_request, RequestCode.DELETE_TOPIC_IN_BROKER,
                                        "topic")  # fmt: skip

    async def _make_groups(self) -> None:
        await self._make(GROUP, self._group_request)
        number = 0
        while not self._ends:
            number += 1
            await self._make_and_delete(f"group-{number}", self._group_request,
                                        RequestCode.DELETE_SUBSCRIPTIONGROUP, "groupName")  # fmt: skip

    async def _make_and_delete(self, name: str, request: "_Request", delete: int, field: str) -> None:
        await self._make(name, request)
        if self._chance.uniform(0, 1) < 0.5:
            await self._everywhere(Kind.DELETE, name, lambda: (delete, {field: name}, b""))

    async def _make(self, name: str, request: "_Request") -> None:
        await self._everywhere(Kind.MAKE, name, lambda: request(name))

    async def _everywhere(self, kind: Kind, name: str, request: "_Made") -> None:
        """Ask one after the other until one says that it is done."""
        while not self._ends:
            for broker in self._brokers:
                one = self.history.ask(kind, name, "admin", broker)
                if self._said(one, await self._ask(broker, *request())):
                    await self._rest()
                    return
                await self._rest()

    @staticmethod
    def _topic_request(name: str) -> tuple[int, dict[str, str], bytes]:
        ext = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
               "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
        return RequestCode.UPDATE_AND_CREATE_TOPIC, ext, b""

    @staticmethod
    def _group_request(name: str) -> tuple[int, dict[str, str], bytes]:
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, SubscriptionGroupConfig(name).encode()

    # -- the end --

    async def tables(self) -> list[str]:
        """Names of topics and groups that the one who leads at the end has; MaxQError if nobody says."""
        for broker in self._brokers:
            topics = await self._ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG, {})
            groups = await self._ask(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
            master = await self._ask(broker, RequestCode.MAXQ_PURGE_TOPIC, {})  # a slave refuses by its role
            if topics is None or groups is None or master is None or master.code == ResponseCode.SLAVE_NOT_AVAILABLE:
                continue
            return [
                *TopicConfigAndMappingSerializeWrapper.decode(topics.body_bytes).topic_config_table,
                *SubscriptionGroupWrapper.decode(groups.body_bytes).subscription_group_table,
            ]
        raise MaxQError("no broker speaks for the group")


class _Request(Protocol):
    def __call__(self, name: str, /) -> tuple[int, dict[str, str], bytes]: ...


class _Made(Protocol):
    def __call__(self) -> tuple[int, dict[str, str], bytes]: ...
