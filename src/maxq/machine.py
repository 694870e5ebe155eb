"""This machine, as servers and clients want to know it: clock, disk, chance, name, addresses.

Only main functions and what embeds (`maxq.api`, `maxq.standalone`, the command line) ask here; everything else gets it
passed in.
"""

import asyncio
import importlib
import os
import socket
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from maxq.auth.signature import Credentials
from maxq.errors import ConfigError, MaxQError
from maxq.runtime.home import home
from maxq.runtime.own_address import own_address
from maxq.runtime.system_clock import SystemClock, SystemRng

if TYPE_CHECKING:
    from maxq.client.client_config import ClientEnvironment
    from maxq.config.host import Host
    from maxq.runtime.interfaces import SmallFiles

#: Set for the tasks of a simulated machine (maxq.testing.simulated_cluster): returns what clients use of that machine.
simulated_environment: ContextVar["Callable[[], ClientEnvironment] | None"] = ContextVar(
    "maxq_simulated_environment", default=None
)


def system_environment(namesrv_addr: str = "") -> "ClientEnvironment":
    """Return what a client uses of its machine. With `namesrv_addr`, its address is the one that this machine uses
    towards it. In a simulation it is the simulated machine."""
    simulated = simulated_environment.get()
    if simulated is not None:
        return simulated()
    from maxq.client.client_config import ClientEnvironment  # imported here, because servers need no client

    return ClientEnvironment(
        clock=SystemClock(),
        rng=SystemRng(),
        disk=_small_files(),
        host_ip=_address_towards(namesrv_addr),
        pid=os.getpid(),
        home=home(),
        credentials=environment_credentials(),
        use_tls=os.environ.get("MAXQ_TLS", ""),
    )


def _small_files() -> "SmallFiles":
    if sys.platform == "win32":
        from maxq.runtime.files.plain_files import PlainFiles

        return PlainFiles()
    from maxq.runtime.files.system import SystemDisk

    return SystemDisk()


def raise_file_limit() -> None:
    """Raise this process's limit of open files to the machine's maximum: a mapped file takes two."""
    import resource  # not on Windows, where clients alone run

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def environment_credentials() -> Credentials | None:
    """Return the credentials in MAXQ_ACCESS_KEY and MAXQ_SECRET_KEY (and MAXQ_SECURITY_TOKEN); else those that mqadmin
    uses: $ROCKETMQ_HOME/conf/tools.yml.

    Raises:
        ConfigError: that file cannot be read; what stands in it is not told.
    """
    access_key, secret_key = os.environ.get("MAXQ_ACCESS_KEY", ""), os.environ.get("MAXQ_SECRET_KEY", "")
    if access_key and secret_key:
        return Credentials(access_key, secret_key, os.environ.get("MAXQ_SECURITY_TOKEN", ""))
    return tools_credentials()


def tools_credentials() -> Credentials | None:
    """Return the credentials that mqadmin uses, of $ROCKETMQ_HOME/conf/tools.yml; None if there are none.

    Raises:
        ConfigError: that file cannot be read; what stands in it is not told.
    """
    home = os.environ.get("ROCKETMQ_HOME")
    tools = Path(home) / "conf" / "tools.yml" if home else None
    return _read_tools(tools) if tools is not None and tools.is_file() else None


def _read_tools(path: Path) -> Credentials | None:
    # Imported here: few have such a file, and yaml would slow down the start of every command.
    yaml = importlib.import_module("yaml")
    try:
        value = yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)
    except (OSError, ValueError, yaml.YAMLError):
        raise ConfigError(f"{path}: not YAML, or not to be read; it holds accessKey and secretKey") from None
    if not isinstance(value, dict) or not value.get("accessKey") or not value.get("secretKey"):
        return None
    return Credentials(str(value["accessKey"]), str(value["secretKey"]))


def system_host() -> "Host":
    """Return the facts about this machine that a server's defaults depend on."""
    import resource

    # imported here: it loads the tables of a broker's settings, which clients do not need
    from maxq.config.host import Host

    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Host(
        socket.gethostname(), own_address(), home(), os.environ.get("ROCKETMQ_HOME", ""),
        0 if open_files == resource.RLIM_INFINITY else open_files,
    )  # fmt: skip


def _address_towards(namesrv_addr: str) -> str:
    host, _, port = namesrv_addr.split(";")[0].strip().rpartition(":")
    if not host or not port.isdigit():
        return "127.0.0.1"
    return own_address((host.strip("[]"), int(port)))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make uvloop's loop where it is installed, else asyncio's.

    Raises:
        MaxQError: called in a simulation, where nothing has a loop or thread of its own.
    """
    if simulated_environment.get() is not None:
        raise MaxQError(
            "blocking clients and servers need a thread, and a simulation has none: use the asynchronous ones "
            "(async_producer, async_push_consumer, … of maxq.api)"
        )
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
