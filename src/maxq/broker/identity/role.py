"""The combinations of brokerRole and brokerId that are allowed, checked at the start.

Source:
    broker/BrokerStartup.java, buildBrokerController.
"""

import logging
from dataclasses import replace
from typing import Final

from maxq.broker.dledger.member_settings import member_config, slave_id
from maxq.config.settings import BrokerSettings
from maxq.errors import ConfigError

log = logging.getLogger(__name__)

SLAVE: Final = "SLAVE"
MASTER_ID: Final = 0


def check_role(settings: BrokerSettings) -> None:
    """Check role and id. A slave has an id of its own; a master's is 0, whatever was configured. A member of a DLedger
    group is a slave until the group says otherwise.

    Raises:
        ConfigError: a slave without an id; settings that make no member.
    """
    if settings.store.enable_dleger_commit_log:
        member_config(settings.store)
        settings.broker = replace(settings.broker, broker_id=slave_id(settings.store))
        settings.store = replace(settings.store, broker_role=SLAVE)
        return
    role, broker_id = settings.store.broker_role, settings.broker.broker_id
    if role == SLAVE:
        if broker_id <= MASTER_ID:
            raise ConfigError(
                f"brokerId={broker_id}: a broker with brokerRole=SLAVE needs a brokerId of at least 1, and one that no "
                f"other broker of {settings.broker.broker_name or 'its group'} has"
            )
    elif broker_id != MASTER_ID:
        log.warning("brokerId=%d: brokerRole=%s makes this broker a master, whose id is 0; 0 is used", broker_id, role)
        settings.broker = replace(settings.broker, broker_id=MASTER_ID)
