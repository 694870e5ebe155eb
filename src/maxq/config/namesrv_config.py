"""Settings of a name server: common/namesrv/NamesrvConfig.java of RocketMQ 5.5.0."""

from dataclasses import dataclass

from maxq.config.setting import SettingsTable, setting


@dataclass(frozen=True, init=False, eq=False, repr=False)
class NamesrvConfig(SettingsTable):
    """Settings of what one name server shows, and when it forgets a broker."""

    kv_config_path: str = setting(
        "",
        "File of the key-value table; empty: `namesrv/kvConfig.json` in the home of the user who runs `maxq namesrv`.",
    )
    config_store_path: str = setting(
        "",
        "File that live updates are written to: the one of `--config`; without it `namesrv/namesrv.properties` in the "
        "user's home, of which a start without `--config` takes the settings that are live.",
    )
    order_message_enable: bool = setting(False, "Add the order configuration of a topic to its route.", live=True)
    return_order_topic_config_to_broker: bool = setting(
        True, "Answer registrations with the table of ordered topics.", live=True
    )
    scan_not_active_broker_interval: int = setting(
        5000, "Time between two checks for brokers that stopped registering.", unit="ms", low=10, live=True
    )
    support_acting_master: bool = setting(
        False,
        "Show the smallest slave of a group without master as its master, if the group asks for it.",
        live=True,
    )
    enable_all_topic_list: bool = setting(True, "Answer with the list of all topics.", live=True)
    enable_topic_list: bool = setting(True, "Answer with lists of topics by cluster or unit.", live=True)
    notify_min_broker_id_changed: bool = setting(
        False, "Tell the members of a group when its smallest broker id changes.", live=True
    )
    need_wait_for_service: bool = setting(
        False, "Refuse routes until waitSecondsForService have passed since the start.", live=True
    )
    wait_seconds_for_service: int = setting(
        45, "Time that brokers have for registering first.", unit="s", low=0, live=True
    )
    delete_topic_with_broker_registration: bool = setting(
        False,
        "Forget topics that a registration of a RocketMQ broker leaves out. Brokers of MaxQ say whether they list all.",
        live=True,
    )
    config_black_list: str = setting(
        "configBlackList;configStorePath;kvConfigPath",
        "Settings, separated by `;`, that a live update refuses in addition to those that are not live.",
    )

    acl_enable: bool = setting(
        False, "ACL 1.0: refuse requests that conf/plain_acl.yml and the files in conf/acl do not allow."
    )
    rocketmq_home: str = setting(
        "", "Folder that contains `conf` with the files of ACL 1.0; empty: the environment's ROCKETMQ_HOME."
    )
