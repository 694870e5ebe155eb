"""The settings of a broker from which the configuration of its DLedger member is made."""

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import ConfigError
from maxq.replication.dledger.config import DLedgerConfig, dledger_config


def member_config(store: MessageStoreConfig) -> DLedgerConfig:
    """Return the settings of this broker's member.

    Raises:
        ConfigError: see `dledger_config`; or dLegerSelfId is not a letter and a number.
    """
    slave_id(store)
    return dledger_config(
        store.dleger_group,
        store.dleger_self_id,
        store.dleger_peers,
        preferred=store.preferred_leader_id,
        heart_beat_time_interval_ms=store.dleger_heart_beat_interval,
        shared=(str(store.mapped_file_size_commit_log),),
    )


def slave_id(store: MessageStoreConfig) -> int:
    """Return the broker id of a member that does not lead: the number in dLegerSelfId, plus 1.

    Raises:
        ConfigError: there is no number.
    """
    number = store.dleger_self_id[1:]
    if not number.isascii() or not number.isdecimal():
        raise ConfigError(
            f"dLegerSelfId={store.dleger_self_id}: a broker's is one character and a number, such as n0; its broker id "
            "while another member leads is that number plus 1"
        )
    return int(number) + 1
