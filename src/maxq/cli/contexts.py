"""Contexts: named connections in one file of the user's, `$XDG_CONFIG_HOME/maxq/contexts.toml`.

    current = "prod"

    [contexts.prod]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    tls = "/etc/maxq/ca.pem"
    access_key = "alice"
    secret_key = "…"

`maxq context` writes it, with mode 0600; people may, too. A file that others can write, or that holds secrets and that
others can read, is refused, because it determines the server and the user of a command.
"""

import difflib
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from maxq.errors import ConfigError
from maxq.runtime.home import home

_MOST_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_RULE: Final = "give up to 64 letters, digits, '.', '_' and '-', beginning with a letter or a digit"
_HEAD: Final = "# Written by `maxq context`, which does not keep comments. It may hold secrets: mode 0600.\n"


@dataclass(frozen=True)
class Profile:
    """The connection of one context; an empty text says nothing. Names are those of the file."""

    namesrv: str = ""
    tls: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)

    @property
    def has_secrets(self) -> bool:
        return bool(self.secret_key or self.security_token)


_SETTINGS: Final = tuple(one.name for one in fields(Profile))


@dataclass
class Contexts:
    """The content of the file: contexts by name, and the one that is in use."""

    path: Path
    profiles: dict[str, Profile] = field(default_factory=dict)
    current: str = ""

    def profile(self, name: str, source: str = "") -> Profile:
        """Return a context by its name.

        Args:
            source: what named it, for the error; empty: the command line.

        Raises:
            ConfigError: there is none.
        """
        found = self.profiles.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self.profiles, n=1)
            known = f"there are {', '.join(sorted(self.profiles))}" if self.profiles else "it has none"
            remedy = f"did you mean {near[0]}?" if near else f"{known}; maxq context add makes one"
            place = f"{source}: file" if source else "file"
            raise ConfigError(f"{place} {self.path} has no context {name!r:.80}; {remedy}")
        return found

    def text(self) -> str:
        """Return the new text of the contexts file."""
        lines = [_HEAD]
        if self.current:
            lines.append(f"current = {_quoted(self.current)}\n")
        for name, profile in sorted(self.profiles.items()):
            lines.append(f"\n[contexts.{_quoted(name)}]\n")
            values = ((setting, getattr(profile, setting)) for setting in _SETTINGS)
            lines += [f"{setting} = {_quoted(value)}\n" for setting, value in values if value]
        return "".join(lines)


@contextmanager
def changed_contexts() -> Iterator[Contexts]:
    """Read the file, and write what the block makes of it; meanwhile no other process changes it. The file is its
    user's alone; where its name is a link, the file that it leads to is written. If the block raises an error, nothing
    is written.

    Raises:
        ConfigError: as `load_contexts`; it cannot be written, or not as something that can be read again.
    """
    from maxq.runtime.files.durable_files import DurableFiles  # few commands write it

    path = contexts_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"the folder {path.parent} cannot be made: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        contexts = load_contexts()
        yield contexts
        data = contexts.text().encode()
        _parsed(path, data)
        DurableFiles().replace(path.resolve(), data, private=True)
    except OSError as error:
        raise ConfigError(f"file {path} cannot be written: {error.strerror}") from None
    finally:
        os.close(folder)


def contexts_file() -> Path:
    """Return where the file is; as the XDG rules have it, a relative XDG_CONFIG_HOME does not count."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if os.path.isabs(folder) else home() / ".config") / "maxq" / "contexts.toml"


def checked_name(name: str) -> str:
    """Return the name, if a context may have it. Raises ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r:.80} is no name for a context: {_NAME_RULE}")
    return name


def load_contexts() -> Contexts:
    """Read the file; without one there are no contexts.

    Raises:
        ConfigError: it cannot be read, others may change it or read its secrets, or its content is wrong.
    """
    path = contexts_file()
    found = _read(path)
    if found is None:
        return Contexts(path)
    data, mode, owner = found
    if os.geteuid() not in (0, owner) and owner != 0:
        raise ConfigError(
            f"file {path} says where commands connect, and belongs to another user: let XDG_CONFIG_HOME name a folder "
            "of your own"
        )
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"file {path} says where commands connect, and others can write it: chmod 600 {path}")
    contexts = _parsed(path, data)
    has_secrets = any(profile.has_secrets for profile in contexts.profiles.values())
    if has_secrets and mode & (stat.S_IRGRP | stat.S_IROTH):
        raise ConfigError(f"file {path} holds secrets, and others can read it: chmod 600 {path}")
    return contexts


def _parsed(path: Path, data: bytes) -> Contexts:
    import tomllib  # few have such a file

    try:
        table = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, nested without end
        raise ConfigError(f"file {path} is not TOML: {error}; correct it, or remove it") from None
    return Contexts(path, _profiles(path, table), _current(path, table))


def _read(path: Path) -> tuple[bytes, int, int] | None:
    """Return content, mode and owner of the file; None if it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"file {path} cannot be read: {error.strerror}; correct that, or remove it") from None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise ConfigError(f"{path} is no ordinary file: move it away")
        data = os.read(descriptor, _MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"file {path} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"file {path} is larger than {_MOST_BYTES >> 20} MiB, so it holds no contexts: move it away")
    return data, facts.st_mode, facts.st_uid


def _current(path: Path, table: Mapping[str, Any]) -> str:
    current = table.get("current", "")
    if not isinstance(current, str):
        raise ConfigError(f"file {path}: current must be the name of a context as a text; maxq context use sets it")
    return current


def _profiles(path: Path, table: Mapping[str, Any]) -> dict[str, Profile]:
    _refuse_unknown(f"file {path}", table, ("current", "contexts"))
    contexts = table.get("contexts", {})
    if not isinstance(contexts, dict):
        raise ConfigError(f"file {path}: contexts must be tables, each [contexts.NAME]")
    found = {}
    for name, values in contexts.items():
        where = f"file {path}, context {name!r:.80}"
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{where}: this is no name for a context: {_NAME_RULE}")
        if not isinstance(values, dict):
            raise ConfigError(f"{where}: it must be a table, [contexts.{name}]")
        _refuse_unknown(where, values, _SETTINGS)
        for setting, value in values.items():
            if not isinstance(value, str) or not value.isprintable():
                raise ConfigError(f"{where}: {setting} must be a text of one line, in quotes")
        profile = Profile(**values)
        if not profile.namesrv:
            raise ConfigError(f'{where}: namesrv is missing; add namesrv = "host:9876"')
        if bool(profile.access_key) != bool(profile.secret_key):
            raise ConfigError(f"{where}: access_key and secret_key are given together or not at all")
        found[name] = profile
    return found


def _refuse_unknown(where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"{where}: {name!r:.60} is unknown; {remedy}")


def _quoted(text: str) -> str:
    """Return a printable text as a basic string of TOML, which JSON's strings are."""
    return json.dumps(text, ensure_ascii=False)
