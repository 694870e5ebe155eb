"""Which topics of a store are the broker's own. Jobs and views that are given no topics leave these out, as they do the
topics that a cluster names as its own: half messages, also those that were given up, are not messages of users.

Source: common/topic/TopicValidator.java.
"""

import re
from typing import Final

from maxq.protocol.namespace import SYSTEM_TOPICS

#: Matches their names, in Python and in Spark's rlike.
OWN_TOPICS: Final = rf"^((?i:rmq_sys_).*|{'|'.join(map(re.escape, sorted(SYSTEM_TOPICS)))})$"

_OWN: Final = re.compile(OWN_TOPICS)


def is_own_topic(topic: str) -> bool:
    """Return whether the broker alone writes this topic, or it is a system topic of each broker."""
    return _OWN.match(topic) is not None
