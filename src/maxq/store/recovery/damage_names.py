"""By which names damaged places of a log are known (damage.py)."""

from collections.abc import Mapping
from typing import Final

from maxq.protocol.message.message_sys_flag import is_rolled_back

#: Property of a filler: how many bytes it covers.
DAMAGED_PROPERTY: Final = "MAXQ_DAMAGED"
#: Topic of a filler, unless the damaged record's head told its own.
DAMAGED_TOPIC: Final = "rmq_sys_maxq_damaged"
#: Folder of the store with the bytes that were there.
DAMAGED_FOLDER: Final = "damaged"
#: All properties that a filler has. A message from a client has others, because every broker adds some.
_OF_A_FILLER: Final = frozenset({DAMAGED_PROPERTY, "REAL_TOPIC", "REAL_QID"})


def is_filler(sys_flag: int, properties: Mapping[str, str]) -> bool:
    """Return whether a record with these flags and properties is a filler that names the bytes it covers, and not a
    message whose client set that property. A filler without room for properties has no topic and cannot be told from
    others like it."""
    return is_rolled_back(sys_flag) and DAMAGED_PROPERTY in properties and _OF_A_FILLER.issuperset(properties)
