"""This machine, as servers and clients want to know it: clock, disk, chance, name, addresses.

Only main functions and what embeds (`maxq.api`, `maxq.standalone`, the command line) ask here; everything else gets it
passed in.
"""

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from maxq.client.client_config import ClientSeams
from maxq.runtime.system import SystemClock, SystemDisk, SystemRng

if TYPE_CHECKING:
    from maxq.config.host import Host

_ELSEWHERE = ("192.0.2.1", 9)  # TEST-NET-1: nothing is sent there, the kernel only chooses an interface


def system_seams(namesrv_addr: str = "") -> ClientSeams:
    """The real outside world of a client. With `namesrv_addr`, its address is the one this machine uses towards it."""
    return ClientSeams(
        clock=SystemClock(),
        rng=SystemRng(),
        disk=SystemDisk(),
        host_ip=_address_towards(namesrv_addr),
        pid=os.getpid(),
        home=Path.home(),
    )


def system_host() -> "Host":
    """What a server's defaults depend on."""
    from maxq.config.host import Host  # brings the tables of a broker's settings, which clients do not need

    return Host(socket.gethostname(), own_address(_ELSEWHERE), Path.home())


def own_address(towards: tuple[str, int]) -> str:
    """The address of this machine that a peer at `towards` sees; 127.0.0.1 if there is no way there."""
    host, port = towards
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))  # a datagram socket: nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _address_towards(namesrv_addr: str) -> str:
    host, _, port = namesrv_addr.split(";")[0].strip().rpartition(":")
    if not host or not port.isdigit():
        return "127.0.0.1"
    return own_address((host.strip("[]"), int(port)))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
