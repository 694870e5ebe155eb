"""SubscriptionGroupManager: the consumer groups that this broker knows, and which topics they must not read.

Source:
    broker/subscription/SubscriptionGroupManager.java.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from maxq.broker.tables.attributes import SUBSCRIPTION_GROUP_ATTRIBUTES, alter_attributes
from maxq.broker.tables.persistent_manager import PersistentManager, next_version, object_member
from maxq.broker.tables.row_json import RowJson
from maxq.broker.tables.topic.topic_validator import (
    RETRY_PREFIX,
    TRANSACTION_GROUP,
    is_lmq,
    is_system_group,
    validate_group,
)
from maxq.config.settings import BrokerSettings
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.json.json_body import read_int
from maxq.runtime.interfaces import Clock, Disk

log = logging.getLogger(__name__)

FILE_NAME: Final = "subscriptionGroup.json"

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)

MOST_DELETED: Final = 10_000  # deleted groups whose names a broker keeps that was a slave: 2 MB at most


class SubscriptionGroupManager(PersistentManager):
    """Groups by name. A config in the table is never changed, only replaced.

    Attributes:
        row_json: what puts groups into bodies.
        slave_until: this broker is a master whose log is the copy of a slave up to this physical offset: its table may
            lack groups that its master made just before it went. 0: it was never a slave. Set by `begin`.
    """

    def __init__(self, disk: Disk, path: PurePath, *, settings: BrokerSettings, clock: Clock) -> None:
        super().__init__(disk, path)
        self._settings = settings
        self._clock = clock
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self.subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
        self.row_json: RowJson[SubscriptionGroupConfig] = RowJson("subscriptionGroupTable")
        self.forbidden_table: dict[str, dict[str, int]] = {}  # group → topic → bits, bit n = PermName index n
        self.slave_until = 0
        # names in the order of their last deletion; kept while `slave_until` is set
        self._deleted_here: dict[str, None] = {}
        self._deleted_at = 0  # the value of `slave_until` at the master that deleted these groups
        self._why_disabled: dict[str, str] = {}
        self._listeners: list[Callable[[Iterable[str]], None]] = []

    def add_change_listener(self, listener: Callable[[Iterable[str]], None]) -> None:
        """Add a listener that is called with the names of groups that were updated or deleted, but not of those that
        first use creates, nor at `load`."""
        self._listeners.append(listener)

    def _tell(self, groups: Iterable[str]) -> None:
        for listener in self._listeners:
            listener(groups)

    def create_system_groups(self) -> None:
        """Create the system groups that the file lacks. Call once, after `load`."""
        for group in SYSTEM_GROUPS:
            self.subscription_group_table.setdefault(group, SubscriptionGroupConfig(group_name=group))

    def begin(self, slave_until: int) -> None:
        """Set `slave_until`; call once, after `load`. The file tells which groups this broker has deleted since it
        became the master with that log. Groups that it deleted before, and was a slave later, may have been made again
        by its master."""
        if slave_until != self._deleted_at:
            self._deleted_here.clear()
        self.slave_until = self._deleted_at = slave_until

    # --- look up ------------------------------------------------------------------------------------------------------

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group. It is created on first use if autoCreateSubscriptionGroup allows it and the name is legal.

        Any group named as a light message queue counts as one where they are on.
        """
        config = self.subscription_group_table.get(group)
        if config is not None:
            return config
        if self._is_lmq(group):
            return SubscriptionGroupConfig(group_name=group)
        broker = self._settings.broker
        allowed = broker.auto_create_subscription_group or (broker.enable_create_sys_group and is_system_group(group))
        return self._create(group) if allowed else None

    def _create(self, group: str) -> SubscriptionGroupConfig | None:
        if validate_group(group) is not None:
            return None
        config = SubscriptionGroupConfig(group_name=group)
        log.info("auto create a subscription group, %s", group)
        self.subscription_group_table[group] = config
        self._on_change()
        return config

    def find_named_group(self, group: str, physical_offset: int) -> SubscriptionGroupConfig | None:
        """Return the group that the record of the log at this physical offset names; -1: it is not known where that is.

        A broker that was a slave when it copied the record may not have heard of the group before its master died. It
        creates the group even without autoCreateSubscriptionGroup, because an administrator may have created it, unless
        the group is among the last `MOST_DELETED` that were deleted here. Any other broker has all groups that were not
        deleted.
        """
        if self.contains_subscription_group(group):
            return self.find_subscription_group_config(group)
        may_be_new = self.slave_until > max(physical_offset, 0) and group not in self._deleted_here
        return self._create(group) if may_be_new else None

    def contains_subscription_group(self, group: str) -> bool:
        """Return whether the group is known, without creating it."""
        return group in self.subscription_group_table or self._is_lmq(group)

    def has_retry_topic(self, name: str) -> bool:
        """Return whether this is the retry topic of an existing group. The older spelling of a pop group's retry topic,
        `%RETRY%group_topic`, may also be that of the group `group_topic`, and then belongs to that group."""
        return name.removeprefix(RETRY_PREFIX) in self.subscription_group_table

    def _is_lmq(self, group: str) -> bool:
        return self._settings.store.enable_lmq and is_lmq(group)

    # --- change -------------------------------------------------------------------------------------------------------

    def update_subscription_group_config(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace one group; see `update_subscription_group_config_list`."""
        self.update_subscription_group_config_list([config])

    def update_subscription_group_config_list(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or replace groups, all or none. Their attributes are changes with signed keys.

        Raises:
            InvalidAttributeError: nothing was changed.
        """
        merged = [self._merge(config) for config in configs]
        for config in merged:
            known = self.subscription_group_table.get(config.group_name)
            log.info("%s subscription group %s", "create" if known is None else "update", config)
            self.subscription_group_table[config.group_name] = config
            self._why_disabled.pop(config.group_name, None)
        if merged:
            self._on_change(len(merged))
            self._tell([config.group_name for config in merged])

    def _merge(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        known = self.subscription_group_table.get(config.group_name)
        current = None if known is None else known.attributes
        return replace(config, attributes=alter_attributes(SUBSCRIPTION_GROUP_ATTRIBUTES, current, config.attributes))

    def disable_consume(self, group: str, why: str) -> bool:
        """Disable consumption by the group, because it is too far behind; an administrator can enable it. Returns False
        if it is disabled already."""
        config = self.subscription_group_table.get(group)
        if config is None or not config.consume_enable:
            return False
        self.subscription_group_table[group] = replace(config, consume_enable=False)
        self._why_disabled[group] = why
        self._on_change()
        return True

    def why_disabled(self, group: str) -> str:
        """Return why this broker has disabled the group; empty if an administrator disabled it, or a broker before the
        last start."""
        return self._why_disabled.get(group, "")

    def delete_subscription_group_config(self, group: str) -> bool:
        """Remove the group; returns False if it was not known. A broker that was a slave keeps also then that it is
        deleted."""
        known = self.subscription_group_table.pop(group, None)
        self.row_json.forget([group])
        forbidden = self.forbidden_table.pop(group, None)
        self._why_disabled.pop(group, None)
        self._remember_deleted(group)
        was_known = known is not None or forbidden is not None
        if was_known:
            log.info("delete subscription group %s", group)
        else:
            log.warning("delete subscription group failed, %s does not exist", group)
        if was_known or self.slave_until:
            self._on_change()
            self._tell([group])
        return was_known

    def _remember_deleted(self, group: str) -> None:
        if self.slave_until:
            self._deleted_here.pop(group, None)
            self._deleted_here[group] = None
            if len(self._deleted_here) > MOST_DELETED:
                del self._deleted_here[next(iter(self._deleted_here))]

    def take_from_master(
        self,
        groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
        version: DataVersion,
    ) -> None:
        """Replace these tables by the master's, with the master's version: both are equal until one changes."""
        known = self.subscription_group_table
        gone = [group for group in known if group not in groups]
        changed = {group: config for group, config in groups.items() if known.get(group) != config}
        self.take_rows(changed, gone, forbidden, version)

    def take_rows(
        self,
        rows: Mapping[str, SubscriptionGroupConfig],
        gone: Iterable[str],
        forbidden: Mapping[str, Mapping[str, int]],
        version: DataVersion,
    ) -> None:
        """Apply changed rows of the master's table of groups, whose version this table then has, and the whole table of
        forbidden topics."""
        known = self.subscription_group_table
        deleted = [group for group in gone if known.pop(group, None) is not None]
        self.row_json.forget(deleted)
        for group in deleted:
            self._why_disabled.pop(group, None)
        known.update(rows)
        self._tell([*deleted, *rows])
        self.forbidden_table = {group: dict(topics) for group, topics in forbidden.items()}
        self.data_version = version.copy()
        self.request_persist()

    # --- what a group must not read -----------------------------------------------------------------------------------

    def is_forbidden(self, group: str, topic: str, permission_bit: int) -> bool:
        """Return whether this use (bit number: 2 = read) of the topic is forbidden to the group."""
        if not self.forbidden_table:
            return False
        return bool(self.forbidden_table.get(group, {}).get(topic, 0) >> permission_bit & 1)

    def update_forbidden(self, group: str, topic: str, permission_bit: int, *, forbidden: bool) -> None:
        """Forbid or allow this use of the topic for the group."""
        topics = dict(self.forbidden_table.get(group, {}))
        bits = topics.get(topic, 0)
        bits = bits | 1 << permission_bit if forbidden else bits & ~(1 << permission_bit)
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if topics:
            self.forbidden_table[group] = topics
        else:
            self.forbidden_table.pop(group, None)
        log.info("group %s, topic %s: forbidden bits are %d now", group, topic, bits)
        self._on_change()

    # --- the file -----------------------------------------------------------------------------------------------------

    def _on_change(self, count: int = 1) -> None:
        now_ms = self._clock.wall_ms()
        for _ in range(count):
            self.data_version = next_version(self.data_version, now_ms)
        self.request_persist()

    def to_json(self) -> dict[str, Any]:
        deleted = list(self._deleted_here)
        return {
            "dataVersion": self.data_version.to_json(),
            **({"deletedGroups": {"groups": deleted, "slaveUntil": self._deleted_at}} if deleted else {}),
            "forbiddenTable": {group: dict(topics) for group, topics in dict(self.forbidden_table).items()},
            "subscriptionGroupTable": {
                group: config.to_json() for group, config in dict(self.subscription_group_table).items()
            },
        }

    def from_json(self, value: dict[str, Any]) -> None:
        groups = object_member(value, "subscriptionGroupTable")
        self.subscription_group_table.update(
            {group: replace(SubscriptionGroupConfig.from_json(c), group_name=group) for group, c in groups.items()}
        )
        for group, topics in object_member(value, "forbiddenTable").items():
            self.forbidden_table[group] = _bits(group, topics)
        deleted = object_member(value, "deletedGroups")
        if deleted:
            self._deleted_here, self._deleted_at = _deleted(deleted)
        if value.get("dataVersion") is not None:
            self.data_version = DataVersion.from_json(value["dataVersion"])


def _deleted(value: dict[str, Any]) -> tuple[dict[str, None], int]:
    """Return the names of deleted groups, and the `slave_until` of the master that deleted them."""
    try:
        return dict.fromkeys(str(group) for group in value["groups"]), read_int(value["slaveUntil"])
    except (KeyError, TypeError, ValueError):
        raise RemoteProtocolError(f"deletedGroups are names and a physical offset, not {value!r:.200}") from None


def _bits(group: str, topics: Any) -> dict[str, int]:
    try:
        return {str(topic): read_int(bits) for topic, bits in topics.items()}
    except (AttributeError, TypeError, ValueError):
        raise RemoteProtocolError(f"forbiddenTable of {group} is numbers by topic, not {topics!r:.80}") from None
