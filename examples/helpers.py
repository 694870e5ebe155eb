"""What the examples share: servers in processes of their own, and the account that is printed."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from maxq.errors import MaxQError
from maxq.runtime.files.system import SystemRng
from maxq.standalone import free_ports
from maxq.testing.server_process import ServerProcess

PATIENCE_SECONDS = 60.0  # how long an example waits for anything before it gives up


def say(title: str, text: str) -> None:
    """Print one line of the account."""
    print(f"{title:>10}  {text}", flush=True)


def progress(text: str) -> None:
    """Print a remark that the next line replaces; on a terminal only."""
    if sys.stdout.isatty():
        print(f"{'':>10}  {text} …", end="\r", flush=True)


def free_port(*offsets: int) -> int:
    """A port P of this machine such that P and P + each of `offsets` are free."""
    return free_ports(SystemRng(), "127.0.0.1", offsets)


def name_server(folder: Path, port: int) -> ServerProcess:
    """A name server, not yet started."""
    return ServerProcess("namesrv", folder, ["namesrv", "-p", str(port)])


def broker(name: str, folder: Path, namesrv: str, port: int, **settings: str) -> ServerProcess:
    """A broker of the group broker-a with its store in `folder`/`name`, not yet started.

    Args:
        name: of its store, configuration and log below `folder`.
        namesrv: host:port of the name server.
        settings: RocketMQ's properties, on top of those that every broker here has.
    """
    properties = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": namesrv,
        "storePathRootDir": str(folder / name),
        "slaveReadEnable": "true",
        **settings,
    }
    conf = folder / f"{name}.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return ServerProcess(name, folder, ["broker", "-c", str(conf)])


def run_example(example: Callable[[Path], None]) -> int:
    """Run `example` on a temporary folder; returns the exit code, 0 if all that it claims was true."""
    folder = Path(tempfile.mkdtemp(prefix="maxq-example-"))
    try:
        example(folder)
    except (MaxQError, OSError) as error:  # TimeoutError is an OSError
        print(f"maxq: {error or type(error).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0
