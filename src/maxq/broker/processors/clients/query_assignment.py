"""QueryAssignmentProcessor: rebalance by the broker (400), and the request mode of groups (401, 402).

A group whose mode is POP shares queues: each member pops from all (popShareQueueNum of 0 or less, or of nearly all
members), named by one queue −1 of each broker, or from its own and those of the popShareQueueNum members behind it.

Source:
    broker/processor/QueryAssignmentProcessor.java, client/consumer/rebalance/AllocateMessageQueue*.java.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from maxq.broker.bundles import Clients, Environment, Tables
from maxq.broker.processors.support import RequestProcessor, topic_not_exist
from maxq.broker.tables.topic.topic_validator import is_lmq, is_retry_topic
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import MaxQError, RequestRefusedError
from maxq.protocol.body.consumer_info import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from maxq.protocol.body.route import TopicRouteData
from maxq.protocol.body.static_topic import global_queues
from maxq.protocol.body.topic_config import PERM_READ
from maxq.protocol.enums import MessageModel, MessageRequestMode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection, Processor

log = logging.getLogger(__name__)

#: Oldest route in ms that is still used. Every member of a group asks every 20 s; not all of these requests should
#: reach the name server.
ROUTE_MAX_AGE_MS: Final = 5_000
_MOST_ROUTES: Final = 10_000

#: (sorted queues, a member's place, how many members) → its queues.
Strategy = Callable[[list[MessageQueue], int, int], list[MessageQueue]]

#: Asks a name server for the route of a topic; gives None if it has none.
TopicRouteSource = Callable[[str], Awaitable[TopicRouteData | None]]


class QueryAssignmentProcessor(RequestProcessor):
    """Divides the queues of a topic, on all brokers, among the members of a group."""

    def __init__(self, env: Environment, tables: Tables, clients: Clients, topic_route: TopicRouteSource) -> None:
        self._settings = env.settings
        self._clock = env.clock
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = clients.consumers
        self._modes = tables.request_modes
        self._topic_route = topic_route
        self._routes: dict[str, tuple[int, TopicRouteData]] = {}  # topic → (asked at, route)

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query_assignment,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_message_request_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_all_message_request_mode,
        }

    # --- 400 ----------------------------------------------------------------------------------------------------------

    async def query_assignment(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the queues of a member. An answer without `messageQueueAssignments` means: keep the present
        queues (no route, group offline, unknown strategy)."""
        asked = QueryAssignmentRequestBody.decode(request.body_bytes)
        mode = self._mode(asked)
        queues = await self._assign(asked, mode)
        if queues is None:
            return request.reply(body=b"{}")
        rows = [MessageQueueAssignment(queue, mode.mode).to_json() for queue in dict.fromkeys(queues)]
        return request.reply(body=json_dialect.dumps({"messageQueueAssignments": rows}))

    def _mode(self, asked: QueryAssignmentRequestBody) -> SetMessageRequestModeRequestBody:
        """Return the mode set for topic and group, else the default. A pull group's retry topics are pulled, too."""
        known = self._modes.get_message_request_mode(asked.topic, asked.consumer_group)
        if known is not None:
            return known
        broker = self._settings.broker
        by_default = MessageRequestMode[broker.default_message_request_mode]
        mode = MessageRequestMode.PULL if is_retry_topic(asked.topic) else by_default
        return SetMessageRequestModeRequestBody(
            asked.topic, asked.consumer_group, mode, broker.default_pop_share_queue_num
        )

    async def _assign(
        self, asked: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody
    ) -> list[MessageQueue] | None:
        queues = await self._subscribe_queues(asked.topic, mode.mode)
        if queues is None or asked.message_model == MessageModel.BROADCASTING:
            return queues
        if not self._settings.broker.server_load_balancer_enable:
            return queues
        info = self._consumers.get_consumer_group_info(asked.consumer_group)
        if info is None:
            log.warning(
                "no queues of topic %s are assigned to group %s: the group is offline",
                asked.topic,
                asked.consumer_group,
            )
            return None
        strategy = _STRATEGIES.get(asked.strategy_name)
        if strategy is None:
            log.warning(
                "no assignment for group %s of %s: strategy %r is not one of %s",
                asked.consumer_group, asked.topic, asked.strategy_name, ", ".join(_STRATEGIES),
            )  # fmt: skip
            return None
        client_ids = sorted(info.client_ids())
        if mode.mode == MessageRequestMode.POP:
            return allocate_for_pop(strategy, sorted(queues), client_ids, asked.client_id, mode.pop_share_queue_num)
        if asked.client_id not in client_ids:
            return []
        return strategy(sorted(queues), client_ids.index(asked.client_id), len(client_ids))

    async def _subscribe_queues(self, topic: str, mode: MessageRequestMode) -> list[MessageQueue] | None:
        if is_lmq(topic):
            return [MessageQueue(topic, self._settings.broker.broker_name, 0)]
        route = await self._route(topic)
        return None if route is None else readable_queues(topic, route, mode)

    async def _route(self, topic: str) -> TopicRouteData | None:
        now_ms = self._clock.monotonic_ms()
        known = self._routes.get(topic)
        if known is not None and now_ms - known[0] <= ROUTE_MAX_AGE_MS:
            return known[1]
        try:
            route = await self._topic_route(topic)
        except MaxQError as error:
            log.warning("no route of %s, going on with the old one: %s", topic, error)
            return None if known is None else known[1]
        if route is None:
            self._routes.pop(topic, None)
            return None
        if len(self._routes) >= _MOST_ROUTES and topic not in self._routes:
            self._routes.clear()
        self._routes[topic] = (now_ms, route)
        return route

    # --- 401, 402 -----------------------------------------------------------------------------------------------------

    async def set_message_request_mode(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        mode = SetMessageRequestModeRequestBody.decode(request.body_bytes)
        if is_retry_topic(mode.topic):
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if not self._topics.contains_topic(mode.topic):
            raise topic_not_exist(mode.topic)
        if self._groups.find_subscription_group_config(mode.consumer_group) is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group {mode.consumer_group} does not exist"
            )
        self._modes.set_message_request_mode(mode)
        await self._modes.persisted()
        return request.reply()

    def get_all_message_request_mode(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.reply(body=self._modes.encode_compact())


def readable_queues(topic: str, route: TopicRouteData, mode: MessageRequestMode) -> list[MessageQueue]:
    """Return the queues that a consumer may read (MQClientInstance.topicRouteData2TopicSubscribeInfo). For a static
    topic, pulls read its global queues and pops the queues of the brokers."""
    is_pulled = mode is MessageRequestMode.PULL
    static = global_queues(topic, route.topic_queue_mapping_by_broker or {}) if is_pulled else ()
    physical = [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in (route.ordinary_queue_datas if is_pulled else route.queue_datas)
        if data.perm & PERM_READ
        for queue_id in data.read_queue_ids
    ]
    return [*static, *physical]


def allocate_averagely(queues: list[MessageQueue], index: int, members: int) -> list[MessageQueue]:
    """Allocate neighbouring queues together (AVG); the first members get one more. `index` is the member's place in the
    sorted list."""
    share, rest = divmod(len(queues), members)
    start = index * share + min(index, rest)
    return queues[start : start + share + (1 if index < rest else 0)]


def allocate_by_circle(queues: list[MessageQueue], index: int, members: int) -> list[MessageQueue]:
    """Allocate the queues one by one in turn (AVG_BY_CIRCLE)."""
    return queues[index::members]


def allocate_for_pop(
    strategy: Strategy, queues: list[MessageQueue], client_ids: list[str], client_id: str, share: int
) -> list[MessageQueue]:
    """Return the queues from which a member pops; several members may share queues. `queues` and `client_ids` are
    sorted. Queue −1 means every queue of its broker."""
    members = len(client_ids)
    if share <= 0 or share >= members - 1:
        return [MessageQueue(queue.topic, queue.broker_name, -1) for queue in queues]
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    if members > len(queues):
        return [queues[index % len(queues)]] if queues else []
    return [queue for step in range(share + 1) for queue in strategy(queues, (index + step) % members, members)]


_STRATEGIES: Final[dict[str, Strategy]] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
}
