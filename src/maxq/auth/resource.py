"""Resource: a topic, a group or a cluster by name, by the beginning of its name, or any.

As text: `Topic:orders`, `Group:billing*`, `Cluster:*`, `*`.

Source:
    auth/authorization/model/Resource.java, common/resource/{ResourceType,ResourcePattern}.java.
"""

from enum import IntEnum
from typing import Final, NamedTuple, Self

RETRY_PREFIX: Final = "%RETRY%"


class ResourceType(IntEnum):
    """The kind of a resource; the numbers are Java's codes."""

    UNKNOWN = 0
    ANY = 1
    CLUSTER = 2
    NAMESPACE = 3
    TOPIC = 4
    GROUP = 5


class ResourcePattern(IntEnum):
    """How the name of a resource in a rule is compared with the name in a request."""

    ANY = 1
    LITERAL = 2
    PREFIXED = 3


_NAMES: Final = {
    ResourceType.UNKNOWN: "Unknown",
    ResourceType.ANY: "Any",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.NAMESPACE: "Namespace",
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
}
_TYPES: Final = {name.lower(): kind for kind, name in _NAMES.items()}


class Resource(NamedTuple):
    """A requested resource, which is always literal, or the pattern of a policy."""

    type: ResourceType
    name: str  # empty for ANY patterns
    pattern: ResourcePattern = ResourcePattern.LITERAL

    @classmethod
    def parse(cls, key: str) -> Self | None:
        """Returns the resource of a text; None if the text is empty or has no known type before the colon."""
        key = key.strip()
        if key == "*":
            return cls(ResourceType.ANY, "", ResourcePattern.ANY)
        kind, colon, name = key.partition(":")
        found = _TYPES.get(kind.strip().lower())
        if found is None or not colon:
            return None
        if name == "*":
            return cls(found, "", ResourcePattern.ANY)
        if name.endswith("*"):
            return cls(found, name.partition("*")[0], ResourcePattern.PREFIXED)
        return cls(found, name)

    @property
    def key(self) -> str:
        """Return the resource as policies write it, such as `Topic:orders`."""
        if self.type is ResourceType.ANY:
            return "*"
        name = {ResourcePattern.ANY: "*", ResourcePattern.PREFIXED: f"{self.name}*"}.get(self.pattern, self.name)
        return f"{_NAMES[self.type]}:{name}"

    def matches(self, asked: "Resource") -> bool:
        """Return whether this pattern covers the requested resource."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not asked.type:
            return False
        if self.pattern is ResourcePattern.ANY:
            return True
        if self.pattern is ResourcePattern.LITERAL:
            return asked.name == self.name
        return asked.name.startswith(self.name)


def topic(name: str) -> Resource:
    """Make the resource of a topic, of any name."""
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """Make the resource of a consumer group, also from the name of its retry topic."""
    return Resource(ResourceType.GROUP, group_of_retry_topic(name) if is_retry_topic(name) else name)


def cluster(name: str) -> Resource:
    """Make the resource of a cluster: everything that its servers hold."""
    return Resource(ResourceType.CLUSTER, name)


def is_retry_topic(name: str | None) -> bool:
    """Whether it is the retry topic of a group."""
    return name is not None and name.startswith(RETRY_PREFIX)


def group_of_retry_topic(name: str) -> str:
    """Return the consumer group of a retry topic: `g` for `%RETRY%g`."""
    return name.removeprefix(RETRY_PREFIX)
