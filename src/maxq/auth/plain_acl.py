"""ACL 1.0: accounts with permissions for topics and groups, from plain_acl.yml and the files in conf/acl.

    globalWhiteRemoteAddresses: [10.10.103.*]
    accounts:
      - accessKey: RocketMQ
        secretKey: 12345678
        whiteRemoteAddress: ""
        admin: false
        defaultTopicPerm: DENY
        defaultGroupPerm: SUB
        topicPerms: [topicA=DENY, topicB=PUB|SUB]
        groupPerms: [groupA=DENY]

An access key counts where it is found first.

Source:
    acl/plain/PlainPermissionManager.java, acl/common/Permission.java, common/PlainAccessConfig.java (4.9.8 and 5.2.0).
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import IntFlag
from typing import Any, Final

from maxq.auth.address_pattern import AddressPattern, address_pattern
from maxq.errors import ConfigError
from maxq.lazy_dataclass import dataclass

_SHORTEST: Final = 7  # fewest characters of an access key or a secret


class Permission(IntFlag):
    """The actions that an account may perform on a topic or group. DENY is stronger than anything beside it."""

    DENY = 1
    PUB = 4
    SUB = 8

    @classmethod
    def parse(cls, text: str | None) -> "Permission":
        """Parse PUB, SUB, PUB|SUB, SUB|PUB; anything else is DENY, as in Java, except ANY, which is both."""
        return _PERMISSIONS.get((text or "").strip(), cls.DENY)

    def allows(self, needed: "Permission") -> bool:
        """Return whether one of the needed permissions is there, and no DENY."""
        return not self & Permission.DENY and bool(self & needed)


_BOTH: Final = Permission.PUB | Permission.SUB
_PERMISSIONS: Final = {
    "PUB": Permission.PUB, "SUB": Permission.SUB, "PUB|SUB": _BOTH, "SUB|PUB": _BOTH, "ANY": _BOTH,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """One account of ACL 1.0: its keys, the addresses from which it may be used, and its permissions."""

    access_key: str
    secret_key: str = field(repr=False)
    is_white: AddressPattern = field(repr=False)
    admin: bool = False
    default_topic_perm: Permission = Permission.DENY
    default_group_perm: Permission = Permission.DENY
    topic_perms: Mapping[str, Permission] = field(default_factory=dict)
    group_perms: Mapping[str, Permission] = field(default_factory=dict)

    def topic_permission(self, name: str) -> Permission:
        """Returns the permission for this topic, or the default."""
        return self.topic_perms.get(name, self.default_topic_perm)

    def group_permission(self, name: str) -> Permission:
        """Returns the permission for this group, or the default."""
        return self.group_perms.get(name, self.default_group_perm)


@dataclass(frozen=True, slots=True)
class PlainAcl:
    """The accounts of all ACL 1.0 files together."""

    accounts: Mapping[str, PlainAccount] = field(default_factory=dict)
    white: tuple[AddressPattern, ...] = ()

    def is_white(self, address: str) -> bool:
        """Return whether the global white list names the address."""
        return any(pattern(address) for pattern in self.white)


def read_plain_acl(files: Iterable[tuple[str, Any]]) -> tuple[PlainAcl, list[str]]:
    """Read the rules of several files; returns them and warnings.

    Args:
        files: name and content of each, the content as a tree of mappings, lists and texts.

    Raises:
        ConfigError: names the file and what is wrong with it. Secrets are not told.
    """
    accounts: dict[str, PlainAccount] = {}
    white: list[AddressPattern] = []
    warnings = []
    for name, tree in files:
        if tree is None:
            continue
        if not isinstance(tree, dict):
            raise ConfigError(f"{name}: the file is a mapping with globalWhiteRemoteAddresses and accounts")
        try:
            white += [address_pattern(text) for text in _texts(tree, "globalWhiteRemoteAddresses")]
            for account in map(read_account, _list(tree, "accounts")):
                if account.access_key in accounts:
                    warnings.append(f"{name}: access key {account.access_key} stands in two places, the first counts")
                else:
                    accounts[account.access_key] = account
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
    return PlainAcl(accounts, tuple(white)), warnings


def read_account(tree: Any) -> PlainAccount:
    """Read one account of a file.

    Raises:
        ConfigError: what is wrong with it.
    """
    if not isinstance(tree, dict):
        raise ConfigError("an account is a mapping with accessKey and secretKey")
    access_key, secret_key = _text(tree, "accessKey"), _text(tree, "secretKey")
    if len(access_key) < _SHORTEST or len(secret_key) < _SHORTEST:
        raise ConfigError(
            f"the accessKey={access_key} and its secretKey cannot be null and length should longer than 6"
        )
    return PlainAccount(
        access_key,
        secret_key,
        address_pattern(_text(tree, "whiteRemoteAddress")),
        _text(tree, "admin").lower() == "true",
        Permission.parse(_text(tree, "defaultTopicPerm")),
        Permission.parse(_text(tree, "defaultGroupPerm")),
        _permissions(tree, "topicPerms"),
        _permissions(tree, "groupPerms"),
    )


def check_permissions(lines: Iterable[str]) -> None:
    """Check that `name=PERM` lines of a request are valid in a file of ACL 1.0.

    Raises:
        ConfigError: names the line.
    """
    for line in lines:
        _, permission = _split(line)
        if permission != "DENY" and permission not in _PERMISSIONS:
            raise ConfigError(
                f"Parse resource permission error for {line}. The expected permissions are 'SUB' or 'PUB' or "
                "'SUB|PUB' or 'PUB|SUB'."
            )


def _permissions(tree: Mapping[str, Any], name: str) -> dict[str, Permission]:
    return {resource: Permission.parse(text) for resource, text in map(_split, _texts(tree, name))}


def _split(line: str) -> tuple[str, str]:
    parts = [part.strip() for part in line.split("=") if part.strip()]
    if len(parts) != 2:
        raise ConfigError(f"Parse Resource format error for {line!r:.100}. The expected resource format is 'Res=Perm'.")
    return parts[0], parts[1]


def _text(tree: Mapping[str, Any], name: str) -> str:
    value = tree.get(name)
    if value is None:
        return ""
    if isinstance(value, str | int | bool | float):
        return str(value)
    raise ConfigError(f"{name} is a text")


def _list(tree: Mapping[str, Any], name: str) -> list[Any]:
    value = tree.get(name)
    if value in (None, ""):
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{name} is a list")
    return value


def _texts(tree: Mapping[str, Any], name: str) -> list[str]:
    values = _list(tree, name)
    if not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{name} is a list of texts")
    return values
