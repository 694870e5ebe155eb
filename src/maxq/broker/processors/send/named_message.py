"""Is the record at a place of the log the message that a client means? Clients name messages by their place, and by an
id beside it. After a change of master that lost the end of the log, another message may lie there."""

import re
from typing import Final

from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt

_ID: Final = re.compile(r"[0-9A-Fa-f]{32,56}")
_UNIQUE_KEY: Final = f"\x02{const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX}\x01".encode()


def is_another(message: MessageExt, msg_id: str | None) -> bool:
    """Return whether `msg_id` is the id of another message. False for a text that is not an id, as some clients send,
    and for a message without a unique key."""
    if not msg_id or message.uniq_key is None or not _ID.fullmatch(msg_id):
        return False
    own = (message.uniq_key, message.offset_msg_id, message.properties.get(const.PROPERTY_ORIGIN_MESSAGE_ID, ""))
    return msg_id.upper() not in [one.upper() for one in own]


def has_unique_key(properties: bytes, key: bytes) -> bool:
    """Return whether `key` is the unique key of the message with these properties, in their stored form."""
    return b"%b%b\x02" % (_UNIQUE_KEY, key) in b"\x02%b\x02" % properties
