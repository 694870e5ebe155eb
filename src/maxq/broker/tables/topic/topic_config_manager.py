"""TopicConfigManager: the topics of this broker.

Source:
    broker/topic/TopicConfigManager.java.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from maxq.broker.identity.role import SLAVE
from maxq.broker.tables.attributes import BATCH_CQ, PURGED, QUEUE_TYPE, TOPIC_ATTRIBUTES, alter_attributes
from maxq.broker.tables.persistent_manager import PersistentManager, next_version, object_member
from maxq.broker.tables.row_json import RowJson
from maxq.broker.tables.topic import topic_validator as names
from maxq.config.settings import BrokerSettings
from maxq.errors import StoreRefusedError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from maxq.runtime.interfaces import Clock, Disk
from maxq.store.files.disk_room import lacks_room

log = logging.getLogger(__name__)

FILE_NAME: Final = "topics.json"
SCHEDULE_QUEUE_NUMS: Final = 18  # one for each delay level
BENCHMARK_QUEUE_NUMS: Final = 1024
_NAMED: Final = 10  # topics that an error names
#: Key in a slave's file that has changes of its own: wall time in ms of the last change of the master that is included.
_HEARD: Final = "masterChangeTimestamp"

#: Called on the loop after the table and its version changed, with the new or changed topics and the deleted names.
TopicChangeListener = Callable[[list[TopicConfig], list[str]], None]


async def _nobody_else() -> None:
    """Return at once: for a table that is not registered with name servers."""


class TopicConfigManager(PersistentManager):
    """Topics by name. A config in the table is never changed, only replaced.

    Attributes:
        row_json: encodes topics for bodies.
        is_alone: no other broker exists on which an automatically created topic could be missing (standalone).
    """

    def __init__(self, disk: Disk, path: PurePath, *, settings: BrokerSettings, clock: Clock) -> None:
        super().__init__(disk, path)
        self._settings = settings
        self._clock = clock
        self._listeners: list[TopicChangeListener] = []
        self._own_system_topics: set[str] = set()
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        # wall time in ms of the master's last change that is known here
        self._heard_ms = 0 if self._is_slave else self.data_version.timestamp
        self.topic_config_table: dict[str, TopicConfig] = {}
        self.row_json: RowJson[TopicConfig] = RowJson("topicConfigTable")
        self.is_alone = False
        self._known_elsewhere: Callable[[], Awaitable[None]] = _nobody_else

    def set_known_elsewhere(self, known_elsewhere: Callable[[], Awaitable[None]]) -> None:
        """Set what waits until the name servers know the changes so far."""
        self._known_elsewhere = known_elsewhere

    @property
    def _is_slave(self) -> bool:
        return self._settings.store.broker_role == SLAVE

    async def published(self) -> None:
        """Return when all changes so far are durable and the name servers know them, as far as these answer. Raises
        OSError as `persisted` does."""
        await self.persisted()
        await self._known_elsewhere()

    def add_change_listener(self, listener: TopicChangeListener) -> None:
        """Add a change listener. It is not called for `load` and `create_system_topics`: read the table after them."""
        self._listeners.append(listener)

    def begin(self, topics_with_messages: Callable[[], Iterable[str]]) -> None:
        """Write the file of a new store, so that a later start knows that it is lost if it is not there. Blocks. Call
        it after `load`.

        Args:
            topics_with_messages: returns those of which the store has messages; none where this table is copied from
                another broker, or is in the log.

        Raises:
            StoreRefusedError: the file is lost, and some of the topics are not ones that this broker creates by itself.
            OSError: the disk refuses.
        """
        if not self.is_new:
            return
        there = topics_with_messages()
        lost = sorted(topic for topic in there if not (self.is_system_topic(topic) or names.is_lmq(topic)))
        if lost:
            shown = ", ".join(lost[:_NAMED]) + (", …" if len(lost) > _NAMED else "")
            raise StoreRefusedError(
                f"{self._file} and {self._backup.name} are missing, but the store has messages of {len(lost)} topics "
                f"({shown}), which nobody could read. Restore one of the two files from a copy or from another broker "
                f"of the group; to begin without topics, write {{}} into {self._file.name}."
            )
        self.persist()

    def add_found(
        self,
        topics_with_messages: Callable[[], Mapping[str, int]],
        newest_ms: Callable[[str, int], int],
        has_batches: Callable[[str], bool],
    ) -> None:
        """Add the topics that the table lacks and of which the log has messages from after the master's last change
        that is in it: this broker was a slave, and had not heard of them when its master went. Nobody could read their
        messages. A topic whose messages are all older was deleted: the log of a Java master does not say so. Topics
        that this broker has created itself as a slave, for consumers, do not show that it knew all others. Blocks. Call
        it after `create_system_topics`.

        Args:
            topics_with_messages: tells the topics with messages, by their number of queues.
            newest_ms: tells when the newest message was stored of a topic with so many queues.
            has_batches: tells whether messages of a topic show that it has queue.type=BatchCQ.

        Raises:
            OSError: the disk refuses. A disk without room is ignored: the topics are in memory, and are written later.
        """
        heard_ms = self._heard_ms
        lacking = {
            name: count for name, count in topics_with_messages().items()
            if not (name in self.topic_config_table or names.is_system_topic(name) or names.is_lmq(name))
            and newest_ms(name, count) > heard_ms
        }  # fmt: skip
        for name, count in sorted(lacking.items()):
            log.warning("the log has messages of topic %s, of which this broker has not heard: it has %d queues now",
                        name, count)  # fmt: skip
            self.topic_config_table[name] = _topic(name, count)
            if has_batches(name):
                self.topic_config_table[name].attributes[QUEUE_TYPE] = BATCH_CQ
        if not lacking:
            return
        self._next_version()
        try:
            self.persist()
        except OSError as error:
            if not lacks_room(error):
                raise
            log.warning("there is no room for %s with these topics: it is written with the next change", self._file)

    # --- look up ------------------------------------------------------------------------------------------------------

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """Return the topic. If light message queues are on, any of their names counts as a topic."""
        config = self.topic_config_table.get(topic)
        if config is None and self._settings.store.enable_lmq and names.is_lmq(topic):
            return _topic(topic, 1)
        return config

    def contains_topic(self, topic: str) -> bool:
        return self.select_topic_config(topic) is not None

    def is_order_topic(self, topic: str) -> bool:
        config = self.topic_config_table.get(topic)
        return config is not None and config.order

    def system_topics(self) -> set[str]:
        """Return all system topics, including those named after cluster and broker."""
        return set(names.SYSTEM_TOPICS) | self._own_system_topics

    def is_system_topic(self, topic: str) -> bool:
        return names.is_system_topic(topic) or topic in self._own_system_topics

    def widen(self, config: TopicConfig, queues: int) -> bool:
        """Give a topic so many queues. Returns False if it has as many."""
        if config.read_queue_nums >= queues:
            return False
        more = max(queues, config.write_queue_nums)
        self._put([replace(config, read_queue_nums=queues, write_queue_nums=more)])
        return True

    # --- create -------------------------------------------------------------------------------------------------------

    def create_system_topics(self) -> None:
        """Create the system topics that the file lacks. Call once, after `load`."""
        for config in self._built_in():
            self._own_system_topics.add(config.topic_name)
            self.topic_config_table.setdefault(config.topic_name, config)

    def _built_in(self) -> list[TopicConfig]:
        broker, store = self._settings.broker, self._settings.store
        cluster, name = broker.broker_cluster_name, broker.broker_name
        read_write = PERM_READ | PERM_WRITE
        topics = [
            _topic(names.SELF_TEST_TOPIC, 1),
            _topic(names.BENCHMARK_TOPIC, BENCHMARK_QUEUE_NUMS),
            _topic(cluster, 16, PERM_INHERIT | (read_write if broker.cluster_topic_enable else 0)),
            _topic(name, 1, PERM_INHERIT | (read_write if broker.broker_topic_enable else 0)),
            _topic(names.OFFSET_MOVED_EVENT, 1),
            _topic(names.SCHEDULE_TOPIC, SCHEDULE_QUEUE_NUMS),
            _topic(cluster + names.REPLY_TOPIC_POSTFIX, 1),
            _topic(names.REVIVE_TOPIC_PREFIX + cluster, broker.revive_queue_num),
            _topic(names.SYNC_BROKER_MEMBER_PREFIX + name, 1, PERM_INHERIT),
            _topic(names.TRANS_HALF_TOPIC, 1),
            _topic(names.TRANS_OP_HALF_TOPIC, 1),
            _topic(names.ROCKSDB_TRANS_HALF_TOPIC, 1),
            _topic(names.ROCKSDB_TRANS_OP_HALF_TOPIC, 1),
        ]
        if broker.auto_create_topic_enable:
            inherited = read_write | PERM_INHERIT
            topics.append(_topic(names.AUTO_CREATE_TOPIC, broker.default_topic_queue_nums, inherited))
        if broker.trace_topic_enable:
            topics.append(_topic(broker.msg_trace_topic_name, 1))
        if store.timer_wheel_enable:
            topics.append(_topic(names.TIMER_TOPIC, 1))
        return topics

    def create_topic_in_send_message_method(
        self,
        topic: str,
        default_topic: str,
        remote_address: str,
        client_default_topic_queue_nums: int,
        topic_sys_flag: int,
    ) -> TopicConfig | None:
        """Return the topic of a send, made from the template `default_topic` if it does not exist.

        Args:
            client_default_topic_queue_nums: the most queues that the client wants; the template may allow fewer.

        Returns:
            None when the template is unknown or does not pass itself on. A new topic is not on disk yet: await
            `published` before the send is answered.
        """
        known = self.topic_config_table.get(topic)
        if known is not None:
            return known
        template = self.topic_config_table.get(default_topic)
        if template is None:
            log.warning("no topic %s: template %s does not exist, producer %s", topic, default_topic, remote_address)
            return None
        is_shut = default_topic == names.AUTO_CREATE_TOPIC and not self._settings.broker.auto_create_topic_enable
        if is_shut or not template.is_inherited:
            log.warning("no topic %s: template %s may not be used, producer %s", topic, default_topic, remote_address)
            return None
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=max(0, min(client_default_topic_queue_nums, template.write_queue_nums)),
            write_queue_nums=max(0, min(client_default_topic_queue_nums, template.write_queue_nums)),
            perm=template.perm & ~PERM_INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=topic_sys_flag,
        )
        log.log(
            logging.INFO if self.is_alone else logging.WARNING,
            "topic %s was made on this broker alone by a message of %s (autoCreateTopicEnable, from %s, %d queues): "
            "no other broker of the cluster gets its messages; make topics with updateTopic -c, and switch "
            "autoCreateTopicEnable off",
            topic, remote_address, default_topic, config.write_queue_nums,
        )  # fmt: skip
        self._put([config])
        return config

    def create_topic_in_send_message_back_method(
        self, topic: str, queue_nums: int, perm: int, topic_sys_flag: int, is_order: bool = False
    ) -> TopicConfig:
        """Return a topic that the broker needs itself (retry, dead letter …), made if it does not exist, with its order
        flag set."""
        known = self.topic_config_table.get(topic)
        if known is not None:
            if known.order == is_order:
                return known
            config = replace(known, order=is_order)
        else:
            config = _topic(topic, queue_nums, perm)
            config.topic_sys_flag, config.order = topic_sys_flag, is_order
            log.info("create new topic %s", config)
        self._put([config])
        return config

    # --- change -------------------------------------------------------------------------------------------------------

    def update_topic_config(self, config: TopicConfig) -> bool:
        """Create or replace one topic; see `update_topic_config_list`."""
        return self.update_topic_config_list([config])

    def update_topic_config_list(self, configs: Iterable[TopicConfig]) -> bool:
        """Create or replace topics, all or none. Their attributes are changes with signed keys.

        Returns:
            False if everything was so already.

        Raises:
            InvalidAttributeError: nothing was changed.
        """
        merged = [self._merge(config) for config in configs]
        changed = [config for config in merged if self.topic_config_table.get(config.topic_name) != config]
        for config in changed:
            log.info("update topic %s, before: %s", config, self.topic_config_table.get(config.topic_name))
        if changed:
            self._put(changed)
        return bool(changed)

    def _merge(self, config: TopicConfig) -> TopicConfig:
        known = self.topic_config_table.get(config.topic_name)
        current = None if known is None else known.attributes
        return replace(config, attributes=alter_attributes(TOPIC_ATTRIBUTES, current, config.attributes))

    def put_purges(self, purges: Mapping[str, str]) -> list[TopicConfig]:
        """Give topics of the table another value of `purged.offsets`, or none if it is empty, and return those whose
        value was another one. The caller calls listeners, and gives the table another version, as needed."""
        changed = []
        for topic, places in purges.items():
            config = self.topic_config_table.get(topic)
            if config is not None and config.attributes.get(PURGED, "") != places:
                others = {name: text for name, text in config.attributes.items() if name != PURGED}
                changed.append(replace(config, attributes=others | ({PURGED: places} if places else {})))
        for config in changed:
            self.topic_config_table[config.topic_name] = config
        if changed:
            self.request_persist()
        return changed

    def update_order_topic_config(self, order_conf_by_topic: Mapping[str, str]) -> None:
        """Set the order flag of the topics that a name server lists as ordered."""
        known = self.topic_config_table
        topics = [topic for topic in order_conf_by_topic if topic in known and not known[topic].order]
        if topics:
            log.info("topics that are ordered from now on: %s", topics)
            self._put([replace(known[topic], order=True) for topic in topics])

    def delete_topic_configs(self, topics: Iterable[str]) -> list[str]:
        """Remove topics; returns those that were known."""
        deleted = [topic for topic in topics if self.topic_config_table.pop(topic, None) is not None]
        self.row_json.forget(deleted)
        if deleted:
            log.info("delete topics %s", deleted)
            self._on_change([], deleted)
        return deleted

    def take_from_master(self, configs: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Replace this table by the master's, with the master's version: both are equal until one changes."""
        table = self.topic_config_table
        deleted = [topic for topic in table if topic not in configs]
        changed = {topic: config for topic, config in configs.items() if table.get(topic) != config}
        self.take_rows(changed, deleted, version)

    def take_rows(self, rows: Mapping[str, TopicConfig], gone: Iterable[str], version: DataVersion) -> None:
        """Apply changed rows of the master's table, whose version this table then has."""
        table = self.topic_config_table
        deleted = [topic for topic in gone if table.pop(topic, None) is not None]
        self.row_json.forget(deleted)
        table.update(rows)
        self.data_version = version.copy()
        self._heard_ms = version.timestamp
        self.request_persist()
        if rows or deleted:
            for listener in self._listeners:
                listener(list(rows.values()), deleted)

    def update_data_version(self) -> None:
        """Change the data version, because brokerPermission changes the meaning of the table although no topic
        changed."""
        self._next_version()
        self.request_persist()

    def differ_from_master(self) -> None:
        """Have a slave take its master's whole table with the next round, because its log changed this one."""
        if self._is_slave:
            self.data_version = DataVersion()
            self.request_persist()

    def _next_version(self) -> None:
        self.data_version = next_version(self.data_version, self._clock.wall_ms())
        if not self._is_slave:
            self._heard_ms = self.data_version.timestamp

    def announce(self, topic: str) -> None:
        """Call the topic listeners because a property outside the table, the topic's static mapping, changed."""
        for listener in self._listeners:
            listener([self.topic_config_table[topic]], [])

    def _put(self, configs: list[TopicConfig]) -> None:
        for config in configs:
            self.topic_config_table[config.topic_name] = config
        self._on_change(configs, [])

    def _on_change(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        self.update_data_version()
        for listener in self._listeners:
            listener(changed, deleted)

    # --- the file -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "dataVersion": self.data_version.to_json(),
            "topicConfigTable": {topic: config.to_json() for topic, config in dict(self.topic_config_table).items()},
        } | ({} if self._heard_ms == self.data_version.timestamp else {_HEARD: self._heard_ms})

    def from_json(self, value: dict[str, Any]) -> None:
        topics = object_member(value, "topicConfigTable")
        self.topic_config_table.update(
            {topic: replace(TopicConfig.from_json(config), topic_name=topic) for topic, config in topics.items()}
        )
        if value.get("dataVersion") is not None:
            self.data_version = DataVersion.from_json(value["dataVersion"])
            heard_ms = value.get(_HEARD)
            self._heard_ms = heard_ms if isinstance(heard_ms, int) else self.data_version.timestamp


def _topic(name: str, queue_nums: int, perm: int = PERM_READ | PERM_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)
