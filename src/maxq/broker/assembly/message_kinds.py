"""MessageKinds: the parts of a broker that deal with one kind of message each (delayed, timed, transactional …).

A part is one assembly object, built once the address of the broker is known. It adds its hooks to PutHooks and its
services to SpecialServices itself; what is left to the controller is here.
"""

import logging
from typing import Protocol

from maxq.remoting.server import RemotingServer

log = logging.getLogger(__name__)


class MessageKind(Protocol):
    """One part."""

    def register(self, server: RemotingServer) -> None:
        """Take the request codes that belong to it."""

    async def load(self) -> None:
        """Read its files; the store is loaded. OSError or MaxQError if that cannot be."""

    def start(self) -> None:
        """Begin what every broker of a group does. What only the speaker of the group does, SpecialServices starts."""

    async def shutdown(self) -> None:
        """End everything and write its files; no request comes any more, the store is still open, and the special
        services were told to stop."""


class MessageKinds:
    """All of them, in the order in which they were added."""

    def __init__(self) -> None:
        self._kinds: list[MessageKind] = []

    def add(self, kind: MessageKind, server: RemotingServer) -> None:
        """Have it answer its request codes, and follow the broker from now on."""
        kind.register(server)
        self._kinds.append(kind)

    async def load(self) -> None:
        for kind in self._kinds:
            await kind.load()

    def start(self) -> None:
        for kind in self._kinds:
            kind.start()

    async def shutdown(self) -> None:
        """In the reverse order. One that fails is logged: the others, and the store, are closed all the same."""
        for kind in reversed(self._kinds):
            try:
                await kind.shutdown()
            except Exception:
                log.exception("%s did not end in good order", type(kind).__name__)
