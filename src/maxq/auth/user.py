"""User: a name, the secret its requests are signed with, and whether rules count for it.

Source:
    auth/authentication/model/User.java, enums/{UserType,UserStatus,SubjectType}.java.
"""

from dataclasses import field, replace
from enum import Enum
from typing import Final, Self

from maxq.lazy_dataclass import dataclass

SUBJECT_PREFIX: Final = "User:"


class UserType(Enum):
    """The type of a user. Every request of a SUPER user is allowed, whatever the policies say."""

    SUPER = "Super"
    NORMAL = "Normal"

    @classmethod
    def of(cls, name: str | None) -> Self | None:
        """Returns the member with this text, ignoring case; None if there is none."""
        return next((kind for kind in cls if kind.value.lower() == (name or "").lower()), None)


class UserStatus(Enum):
    """Status of a user. A disabled user is refused everything."""

    ENABLE = "enable"
    DISABLE = "disable"

    @classmethod
    def of(cls, name: str | None) -> Self | None:
        """Returns the member with this text, ignoring case; None if there is none."""
        return next((status for status in cls if status.value == (name or "").lower()), None)


@dataclass(frozen=True, slots=True)
class User:
    """One user; its name is the access key, its password the secret key."""

    username: str
    password: str = field(repr=False)
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.user_type is UserType.SUPER

    @property
    def is_disabled(self) -> bool:
        return self.user_status is UserStatus.DISABLE

    def changed(self, password: str | None, user_type: UserType | None, user_status: UserStatus | None) -> "User":
        """Returns a copy of the user with the given values replaced."""
        return replace(
            self,
            password=password or self.password,
            user_type=user_type or self.user_type,
            user_status=user_status or self.user_status,
        )


def subject_of(username: str) -> str:
    """Returns the name under which policies refer to a user."""
    return SUBJECT_PREFIX + username


def username_of(subject: str | None) -> str | None:
    """Return `x` for `User:x`; None if the text names no user."""
    kind, colon, name = (subject or "").partition(":")
    return name if colon and name and kind.lower() == "user" else None
