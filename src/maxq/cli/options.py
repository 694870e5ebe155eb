"""Small things that several commands read from their options."""

import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final

import typer

from maxq.errors import ConfigError, LocalProtocolError
from maxq.remoting.client import split_address

DEFAULT_NAMESRV_PORT: Final = 9876
DEFAULT_BROKER_PORT: Final = 10911
DEFAULT_NAMESRV: Final = f"127.0.0.1:{DEFAULT_NAMESRV_PORT}"


def split_assignments(pairs: Iterable[str], *, option: str = "--set") -> dict[str, str]:
    """Parse `key=value` texts, as --set and others take them, into a mapping.

    Raises:
        ConfigError: one has no '=' or no key.
    """
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {pair!r:.24} is not KEY=VALUE")  # shortened, because a secret may follow
        found[key.strip()] = value.strip()
    return found


def finite(number: float | None) -> float | None:
    """Return a number that an option was given. Used as a callback, because `nan` and `inf` are numbers, too.

    Raises:
        typer.BadParameter: it is one of these.
    """
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


# --- addresses ---


def server_address(text: str | None) -> str | None:
    """Return the address of a broker; one without a port gets the usual one. Used as a callback.

    Raises:
        typer.BadParameter: it is not a host or host:port.
    """
    # what an empty value means is decided by the command
    return _with_port(text, DEFAULT_BROKER_PORT) if text else text


def name_servers(text: str | None) -> str | None:
    """Return the addresses of name servers; one without a port gets the usual one. Used as a callback.

    Raises:
        typer.BadParameter: there is none, or one is not a host or host:port.
    """
    if text is None:
        return None
    addresses = [part.strip().removeprefix("http://") for part in text.split(";") if part.strip()]
    if not addresses:
        raise typer.BadParameter(f"{text!r} names no name server: give host:port, several separated by ';'")
    return ";".join(_with_port(address, DEFAULT_NAMESRV_PORT) for address in addresses)


def other_server_address(text: str | None) -> str | None:
    """Return the address of a server that has no usual port. Used as a callback.

    Raises:
        typer.BadParameter: it is not host:port.
    """
    return _with_port(text, None) if text else text


def other_server_addresses(text: str) -> str:
    """Return the addresses of servers that have no usual port, separated by ';'.

    Raises:
        typer.BadParameter: there is none, or one is not host:port.
    """
    addresses = [part.strip() for part in text.split(";") if part.strip()]
    if not addresses:
        raise typer.BadParameter(f"{text!r} names no server: give host:port, several separated by ';'")
    return ";".join(_with_port(address, None) for address in addresses)


def _with_port(address: str, port: int | None) -> str:
    """Return the address with `port`, if it has none itself.

    Raises:
        typer.BadParameter: it is not an address, or it has no port and there is no usual one.
    """
    if any(letter.isspace() or not letter.isprintable() for letter in address):
        raise typer.BadParameter(f"an address is host:port, not {address!r:.100}")
    is_ipv6 = address.startswith("[")
    host = address[: address.find("]") + 1] if is_ipv6 else address.partition(":")[0]
    if not is_ipv6 and address.count(":") > 1:
        raise typer.BadParameter(f"{address!r:.100}: an IPv6 address is put in brackets, [::1] or [::1]:{port or 9876}")
    if host == address and port is not None and host not in ("", "[]"):
        return f"{address}:{port}"
    try:
        split_address(address)
    except LocalProtocolError as error:
        raise typer.BadParameter(str(error)) from None
    if not host or not address[len(host) :].startswith(":"):  # refuses [::1]x:1
        raise typer.BadParameter(f"an address is host:port, not {address!r:.100}")
    return address


# --- files ---


def opened_input(file: Path) -> AbstractContextManager[BinaryIO]:
    """Open a file to read bytes; `-` is standard input, which stays open.

    Raises:
        ConfigError: it cannot be read.
    """
    if str(file) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        raise ConfigError(f"file {file} can not be read: {error.strerror}") from None


@contextmanager
def opened_output(file: Path) -> Iterator[BinaryIO]:
    """Open a file to write bytes; `-` is standard output, which stays open. An existing file is replaced at the end of
    the block, and stays unchanged if the block raises an error.

    Raises:
        ConfigError: it cannot be written.
    """
    if str(file) == "-":
        yield sys.stdout.buffer
        return
    from maxq.runtime.files.durable_files import DurableFiles  # few commands write files

    is_replaced = file.is_file() or not file.exists()  # others, such as pipes, are written as they are
    with ExitStack() as opened:
        try:
            out = opened.enter_context(DurableFiles().replaced(file.resolve()) if is_replaced else file.open("wb"))
        except OSError as error:
            raise ConfigError(f"file {file} can not be written: {error.strerror}") from None
        yield out


# --- folders ---


def folder(text: str | Path) -> Path:
    """Parse a folder that has a name. An empty text, for example of a variable that is not set, would be the current
    folder.

    Raises:
        typer.BadParameter: it has none.
    """
    if not str(text).strip():
        raise typer.BadParameter(f"{str(text)!r} names no folder; '.' is the current one")
    return Path(text)
