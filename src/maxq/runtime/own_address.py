"""Which address of this machine others see."""

import socket
from typing import Final

_ELSEWHERE: Final = ("192.0.2.1", 9)  # TEST-NET-1: nothing is sent there, the kernel only chooses an interface


def own_address(towards: tuple[str, int] = _ELSEWHERE) -> str:
    """Return the address of this machine that a peer at `towards` sees; 127.0.0.1 if there is no route to it, or no
    host can have its name."""
    host, port = towards
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))  # a datagram socket: nothing is sent
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError, TypeError):  # the last two from the codec of host names
        return "127.0.0.1"
