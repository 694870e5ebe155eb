"""System flag bits of a stored message.

    bit   0x001 compressed · 0x002 multi tags · 0x00C transaction (0 none, 4 prepared, 8 commit, C rollback)
          0x010 born host is IPv6 · 0x020 store host is IPv6 · 0x040 needs unwrapping · 0x080 inner batch
          0x700 compression type (0 zlib by old clients, 0x100 LZ4, 0x200 ZSTD, 0x300 ZLIB)

Source:
    common/sysflag/MessageSysFlag.java, common/compression/CompressionType.java.
"""

from typing import Final


class MessageSysFlag:
    """Bits of `sysFlag`: plain ints, since they are tested for each record and an IntFlag's `&` costs a microsecond."""

    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x2
    TRANSACTION_PREPARED: Final = 0x4
    TRANSACTION_COMMIT: Final = 0x8
    TRANSACTION_ROLLBACK: Final = 0xC
    BORN_HOST_V6: Final = 0x10
    STORE_HOST_V6: Final = 0x20
    NEED_UNWRAP: Final = 0x40
    INNER_BATCH: Final = 0x80
    COMPRESSION_LZ4: Final = 0x100
    COMPRESSION_ZSTD: Final = 0x200
    COMPRESSION_ZLIB: Final = 0x300


TRANSACTION_MASK: Final = 0xC
COMPRESSION_MASK: Final = 0x700


def transaction_type(sys_flag: int) -> int:
    """Return 0, TRANSACTION_PREPARED, TRANSACTION_COMMIT or TRANSACTION_ROLLBACK."""
    return sys_flag & TRANSACTION_MASK


def is_rolled_back(sys_flag: int) -> bool:
    """Return True for a record of transaction type ROLLBACK: no message, and in neither queues nor index."""
    return sys_flag & TRANSACTION_MASK == MessageSysFlag.TRANSACTION_ROLLBACK


def is_queued(sys_flag: int) -> bool:
    """Return True if a record has a place in a queue: it is neither a half message nor rolled back."""
    return not sys_flag & MessageSysFlag.TRANSACTION_PREPARED


def with_transaction_type(sys_flag: int, kind: int) -> int:
    """Return `sys_flag` with its transaction bits replaced by `kind`."""
    return (sys_flag & ~TRANSACTION_MASK) | kind
