"""RecallHandle: names a timer message, so that its sender can take it back.

base64url, padded, of the text `v1 topic brokerName deliverMs UNIQ_KEY` with one blank between the parts.

Source:
    common/producer/RecallMessageHandle.java.
"""

import base64
import binascii

from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass

_VERSION = "v1"
_PARTS = 5
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """A recall handle. `deliver_ms` is within the slot of the message, ms since 1970; `message_id` its UNIQ_KEY."""

    topic: str
    broker_name: str
    deliver_ms: int
    message_id: str

    def encode(self) -> str:
        """Return the text with which a client can recall the message."""
        text = f"{_VERSION} {self.topic} {self.broker_name} {self.deliver_ms} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> "RecallHandle":
        """
        Raises:
            RemoteProtocolError: the text is not a handle.
        """
        try:
            text = base64.b64decode(handle.encode("ascii") + b"=" * (-len(handle) % 4), b"-_", validate=True).decode()
        except (binascii.Error, ValueError):
            raise RemoteProtocolError("recall handle is invalid: it is not base64url of a text") from None
        parts = text.split(" ")
        if parts[0] != _VERSION or len(parts) < _PARTS:
            raise RemoteProtocolError(f"recall handle is invalid: it says {text[:80]!r}")
        _, topic, broker_name, deliver_ms, message_id = parts[:_PARTS]
        if not (deliver_ms.isascii() and deliver_ms.isdigit() and len(deliver_ms) <= _MOST_DIGITS):
            raise RemoteProtocolError(f"recall handle is invalid: {deliver_ms!r} is no time in ms")
        return cls(topic, broker_name, int(deliver_ms), message_id)
