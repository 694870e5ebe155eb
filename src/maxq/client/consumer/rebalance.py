"""Which client of a group reads which queue: the allocation strategies, as pure functions of sorted lists.

Every member computes the whole answer for itself from the same two sorted lists (queues of the topic, client ids of the
group), so nobody has to be asked. That only works if all members use the same strategy; nothing checks it.

Source: apache/rocketmq client/consumer/rebalance/AllocateMessageQueue*.java.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from maxq.errors import ClientError
from maxq.protocol.message.message_queue import MessageQueue


class AllocateMessageQueueStrategy(ABC):
    """A way to split queues among the members of a group. `name` travels to the broker in QUERY_ASSIGNMENT and shows in
    tools."""

    name: str

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of `client_id`.

        Args:
            group: consumer group, for messages only.
            client_id: who asks.
            queues: all queues of the topic, sorted.
            client_ids: all members of the group, sorted.

        Returns:
            A subset of `queues`; empty if the client is not a member (its heartbeat is not known yet).

        Raises:
            ClientError: an empty client id, queue list or member list.
        """
        if not client_id or not queues or not client_ids:
            raise ClientError(
                f"cannot allocate queues of group {group}: client id {client_id!r}, {len(queues)} queues, "
                f"{len(client_ids)} members; none may be empty"
            )
        if client_id not in client_ids:
            return []
        return self._allocate(client_id, queues, client_ids)

    @abstractmethod
    def _allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]: ...


class AllocateMessageQueueAveragely(AllocateMessageQueueStrategy):
    """AVG, the default: each member gets neighbouring queues, the first Q mod C members one more than the others."""

    name = "AVG"

    def _allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        index = client_ids.index(client_id)
        remainder = len(queues) % len(client_ids)
        one_more = index < remainder
        if len(queues) <= len(client_ids):
            size = 1
        else:
            size = len(queues) // len(client_ids) + one_more
        start = index * size if one_more else index * size + remainder
        return list(queues[start : start + size])


class AllocateMessageQueueAveragelyByCircle(AllocateMessageQueueStrategy):
    """AVG_BY_CIRCLE: queues go to members in turn, as cards are dealt."""

    name = "AVG_BY_CIRCLE"

    def _allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class AllocateMessageQueueByConfig(AllocateMessageQueueStrategy):
    """CONFIG: this member gets a fixed list of queues, independent of other members."""

    name = "CONFIG"

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self._queues)

    def _allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self._queues)


class AllocateMessageQueueByMachineRoom(AllocateMessageQueueStrategy):
    """MACHINE_ROOM: only queues of brokers named `room@name` whose room is one of `rooms`; equal shares, then the rest
    one each to the first clients."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def _allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        index = client_ids.index(client_id)
        eligible = [queue for queue in queues if self._is_eligible(queue)]
        share, remainder = divmod(len(eligible), len(client_ids))
        mine = eligible[index * share : (index + 1) * share]
        if index < remainder:
            mine.append(eligible[index + share * len(client_ids)])
        return mine

    def _is_eligible(self, queue: MessageQueue) -> bool:
        parts = queue.broker_name.split("@")
        return len(parts) == 2 and parts[0] in self._rooms


class AllocateMachineRoomNearby(AllocateMessageQueueStrategy):
    """MACHINE_ROOM_NEARBY-<inner>: the inner strategy within each room; queues of rooms without a client are split
    among all clients.

    Args:
        inner: strategy used within a room.
        broker_room: room of a queue's broker; must not be empty.
        client_room: room of a client id; must not be empty.
    """

    def __init__(
        self,
        inner: AllocateMessageQueueStrategy,
        broker_room: Callable[[MessageQueue], str],
        client_room: Callable[[str], str],
    ) -> None:
        self.name = f"MACHINE_ROOM_NEARBY-{inner.name}"
        self._inner = inner
        self._broker_room = broker_room
        self._client_room = client_room

    def _allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_by_room.setdefault(_room(self._broker_room(queue), queue.broker_name), []).append(queue)
        clients_by_room: dict[str, list[str]] = {}
        for client in client_ids:
            clients_by_room.setdefault(_room(self._client_room(client), client), []).append(client)

        own_room = self._client_room(client_id)
        mine: list[MessageQueue] = []
        if own_room in queues_by_room:
            mine += self._inner.allocate("", client_id, queues_by_room[own_room], clients_by_room[own_room])
        for room in sorted(queues_by_room.keys() - clients_by_room.keys()):
            mine += self._inner.allocate("", client_id, queues_by_room[room], client_ids)
        return mine


def _room(room: str, owner: str) -> str:
    if not room:
        raise ClientError(f"MACHINE_ROOM_NEARBY: no machine room is known for {owner}")
    return room


class AllocateMessageQueueConsistentHash(AllocateMessageQueueStrategy):
    """CONSISTENT_HASH: a ring of virtual nodes, MD5; few queues move when a member comes or goes."""

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10) -> None:
        if virtual_nodes < 0:
            raise ClientError(f"virtual node count {virtual_nodes} is illegal: 0 or more")
        self._virtual_nodes = virtual_nodes

    def _allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        # A later client replaces an earlier one on the same point, as in Java's TreeMap.
        ring = {_ring_hash(f"{client}-{n}"): client for client in client_ids for n in range(self._virtual_nodes)}
        points = sorted(ring)
        if not points:
            return []
        mine = []
        for queue in queues:
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            place = bisect_left(points, _ring_hash(text)) % len(points)
            if ring[points[place]] == client_id:
                mine.append(queue)
        return mine


def _ring_hash(key: str) -> int:
    """Return the first four bytes of the MD5 as an unsigned big-endian number."""
    from hashlib import md5  # it brings OpenSSL, for which other strategies have no use

    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")
