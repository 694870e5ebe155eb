"""Where the parts of a stored record stand: the one place for these numbers. Compiled modules take them from the .pxd.

A record (big endian; `b` and `s` are the 8 or 20 bytes of the born and the store host, IPv4 or IPv6):

    0 TOTALSIZE:4  4 MAGIC:4  8 BODYCRC:4  12 QUEUEID:4  16 FLAG:4  20 QUEUEOFFSET:8  28 PHYSICALOFFSET:8
    36 SYSFLAG:4  40 BORNTIMESTAMP:8  48 BORNHOST:b  48+b STORETIMESTAMP:8  56+b STOREHOST:s  56+b+s RECONSUMETIMES:4
    60+b+s PREPAREDOFFSET:8  68+b+s BODYLEN:4 BODY:n  TOPICLEN:1 (V1) or 2 (V2) TOPIC  PROPERTIESLEN:2 PROPERTIES

A BLANK record (`remaining:4, MAGIC_BLANK:4`) ends a file of the log. A record of a batch body:

    0 SIZE:4  4 MAGIC:4 = 0  8 BODYCRC:4 = 0  12 FLAG:4  16 BODYLEN:4 BODY:n  PROPERTIESLEN:2 PROPERTIES

Source:
    store/MessageExtEncoder.java, common/message/MessageDecoder.java.
"""

from typing import Final

from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK as _TRANSACTION_MASK
from maxq.protocol.message.message_sys_flag import MessageSysFlag

#: Positions, in bytes from the start of the record.
TOTAL_SIZE: Final = 0
MAGIC: Final = 4
BODY_CRC: Final = 8
QUEUE_ID: Final = 12
FLAG: Final = 16
QUEUE_OFFSET: Final = 20
PHYSICAL_OFFSET: Final = 28
SYS_FLAG: Final = 36
BORN_TIMESTAMP: Final = 40
BORN_HOST: Final = 48

#: A V2 record has two bytes for the length of its topic, a V1 record one.
MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
MESSAGE_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
#: The bytes with which the magic codes of both versions begin.
MAGIC_START: Final = b"\xda\xa3\x20"

#: Bytes of a V1 record besides hosts, topic, body and properties.
FIXED_SIZE: Final = 75
#: Bytes of the smallest record: V1, IPv4 hosts, no topic, no body, no properties.
MIN_RECORD_SIZE: Final = 91
#: Bytes that a record takes at most besides topic, body and properties (a generous bound, with IPv6 hosts).
HEAD_SIZE_MAX: Final = 119
#: Bytes of a record of a batch body besides its body and properties.
BATCH_RECORD_SIZE: Final = 22

#: Bits of SYSFLAG that the store acts on, under the names that compiled modules know.
TRANSACTION_MASK: Final = _TRANSACTION_MASK
MULTI_TAGS: Final = MessageSysFlag.MULTI_TAGS
TRANSACTION_PREPARED: Final = MessageSysFlag.TRANSACTION_PREPARED
TRANSACTION_COMMIT: Final = MessageSysFlag.TRANSACTION_COMMIT
TRANSACTION_ROLLBACK: Final = MessageSysFlag.TRANSACTION_ROLLBACK
BORN_HOST_V6: Final = MessageSysFlag.BORN_HOST_V6
STORE_HOST_V6: Final = MessageSysFlag.STORE_HOST_V6
HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
INNER_BATCH: Final = MessageSysFlag.INNER_BATCH

_V6_SIZE: Final = 20


def born_host_size(sys_flag: int) -> int:
    """Return the bytes of BORNHOST: 8 or 20."""
    return 20 if sys_flag & BORN_HOST_V6 else 8


def store_host_size(sys_flag: int) -> int:
    """Return the bytes of STOREHOST: 8 or 20."""
    return 20 if sys_flag & STORE_HOST_V6 else 8


def store_timestamp_at(sys_flag: int) -> int:
    """Return the position of STORETIMESTAMP; STOREHOST follows 8 bytes behind it."""
    return BORN_HOST + born_host_size(sys_flag)


def reconsume_times_at(sys_flag: int) -> int:
    """Return the position of RECONSUMETIMES."""
    return 56 + born_host_size(sys_flag) + store_host_size(sys_flag)


def body_size_at(sys_flag: int) -> int:
    """Return the position of BODYLEN; the body follows 4 bytes behind it."""
    return 68 + born_host_size(sys_flag) + store_host_size(sys_flag)


def host_bits(born_size: int, store_size: int) -> int:
    """Return the bits of SYSFLAG that say how many bytes the hosts have."""
    return (BORN_HOST_V6 if born_size == _V6_SIZE else 0) | (STORE_HOST_V6 if store_size == _V6_SIZE else 0)


def size_of(record: bytes | memoryview, position: int = 0) -> int:
    """Return TOTALSIZE of the record that begins at `position`."""
    return int.from_bytes(record[position : position + 4], "big")


def queue_offset_of(record: bytes | memoryview, position: int = 0) -> int:
    """Return QUEUEOFFSET of the record that begins at `position`."""
    return _int64(record, position + QUEUE_OFFSET)


def physical_offset_of(record: bytes | memoryview, position: int = 0) -> int:
    """Return PHYSICALOFFSET of the record that begins at `position`."""
    return _int64(record, position + PHYSICAL_OFFSET)


def sys_flag_of(record: bytes | memoryview, position: int = 0) -> int:
    """Return SYSFLAG of the record that begins at `position`."""
    return int.from_bytes(record[position + SYS_FLAG : position + SYS_FLAG + 4], "big")


def store_timestamp_of(record: bytes | memoryview, position: int = 0) -> int:
    """Return STORETIMESTAMP, ms since 1970, of the record that begins at `position`."""
    return _int64(record, position + store_timestamp_at(sys_flag_of(record, position)))


def _int64(data: bytes | memoryview, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "big", signed=True)
