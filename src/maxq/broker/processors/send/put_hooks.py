"""PutHooks: what may change or refuse a message before it is stored (the PutMessageHook list of BrokerController).

A hook may move the message to another topic and queue (delayed, timed, half messages) by changing it in place. The
compiled send path takes none of the messages that a hook has something to do with.

Source:
    broker/BrokerController.java initialRpcHooks…registerMessageStoreHook; util/HookUtils.java.
"""

from collections.abc import Callable
from typing import Final

from maxq.broker.processors.refusal import Refusal
from maxq.codes import ResponseCode
from maxq.protocol.message.message_properties import encode_properties
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.append.message_writer import MAX_PROPERTIES

PutHook = Callable[[MessageExtBrokerInner], Refusal | None]

#: Bytes of properties that the broker may add to a message which it writes again later: how often a transaction was
#: asked for, when a timer message went into the wheel. As `_LATER_ROOM` in store/append/log_rows_cy.py.
LATER_ROOM: Final = 256


def lacks_room(message: MessageExtBrokerInner) -> Refusal | None:
    """Refuse a message whose properties leave no room for those that the broker adds when it writes it again, because
    it could never be delivered."""
    size = len(encode_properties(message.properties).encode())
    if size + LATER_ROOM <= MAX_PROPERTIES:
        return None
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the properties have {size} bytes with those of the broker, at most {MAX_PROPERTIES - LATER_ROOM} are allowed "
        "for a message that is delivered later or opens a transaction; send fewer or shorter properties",
    )


class PutHooks:
    """The put hooks of one broker, in the order in which they were added."""

    def __init__(self) -> None:
        self._half: Callable[[MessageExtBrokerInner], bool] | None = None
        self._half_stored: Callable[[str], None] | None = None
        self._judge_half: PutHook | None = None
        self._hooks: list[PutHook] = []

    def set_half(
        self,
        turn_away: Callable[[MessageExtBrokerInner], bool],
        stored: Callable[[str], None],
        judge: PutHook,
    ) -> None:
        """
        Args:
            turn_away: makes a half message of one that opens a transaction, and says whether it did. No hook sees
                those: when a transaction is committed, what is delivered meets them, delays included.
            stored: is told when a message that was sent to this topic was stored as a half message.
            judge: says why a half message could not be stored when its transaction is committed.
        """
        self._half = turn_away
        self._half_stored = stored
        self._judge_half = judge

    def half_stored(self, topic: str) -> None:
        """Call the listener of half messages: one that was sent to `topic` is in the log."""
        if self._half_stored is not None:
            self._half_stored(topic)

    def add(self, hook: PutHook) -> None:
        """Add a hook: `hook(message)` changes the message in place, or returns why it must not be stored."""
        self._hooks.append(hook)

    def apply(self, message: MessageExtBrokerInner) -> Refusal | None:
        """Run the hooks in order. The first refusal ends the run."""
        if self._half is not None and self._half(message):
            refusal = None if self._judge_half is None else self._judge_half(message)
            return refusal or lacks_room(message)
        for hook in self._hooks:
            refusal = hook(message)
            if refusal is not None:
                return refusal
        return None
