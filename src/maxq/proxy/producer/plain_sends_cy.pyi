"""Written by `python -m tests.unit.compiled_stubs`; see plain_sends_cy.py."""

from collections.abc import Callable
from typing import Any, Protocol

from maxq.config.proxy_config import ProxyConfig
from maxq.protocol.frame.frame_scanner_cy import AnswerScanner
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.proxy.brokers import Brokers
from maxq.proxy.clients import Clients
from maxq.remoting.connection import Connection
from maxq.remoting.grpc.calls import Call

class Asking(Protocol):
    """The asking end of connections to brokers, as far as sends use it."""

    batch_path: Any

    def next_opaque(self) -> int: ...

class PlainSend:
    call: Call
    broker_name: str
    def __init__(self, call: Call, broker_name: str, message_id: bytes, sends: PlainSends) -> None: ...
    @property
    def message_id(self) -> str: ...

class PlainSends:
    general: Callable[[PlainSend, RemotingCommand | None], None]
    taken: int
    def __init__(
        self,
        brokers: Brokers,
        config: Callable[[], ProxyConfig],
        clients: Clients,
        legal: Callable[[str], bool],
        general: Callable[[PlainSend, RemotingCommand | None], None],
    ) -> None: ...
    def use(self, asking: Asking) -> None: ...
    def take(self, call: Call, message: bytes) -> bool: ...
    def flush(self) -> None: ...

class PlainSendAnswers(AnswerScanner):
    def __init__(self) -> None: ...
    def take(self, connection: Connection, buffer: bytearray | memoryview, start: int, end: int) -> int: ...

def is_compiled() -> bool: ...
