"""RouteInfoManager: which brokers live, and which of them has how many queues of a topic.

Plain tables in memory; method calls in, values out; time is an argument. Nothing is persisted or exchanged between
name servers: every broker registers at every one of them, and a restarted name server knows nothing until then.

    _topics     topic → broker name → QueueData          what routes are answered from
    _announced  broker name → topic → QueueData          what the broker itself said last
    _groups     broker name → BrokerData                 cluster, id → address, zone
    _clusters   cluster → broker names
    _live       (cluster, address) → BrokerLiveInfo      time of the last sign of life, data version, connection
    _filters    (cluster, address) → filter servers
    _mappings   topic → broker name → TopicQueueMappingInfo (static topics)

`_announced` is not in Java. It is why a topic that changed under an equal data version is taken at once (Java ignores
it until the next version), while a write permission that was wiped by request stays wiped until it is added again, the
broker changes the topic, or the broker leaves (Java gives it back with any change of any of its topics). It also gives
the topics of a broker without a walk over all topics.

Work on all topics of a broker is done in steps of _TOPICS_OF_A_STEP, between which other requests are served. A
registration is stepped by its caller (`registering`); the removal of a broker, and a change of its permissions, by
`work_off`. A topic that a broker announces while its former topics are removed, or while its permissions change, is as
the broker announced it.

Source:
    apache/rocketmq namesrv/routeinfo/RouteInfoManager.java.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from maxq.config import NamesrvSettings
from maxq.namesrv.broker_registration import (
    DEFAULT_BROKER_CHANNEL_EXPIRED_TIME_MS,
    BrokerAddrInfo,
    BrokerLiveInfo,
    MinBrokerIdChange,
    RegisterBrokerResult,
    RegistrationRequest,
)
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.route import (
    MASTER_ID,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from maxq.protocol.body.topic_config import (
    MAX_QUEUES,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    TopicList,
    TopicQueueMappingInfo,
)

_log = logging.getLogger(__name__)

SYNC_BROKER_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"

_TOPICS_OF_A_STEP = 1_000

_Entry = TypeVar("_Entry", QueueData, TopicQueueMappingInfo)

FLAG_UNIT = 1  # topicSysFlag: the topic belongs to a unit (TopicSysFlag.java)
FLAG_UNIT_SUB = 2  # topicSysFlag: consumers of a unit subscribe to it


class RouteInfoManager:
    """Holds the brokers, clusters and topics that registered with one name server."""

    def __init__(self, settings: NamesrvSettings) -> None:
        self._settings = settings
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._announced: dict[str, dict[str, QueueData]] = {}
        self._groups: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        self._filters: dict[BrokerAddrInfo, list[str]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        # (cluster, id) → address of a living broker whose place another broker has taken
        self._displaced: dict[tuple[str, int], str] = {}
        # work that was begun and continues step by step, in this order
        self._unfinished: deque[Iterator[None]] = deque()
        self.when_unfinished: Callable[[], None] = lambda: None  # called when `work_off` has something to do
        self._revision = 0  # increases with every change that a registration may depend on or cause

    # --- brokers come -------------------------------------------------------------------------------------------

    def register_broker(self, new: RegistrationRequest, *, now_ms: int) -> RegisterBrokerResult | None:
        """Register a broker completely (see `registering`)."""
        steps = self.registering(new, now_ms=now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: RegisterBrokerResult | None = end.value
                return result

    def registering(
        self, new: RegistrationRequest, *, now_ms: int
    ) -> Generator[None, None, RegisterBrokerResult | None]:
        """Apply one registration to all tables. It yields after each _TOPICS_OF_A_STEP topics, when the tables are
        consistent and other requests may be served; if the broker is removed or registers anew meanwhile it ends
        there.

        Args:
            now_ms: monotonic clock.

        Returns:
            None if it was refused: an unknown broker id may not enter with a single topic, because brokers send
            such a registration only when a topic changed. Nothing of a refused one stays.
        """
        group = self._groups.get(new.broker_name)
        addrs = {} if group is None else dict(group.broker_addrs)
        previous_min = min(addrs, default=MASTER_ID)
        # one address has one id: a slave that became master leaves its old id
        addrs = {i: addr for i, addr in addrs.items() if addr != new.broker_addr or i == new.broker_id}
        if group is not None and self._is_outdated(new, addrs.get(new.broker_id)):
            group.broker_addrs = addrs
            self._live.pop(BrokerAddrInfo(new.cluster_name, new.broker_addr), None)
            self._revision += 1
            return RegisterBrokerResult()
        if new.broker_id not in addrs and len(new.topics) == 1:
            _log.warning("refused %s: broker %s id %d is not registered, and announces one topic only",
                         new.broker_addr, new.broker_name, new.broker_id)  # fmt: skip
            return None
        first = not addrs.get(new.broker_id)
        self._note_displaced(new, addrs.get(new.broker_id))
        addrs[new.broker_id] = new.broker_addr
        group = self._enter_group(new, addrs)
        changed = first or self.data_version(new.cluster_name, new.broker_addr) != new.data_version
        live = self._enter_live(new, now_ms)
        is_alone = True
        if new.broker_id == MASTER_ID or self._is_prime_slave(new, group):
            live.data_version = DataVersion()  # stays empty until all topics are entered
            is_alone = yield from self._take_topics(new, group, live, first=first, changed=changed)
            if self._live.get(BrokerAddrInfo(new.cluster_name, new.broker_addr)) is not live:
                return RegisterBrokerResult()
            live.data_version = new.data_version
        notice = None
        if new.broker_id < previous_min and self._settings.namesrv.notify_min_broker_id_changed:
            notice = _min_broker_id_change(addrs, offline=None, ha=new.ha_server_addr)
        ha_server_addr, master_addr = self._master_of(new, group)
        live.result = RegisterBrokerResult(ha_server_addr, master_addr)
        if is_alone:
            live.revision = self._revision
        return live.result._replace(notice=notice)

    def register_again(
        self, cluster_name: str, broker_addr: str, connection: object, digest: bytes, *, now_ms: int
    ) -> RegisterBrokerResult | None:
        """Treat a registration that equals the last one, as brokers send it every 30 s with all their topics, as a
        heartbeat, and return the same answer. None: it must be processed as a new one.

        Args:
            digest: of all that the request says.
        """
        live = self._live.get(BrokerAddrInfo(cluster_name, broker_addr))
        if live is None or not digest or live.digest != digest or live.connection is not connection:
            return None
        if live.revision != self._revision or self._settings.namesrv.delete_topic_with_broker_registration:
            return None
        live.last_update_ms = now_ms
        return live.result

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Add one topic (217). From the first queue of an unknown broker on, the queue list is ignored; entries with
        impossible numbers of queues are passed over."""
        for queue in queues:
            if queue.broker_name not in self._groups:
                _log.warning("topic %s names the unknown broker %s", topic, queue.broker_name)
                return
            if _is_possible(topic, queue, None):
                self._announce(topic, queue)

    def touch(self, cluster_name: str, broker_addr: str, *, now_ms: int) -> None:
        """Record a heartbeat (322, 904); does nothing if the broker is not known."""
        live = self._live.get(BrokerAddrInfo(cluster_name, broker_addr))
        if live is not None:
            live.last_update_ms = now_ms

    @property
    def has_brokers(self) -> bool:
        """Whether any broker is registered."""
        return bool(self._groups)

    def data_version(self, cluster_name: str, broker_addr: str) -> DataVersion | None:
        """Return the version of the topic table that this broker registered last."""
        live = self._live.get(BrokerAddrInfo(cluster_name, broker_addr))
        return None if live is None else live.data_version

    def _is_outdated(self, new: RegistrationRequest, old_addr: str | None) -> bool:
        """Return whether another address holds this id with a newer state."""
        if old_addr is None or old_addr == new.broker_addr:
            return False
        old = self._live.get(BrokerAddrInfo(new.cluster_name, old_addr))
        if old is None or old.data_version.state_version <= new.data_version.state_version:
            return False
        _log.warning("ignored %s as %s id %d: %s holds it with the newer state version %d > %d",
                     new.broker_addr, new.broker_name, new.broker_id, old_addr,
                     old.data_version.state_version, new.data_version.state_version)  # fmt: skip
        return True

    def _note_displaced(self, new: RegistrationRequest, old_addr: str | None) -> None:
        """Note that a new master takes the place of a living one, which then registers as a slave. Two masters that do
        so in turn are two brokers of one name."""
        place = new.broker_name, new.broker_id
        for left in [key for key, addr in self._displaced.items() if addr == new.broker_addr and key != place]:
            del self._displaced[left]
        if old_addr is None or old_addr == new.broker_addr:
            return
        if self._displaced.get(place) == new.broker_addr:
            _log.error("two brokers are called %s with id %d: %s and %s. Messages go to one or the other; stop one of "
                       "the two", *place, old_addr, new.broker_addr)  # fmt: skip
        self._displaced.pop(place, None)
        if BrokerAddrInfo(new.cluster_name, old_addr) in self._live:
            self._displaced[place] = old_addr

    def _enter_group(self, new: RegistrationRequest, addrs: dict[int, str]) -> BrokerData:
        group = self._groups.get(new.broker_name)
        if group is None:
            group = self._groups[new.broker_name] = BrokerData(new.cluster_name, new.broker_name)
        self._clusters.setdefault(new.cluster_name, set()).add(new.broker_name)
        before = group.broker_addrs, group.enable_acting_master, group.zone_name
        group.broker_addrs = addrs
        group.enable_acting_master = bool(new.enable_acting_master)
        group.zone_name = new.zone_name
        if before != (group.broker_addrs, group.enable_acting_master, group.zone_name):
            self._revision += 1
        return group

    @staticmethod
    def _is_prime_slave(new: RegistrationRequest, group: BrokerData) -> bool:
        """Return whether this is the smallest id of a group without master; only brokers that know of acting masters
        count."""
        return new.enable_acting_master is not None and new.broker_id == min(group.broker_addrs)

    def _take_topics(
        self, new: RegistrationRequest, group: BrokerData, live: BrokerLiveInfo, *, first: bool, changed: bool
    ) -> Generator[None, None, bool]:
        """Add the topics, unless the broker is removed or registers anew meanwhile. Returns whether the tables had no
        other changes."""
        key, is_alone = BrokerAddrInfo(new.cluster_name, new.broker_addr), True
        read_only = new.broker_id != MASTER_ID and group.enable_acting_master
        for _ in _in_steps(self._entries(new, first=first, changed=changed, read_only=read_only)):
            revision = self._revision
            yield
            is_alone &= revision == self._revision
            if self._live.get(key) is not live:
                return False
        return is_alone

    def _entries(self, new: RegistrationRequest, *, first: bool, changed: bool, read_only: bool) -> Iterator[None]:
        """Apply a registration's topics, one topic between two yields. With the `first` one of a broker what was done
        to its permissions before ends."""
        known = self._announced.setdefault(new.broker_name, {})
        if self._drops_others(new):
            for topic in [topic for topic in known if topic not in new.topics]:
                yield
                self._remove_queue(topic, new.broker_name)
        says_which_are_static = _says_which_are_static(new, known)
        for config in new.topics.values():
            yield
            topic, queue = config.topic_name, _queue_data(new.broker_name, config, read_only=read_only)
            mapping = new.mappings.get(topic)
            if not _is_possible(topic, queue, mapping):
                continue
            if not changed and known.get(topic) == queue:
                continue
            if mapping is not None:  # before its queues, so that a static topic never looks like an ordinary one
                self._map(topic, new.broker_name, mapping)
            elif says_which_are_static:
                self._forget_in(self._mappings, topic, new.broker_name)
            if first or known.get(topic) != queue or not self._is_wiped(topic, queue):
                self._announce(topic, queue)
        for topic in [topic for topic in new.mappings if changed and topic not in new.topics]:
            yield
            self._map(topic, new.broker_name, new.mappings[topic])

    def _is_wiped(self, topic: str, announced: QueueData) -> bool:
        """Return whether a topic lacks the write permission that its broker announces for it."""
        return self._topics[topic][announced.broker_name].perm == announced.perm & ~PERM_WRITE

    def _drops_others(self, new: RegistrationRequest) -> bool:
        """Return whether the broker has none of those of its topics that a registration does not name. Of Java's, which
        does not say whether it names all, the setting decides."""
        if new.is_whole is None:
            return self._settings.namesrv.delete_topic_with_broker_registration and not new.mappings
        is_in_group = self._groups[new.broker_name].cluster == new.cluster_name
        return new.is_whole and new.broker_id == MASTER_ID and is_in_group

    def _map(self, topic: str, broker_name: str, mapping: TopicQueueMappingInfo) -> None:
        # a queue of another broker is announced by that broker
        is_its_own = (mapping.bname or broker_name) == broker_name
        if is_its_own and 0 <= mapping.total_queues <= MAX_QUEUES:
            self._mappings.setdefault(topic, {})[broker_name] = mapping

    def _enter_live(self, new: RegistrationRequest, now_ms: int) -> BrokerLiveInfo:
        key = BrokerAddrInfo(new.cluster_name, new.broker_addr)
        known = self._live.get(key)
        if known is None:
            _log.info("new broker %s id %d at %s, replication at %s",
                      new.broker_name, new.broker_id, new.broker_addr, new.ha_server_addr)  # fmt: skip
        timeout_ms = DEFAULT_BROKER_CHANNEL_EXPIRED_TIME_MS if new.timeout_ms is None else new.timeout_ms
        live = self._live[key] = BrokerLiveInfo(
            now_ms, timeout_ms, new.data_version, new.connection, new.ha_server_addr, new.digest
        )
        if known is None or (known.data_version, known.ha_server_addr) != (live.data_version, live.ha_server_addr):
            self._revision += 1
        if new.filter_servers:
            self._filters[key] = list(new.filter_servers)
        elif new.filter_servers is not None:
            self._filters.pop(key, None)
        return live

    def _master_of(self, new: RegistrationRequest, group: BrokerData) -> tuple[str | None, str | None]:
        """Return (replication address, address) of a slave's living master."""
        master_addr = group.master_address
        if new.broker_id == MASTER_ID or master_addr is None:
            return None, None
        live = self._live.get(BrokerAddrInfo(new.cluster_name, master_addr))
        return (None, None) if live is None else (live.ha_server_addr, master_addr)

    # --- brokers go ---------------------------------------------------------------------------------------------

    def unregister_broker(self, cluster_name: str, broker_addr: str, broker_name: str) -> MinBrokerIdChange | None:
        """Remove one broker; with the last of its name, the name and all its queues, of many topics by `work_off`.

        Returns:
            Whom to tell of the group's new smallest id, if the setting asks for it.
        """
        group = self._groups.get(broker_name)
        if group is None or broker_addr not in group.broker_addrs.values():
            return None
        known = self._forget_live(BrokerAddrInfo(cluster_name, broker_addr))
        _log.info("broker %s at %s unregistered%s", broker_name, broker_addr, "" if known else " (was not alive)")
        previous_min = min(group.broker_addrs)
        group.broker_addrs = {i: addr for i, addr in group.broker_addrs.items() if addr != broker_addr}
        if not group.broker_addrs:
            self._remove_group(group)
            return None
        if group.enable_acting_master and min(group.broker_addrs) > MASTER_ID:
            self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)
        settings = self._settings.namesrv
        if previous_min in group.broker_addrs or not settings.notify_min_broker_id_changed:
            return None
        if not group.enable_acting_master:
            return None
        return _min_broker_id_change(group.broker_addrs, offline=broker_addr, ha=None)

    def on_connection_closed(self, connection: object) -> list[MinBrokerIdChange]:
        """Remove the brokers that last registered over this connection."""
        return self._forget([key for key, live in self._live.items() if live.connection is connection])

    def expired(self, now_ms: int) -> list[tuple[BrokerAddrInfo, object]]:
        """Return the brokers without a sign of life for too long, with their connections."""
        return [(key, live.connection) for key, live in self._live.items() if live.is_expired(now_ms)]

    def scan_not_active_broker(self, now_ms: int) -> list[MinBrokerIdChange]:
        """Remove the brokers that have not given a sign of life in time. Returns the changes of smallest broker ids."""
        gone = [key for key, _ in self.expired(now_ms)]
        for key in gone:
            _log.warning("broker %s gave no sign of life for %d ms", key, self._live[key].timeout_ms)
        return self._forget(gone)

    def _forget(self, keys: Iterable[BrokerAddrInfo]) -> list[MinBrokerIdChange]:
        notices = []
        for key in keys:
            names = [group.broker_name for group in self._groups.values() if self._has_only(group, key)]
            for name in names:
                notice = self.unregister_broker(key.cluster_name, key.broker_addr, name)
                if notice is not None:
                    notices.append(notice)
            self._forget_live(key)
        return notices

    def _has_only(self, group: BrokerData, key: BrokerAddrInfo) -> bool:
        """Return whether the address is in the group, and this registration keeps it there. Brokers of one name may
        name different clusters; the group belongs to the first one's."""
        if key.broker_addr not in group.broker_addrs.values():
            return False
        own = BrokerAddrInfo(group.cluster, key.broker_addr)
        return own == key or own not in self._live

    def _forget_live(self, key: BrokerAddrInfo) -> bool:
        """Remove the registration; True if there was one."""
        self._revision += 1
        for place in [place for place, addr in self._displaced.items() if addr == key.broker_addr]:
            del self._displaced[place]
        self._filters.pop(key, None)
        return self._live.pop(key, None) is not None

    def _remove_group(self, group: BrokerData) -> None:
        name = group.broker_name
        del self._groups[name]
        for cluster in [cluster for cluster, names in self._clusters.items() if name in names]:
            self._clusters[cluster].discard(name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        topics = self._announced.pop(name, {})
        mappings = [(topic, of_brokers[name]) for topic, of_brokers in self._mappings.items() if name in of_brokers]
        self._begin(self._removals(name, topics, mappings))

    def _removals(
        self, name: str, topics: Iterable[str], mappings: Iterable[tuple[str, TopicQueueMappingInfo]]
    ) -> Iterator[None]:
        """Remove the topics of a broker name, yielding to the loop after each, except topics that it registers anew
        meanwhile."""
        for topic in topics:
            yield
            if topic not in self._announced.get(name, ()):
                self._forget_in(self._topics, topic, name)
        for topic, mapping in mappings:
            yield
            if self._mappings.get(topic, {}).get(name) is mapping:
                self._forget_in(self._mappings, topic, name)

    # --- what takes several steps -------------------------------------------------------------------------------

    def work_off(self) -> bool:
        """Do one step of the work begun. Returns whether any is left."""
        if self._unfinished:
            self._revision += 1
            try:
                next(self._unfinished[0])
            except StopIteration:
                self._unfinished.popleft()
        return bool(self._unfinished)

    def _begin(self, entries: Iterator[None]) -> None:
        """Process `entries` after all work begun before; if there is none, do the first step at once."""
        self._unfinished.append(_in_steps(entries))
        if len(self._unfinished) > 1 or self.work_off():
            self.when_unfinished()

    # --- topics -------------------------------------------------------------------------------------------------

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Remove a topic, or the queues that the brokers of one cluster have of it."""
        for name in list(self._topics.get(topic, ())):
            if not cluster_name or name in self._clusters.get(cluster_name, ()):
                self._remove_queue(topic, name)

    def wipe_write_perm_of_broker(self, broker_name: str) -> int:
        """Remove the write permission from all topics of a broker, of many by `work_off`; returns how many it has."""
        return self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm_of_broker(self, broker_name: str) -> int:
        """Make all topics of a broker readable and writeable, many by `work_off`; returns how many it has."""
        return self._set_perm(broker_name, lambda perm: PERM_READ | PERM_WRITE)

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        topics = list(self._announced.get(broker_name, {}).items())
        self._begin(self._permissions(broker_name, topics, change))
        return len(topics)

    def _permissions(
        self, broker_name: str, topics: Iterable[tuple[str, QueueData]], change: Callable[[int], int]
    ) -> Iterator[None]:
        """Change the permission of a broker in each of `topics`, one topic between two yields. A topic that the broker
        has announced anew since the request keeps the permission of the announcement."""
        for topic, announced in topics:
            yield
            if self._announced.get(broker_name, {}).get(topic) is announced:
                queue = self._topics[topic][broker_name]
                self._topics[topic][broker_name] = replace(queue, perm=change(queue.perm))

    def _announce(self, topic: str, queue: QueueData) -> None:
        """Add a queue. Each topic of `_announced[b]` has an entry for b in `_topics`. The reverse holds, except for the
        rest of a broker name that was removed."""
        self._revision += 1
        self._announced.setdefault(queue.broker_name, {})[topic] = queue
        self._topics.setdefault(topic, {})[queue.broker_name] = queue

    def _remove_queue(self, topic: str, broker_name: str) -> None:
        self._revision += 1
        self._announced.get(broker_name, {}).pop(topic, None)
        self._forget_in(self._topics, topic, broker_name)
        self._forget_in(self._mappings, topic, broker_name)

    @staticmethod
    def _forget_in(table: dict[str, dict[str, _Entry]], topic: str, broker_name: str) -> None:
        of_brokers = table.get(topic)
        if of_brokers is not None:
            of_brokers.pop(broker_name, None)
            if not of_brokers:
                del table[topic]

    # --- answers ------------------------------------------------------------------------------------------------

    def pickup_topic_route_data(self, topic: str) -> TopicRouteData | None:
        """Return queues and brokers of a topic, in objects that the caller may change; None if the topic is unknown."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = [_copy(self._groups[name]) for name in queues if name in self._groups]
        if not brokers:
            return None
        route = TopicRouteData(
            # a removed name may still have entries that wait for their removal
            queue_datas=[queue for name, queue in queues.items() if name in self._groups],
            broker_datas=brokers,
            filter_server_table=self._filter_servers(brokers),
            topic_queue_mapping_by_broker=self._mappings.get(topic),
        )
        acting = self._settings.namesrv.support_acting_master
        if acting and not topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX):
            for broker in brokers:
                if not queues[broker.broker_name].perm & PERM_WRITE:
                    _show_acting_master(broker)
        return route

    def _filter_servers(self, brokers: Iterable[BrokerData]) -> dict[str, list[str]]:
        if not self._filters:
            return {}
        keys = [BrokerAddrInfo(broker.cluster, addr) for broker in brokers for addr in broker.broker_addrs.values()]
        return {key.broker_addr: self._filters[key] for key in keys if key in self._filters}

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers, and in which cluster they are."""
        return ClusterInfo(
            {name: _copy(group) for name, group in self._groups.items()},
            {cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    def broker_member_group(self, cluster_name: str, broker_name: str) -> BrokerMemberGroup:
        """Return the addresses of one broker name; empty if it is unknown."""
        group = self._groups.get(broker_name)
        return BrokerMemberGroup(cluster_name, broker_name, {} if group is None else dict(group.broker_addrs))

    def all_topics(self) -> TopicList:
        """Return every topic that has a queue on some broker."""
        return TopicList(list(self._topics))

    def topics_by_cluster(self, cluster_name: str) -> TopicList:
        """Return the topics of the cluster's brokers, each once."""
        topics: dict[str, None] = {}
        for name in sorted(self._clusters.get(cluster_name, ())):
            topics.update(dict.fromkeys(self._announced.get(name, ())))
        return TopicList(list(topics))

    def system_topics(self) -> TopicList:
        """Return the names of clusters and brokers, which are topics on every broker, and the address of one broker."""
        names: dict[str, None] = {}
        for cluster, brokers in self._clusters.items():
            names.update(dict.fromkeys([cluster, *sorted(brokers)]))
        addrs = (addr for group in self._groups.values() for _, addr in sorted(group.broker_addrs.items()))
        return TopicList(list(names), next(addrs, None))

    def unit_topics(self) -> TopicList:
        """Return the topics of the type `unit` (their system flag has the bit FLAG_UNIT)."""
        return self._topics_where(FLAG_UNIT, FLAG_UNIT)

    def unit_sub_topics(self) -> TopicList:
        """Return the topics to which consumers of a unit subscribe."""
        return self._topics_where(FLAG_UNIT_SUB, FLAG_UNIT_SUB)

    def unit_sub_non_unit_topics(self) -> TopicList:
        """Return the topics to which consumers of a unit subscribe and that do not belong to a unit."""
        return self._topics_where(FLAG_UNIT_SUB | FLAG_UNIT, FLAG_UNIT_SUB)

    def _topics_where(self, mask: int, flags: int) -> TopicList:
        """Return the topics that have exactly these of the flags in `mask`."""
        topics = self._topics.items()
        return TopicList([t for t, queues in topics if next(iter(queues.values())).topic_sys_flag & mask == flags])


def _in_steps(entries: Iterator[None]) -> Iterator[None]:
    """Process `entries`, and yield after each _TOPICS_OF_A_STEP of them."""
    for position, _ in enumerate(entries):
        if position and position % _TOPICS_OF_A_STEP == 0:
            yield


def _queue_data(broker_name: str, config: TopicConfig, *, read_only: bool) -> QueueData:
    perm = config.perm & ~PERM_WRITE if read_only else config.perm
    return QueueData(broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)


def _says_which_are_static(new: RegistrationRequest, known: Collection[str]) -> bool:
    """Return whether topics without a mapping in a registration are ordinary ones. RocketMQ's brokers that register in
    several parts (enableSplitRegistration) send all mappings with the last one."""
    return bool(new.mappings) or len(new.topics) == 1 or all(topic in new.topics for topic in known)


def _is_possible(topic: str, queue: QueueData, mapping: TopicQueueMappingInfo | None) -> bool:
    """Return whether a broker can have so many queues: clients would make an object of each of them."""
    total = 0 if mapping is None else mapping.total_queues
    if all(0 <= nums <= MAX_QUEUES for nums in (queue.read_queue_nums, queue.write_queue_nums, total)):
        return True
    _log.error("topic %s of broker %s is ignored: it has %d read queues, %d write queues and %d global queues, and %d "
               "of each are possible; correct it at the broker",
               topic, queue.broker_name, queue.read_queue_nums, queue.write_queue_nums, total, MAX_QUEUES)  # fmt: skip
    return False


def _copy(group: BrokerData) -> BrokerData:
    return replace(group, broker_addrs=dict(group.broker_addrs))


def _show_acting_master(broker: BrokerData) -> None:
    """Show the broker with the smallest id as id 0 in a group that lost its master."""
    if broker.enable_acting_master and MASTER_ID not in broker.broker_addrs:
        smallest = min(broker.broker_addrs)
        broker.broker_addrs[MASTER_ID] = broker.broker_addrs.pop(smallest)


def _min_broker_id_change(addrs: dict[int, str], *, offline: str | None, ha: str | None) -> MinBrokerIdChange:
    """Make the notice about a change in a broker group. After a loss all remaining brokers get it; after a gain, all
    but the new one."""
    smallest = min(addrs)
    everyone = offline is not None or len(addrs) == 1
    targets = tuple(addr for i, addr in addrs.items() if everyone or i != smallest)
    return MinBrokerIdChange(targets, smallest, addrs[smallest], offline, ha)
