"""Quota: bytes and messages per second of one topic, group or user."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from maxq.broker.tables.attributes import QUOTA_BYTES, QUOTA_MESSAGES
from maxq.runtime.refusals import Cause, explain

# A token bucket that may be overdrawn: what is measured afterwards (a batch, an answer) is charged in full, and the
# debt is waited off. So the average rate is exact, and a burst is at most a second's worth and one batch.

_BURST_MS: Final = 1000


class Bucket:
    """A token bucket that allows `rate` per second."""

    __slots__ = ("_at_ms", "_level", "rate")

    def __init__(self, rate: int, now_ms: int) -> None:
        self.rate = rate
        self._level = float(rate)
        self._at_ms = now_ms

    def take(self, amount: int, now_ms: int) -> None:
        """Charge `amount` tokens, even if there are not as many: the level may fall below zero."""
        self._refill(now_ms)
        self._level -= amount

    def wait_ms(self, now_ms: int) -> int:
        """Returns the milliseconds until more tokens may be taken; 0 if they may be taken at once."""
        self._refill(now_ms)
        if self._level > 0:
            return 0
        return int(-self._level * 1000 / self.rate) + 1

    def used(self, now_ms: int) -> int:
        """Returns the share of one second's rate that is used."""
        self._refill(now_ms)
        return round(self.rate - self._level)

    def _refill(self, now_ms: int) -> None:
        passed_ms = now_ms - self._at_ms
        if passed_ms > 0:
            self._level = min(self.rate * _BURST_MS / 1000, self._level + self.rate * passed_ms / 1000)
            self._at_ms = now_ms


class RateLimits(NamedTuple):
    """Limits of messages and bytes per second; 0 means that there is no limit."""

    size: int = 0
    messages: int = 0

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, str]) -> "RateLimits":
        """Read the limits of a topic or group. The attributes were verified when they were set; invalid values in a
        file count as no limit."""
        return cls(_number(attributes.get(QUOTA_BYTES)), _number(attributes.get(QUOTA_MESSAGES)))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0


class Quota:
    """The use of one quota.

    Attributes:
        charged_messages, charged_bytes: since it was set.
    """

    def __init__(self, what: str, limits: RateLimits, source: str, now_ms: int) -> None:
        """
        Args:
            what: whose it is, such as `topic orders`.
            source: where the limits are set, with `%s` for bytes or messages.
        """
        self.what = what
        self.limits = limits
        self.charged_messages = 0
        self.charged_bytes = 0
        self._source = source
        self._bytes = Bucket(limits.size, now_ms) if limits.size else None
        self._messages = Bucket(limits.messages, now_ms) if limits.messages else None

    def charge(self, messages: int, size: int, now_ms: int) -> None:
        """Charge messages and bytes that were sent or delivered."""
        self.charged_messages += messages
        self.charged_bytes += size
        if self._bytes is not None:
            self._bytes.take(size, now_ms)
        if self._messages is not None:
            self._messages.take(messages, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Returns the milliseconds until the quota allows another message; 0 if it allows one at once."""
        by_bytes = 0 if self._bytes is None else self._bytes.wait_ms(now_ms)
        by_messages = 0 if self._messages is None else self._messages.wait_ms(now_ms)
        return max(by_bytes, by_messages)

    def remark(self, now_ms: int) -> str:
        """Returns the remark of a refusal by this quota."""
        name, bucket = "messages", self._messages
        if self._bytes is not None and (bucket is None or self._bytes.wait_ms(now_ms) >= bucket.wait_ms(now_ms)):
            name, bucket = "bytes", self._bytes
        assert bucket is not None, "a quota without limits is none"
        return explain(
            Cause.QUOTA,
            f"system busy, start flow control for a while: {self.what} is {bucket.used(now_ms) - bucket.rate} {name} "
            f"above its quota",
            limit=f"{bucket.rate} {name} a second ({self._source % name})",
            remedy=f"try again in {self.wait_ms(now_ms)} ms, or have the quota raised",
        )


def parse_user_quotas(text: str) -> dict[str, RateLimits]:
    """Parse `alice:bytes=1048576,messages=1000;bob:messages=10` into limits by user. Raises ValueError with what is
    wrong."""
    found: dict[str, RateLimits] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        user, colon, limits = part.rpartition(":")
        if not colon or not user:
            raise ValueError(f"{part!r} is not of the form user:bytes=N,messages=N")
        values = {}
        for limit in limits.split(","):
            name, _, number = limit.strip().partition("=")
            if name not in ("bytes", "messages") or not (number.isascii() and number.isdigit()) or name in values:
                raise ValueError(f"{limit!r} of {user} is not bytes=N or messages=N, once")
            values[name] = int(number)
        found[user] = RateLimits(values.get("bytes", 0), values.get("messages", 0))
    return found
