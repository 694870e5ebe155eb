"""By which names damaged places of a log are known (damage.py)."""

from typing import Final

#: Property of a filler: how many bytes it covers.
DAMAGED_PROPERTY: Final = "MAXQ_DAMAGED"
#: Topic of a filler, unless the damaged record's head told its own.
DAMAGED_TOPIC: Final = "rmq_sys_maxq_damaged"
#: Folder of the store with the bytes that were there.
DAMAGED_FOLDER: Final = "damaged"
