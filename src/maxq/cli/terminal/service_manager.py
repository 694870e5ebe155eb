"""Tell systemd, or another service manager that speaks sd_notify(3), when a server is ready and when it ends."""

import logging
import os
import socket
from typing import Final

_SOCKET: Final = "NOTIFY_SOCKET"

log = logging.getLogger(__name__)


def has_service_manager() -> bool:
    """Whether somebody waits to be told (`Type=notify` of a unit)."""
    return bool(os.environ.get(_SOCKET))


def tell_service_manager(state: str) -> None:
    """Send a state, such as `READY=1`. If nobody listens there, that is logged, and the server goes on."""
    address = os.environ.get(_SOCKET)
    if not address:
        return
    if address.startswith("@"):  # an abstract socket of Linux
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to_manager:
            to_manager.sendto(state.encode(), address)
    except OSError as error:
        log.warning("the service manager at %s=%s could not be told %s: %s", _SOCKET, address, state, error)


def without_service_manager() -> dict[str, str]:
    """Return the environment for a process of our own, which must not answer for this one."""
    return {name: value for name, value in os.environ.items() if name != _SOCKET}
