"""Small things that several commands read from their options."""

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO, Final, cast

import typer

from maxq.errors import ConfigError, LocalProtocolError
from maxq.remoting.client import split_address

DEFAULT_NAMESRV: Final = "127.0.0.1:9876"


def split_assignments(pairs: Iterable[str], *, option: str = "--set") -> dict[str, str]:
    """Parse `key=value` texts, as --set and others take them, into a mapping.

    Raises:
        ConfigError: one has no '=' or no key.
    """
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {pair!r:.24} is not KEY=VALUE")  # a secret may stand further behind
        found[key.strip()] = value.strip()
    return found


def server_address(text: str | None) -> str | None:
    """Return the text if it is an address. Used as a callback.

    Raises:
        typer.BadParameter: it is no host:port.
    """
    if text:  # what an empty text means, commands know
        try:
            split_address(text)
        except LocalProtocolError as error:
            raise typer.BadParameter(str(error)) from None
    return text


def name_servers(text: str | None) -> str | None:
    """Return the addresses of name servers; one without a port gets the usual one. Used as a callback.

    Raises:
        typer.BadParameter: there is none, or one is no host:port.
    """
    if text is None:
        return None
    addresses = [_with_port(part.strip().removeprefix("http://")) for part in text.split(";") if part.strip()]
    if not addresses:
        raise typer.BadParameter(f"{text!r} names no name server: give host:port, several separated by ';'")
    for address in addresses:
        server_address(address)
    return ";".join(addresses)


def _with_port(address: str) -> str:
    is_without = ":" not in address or (address.startswith("[") and address.endswith("]"))
    return f"{address}:{DEFAULT_NAMESRV.rpartition(':')[2]}" if is_without else address


Namesrv = Annotated[
    str,
    typer.Option(
        "-n",
        "--namesrvAddr",
        envvar="NAMESRV_ADDR",
        callback=name_servers,
        help="Name servers, host:port separated by ';'; without a port 9876.",
    ),
]


OptionalNamesrv = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrvAddr",
        callback=name_servers,
        help=f"Name servers, host:port separated by ';'. Without --store, else NAMESRV_ADDR, else {DEFAULT_NAMESRV}.",
    ),
]


def usual_name_servers() -> str:
    """Return the default name servers for commands."""
    return os.environ.get("NAMESRV_ADDR") or DEFAULT_NAMESRV


def opened_input(file: Path) -> AbstractContextManager[BinaryIO]:
    """Open a file to read bytes; `-` is standard input, which stays open.

    Raises:
        ConfigError: it cannot be read.
    """
    return _opened(file, "rb", "read", sys.stdin.buffer)


def opened_output(file: Path) -> AbstractContextManager[BinaryIO]:
    """Open a new file to write bytes; `-` is standard output, which stays open.

    Raises:
        ConfigError: it cannot be written.
    """
    return _opened(file, "wb", "written", sys.stdout.buffer)


def _opened(file: Path, mode: str, done: str, standard: BinaryIO) -> AbstractContextManager[BinaryIO]:
    if str(file) == "-":
        return nullcontext(standard)
    try:
        return cast(BinaryIO, open(file, mode))
    except OSError as error:
        raise ConfigError(f"file {file} can not be {done}: {error.strerror}") from None


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
