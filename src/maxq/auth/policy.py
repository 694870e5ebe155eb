"""Policies: what a subject may do with which resources, from where.

The rule of RocketMQ 5.5: entries of the custom policy that match come first, those of the default policy only if none
did. Of several the one with the narrowest resource decides: literal before the longest prefix before any name of the
type before anything at all; of two equally narrow ones a Deny decides. No entry: refused.

Source:
    auth/authorization/{model/*,chain/AclAuthorizationHandler,manager/AuthorizationMetadataManagerImpl}.java.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Self

from maxq.auth.resource import Resource, ResourcePattern, ResourceType
from maxq.lazy_dataclass import dataclass


class Action(Enum):
    """An action on a topic, a consumer group or a cluster."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"

    @classmethod
    def of(cls, name: str) -> Self | None:
        """Returns the member with this text, ignoring case; None if there is none."""
        return next((action for action in cls if action.value.lower() == name.strip().lower()), None)


class Decision(Enum):
    """The decision of a policy entry that matches a request: allow or deny."""

    ALLOW = "Allow"
    DENY = "Deny"

    @classmethod
    def of(cls, name: str | None) -> Self | None:
        """Returns the member with this text, ignoring case; None if there is none."""
        return next((decision for decision in cls if decision.value.lower() == (name or "").strip().lower()), None)


class PolicyType(Enum):
    """The kind of a policy. CUSTOM entries are examined before DEFAULT ones."""

    CUSTOM = "Custom"
    DEFAULT = "Default"

    @classmethod
    def of(cls, name: str | None) -> Self | None:
        """Returns the member with this text, ignoring case; None if there is none."""
        return next((kind for kind in cls if kind.value.lower() == (name or "").strip().lower()), None)


@dataclass(frozen=True, slots=True)
class Need:
    """A need of a request: any one of `actions` on `resource`, which is literal."""

    resource: Resource
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One rule. No source addresses: from everywhere."""

    resource: Resource
    actions: tuple[Action, ...]
    decision: Decision
    source_ips: tuple[str, ...] = ()

    def matches(self, need: Need, source_ip: str) -> bool:
        """Return whether the entry concerns this need from this address."""
        return (
            self.resource.matches(need.resource)
            and (Action.ALL in self.actions or any(action in self.actions for action in need.actions))
            and (not self.source_ips or any(is_in_range(source_ip, wanted) for wanted in self.source_ips))
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """The entries of one policy type; no two have the same resource."""

    policy_type: PolicyType = PolicyType.CUSTOM
    entries: tuple[PolicyEntry, ...] = ()

    def updated(self, newer: Iterable[PolicyEntry]) -> "Policy":
        """Returns a copy in which these entries replace those for the same resources."""
        table = {entry.resource: entry for entry in self.entries}
        table.update((entry.resource, entry) for entry in newer)
        return replace(self, entries=tuple(table.values()))

    def without(self, resource: Resource) -> "Policy":
        """Returns a copy without the entry for exactly this resource."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.resource != resource))


@dataclass(frozen=True, slots=True)
class Acl:
    """All policies of one subject (a user), as ACL 2.0 has them."""

    subject: str
    policies: tuple[Policy, ...] = field(default=())

    def policy(self, policy_type: PolicyType) -> Policy | None:
        """Return the policy of a type (custom or default); None if the subject has none."""
        return next((policy for policy in self.policies if policy.policy_type is policy_type), None)

    def updated(self, newer: Sequence[Policy]) -> "Acl":
        """Returns a copy with the entries of these policies added; they replace those for the same resources."""
        table = {policy.policy_type: policy for policy in self.policies}
        for policy in newer:
            old = table.get(policy.policy_type, Policy(policy.policy_type))
            table[policy.policy_type] = old.updated(policy.entries)
        return replace(self, policies=tuple(table.values()))

    def without(self, policy_type: PolicyType, resource: Resource) -> "Acl":
        """Returns a copy without the entry for this resource; a policy that loses its last entry is removed."""
        left = (p.without(resource) if p.policy_type is policy_type else p for p in self.policies)
        return replace(self, policies=tuple(policy for policy in left if policy.entries))

    def refusal(self, need: Need, source_ip: str) -> str | None:
        """Return why the policies do not allow it, in Java's words; None if they do."""
        for policy_type in PolicyType:
            policy = self.policy(policy_type)
            found = [entry for entry in policy.entries if entry.matches(need, source_ip)] if policy else []
            if found:
                decides = min(found, key=_narrowness)
                return None if decides.decision is Decision.ALLOW else "the decision is deny."
        return "no matched policies."


def _narrowness(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    """Return a sort key by which the entry that decides comes first."""
    resource = entry.resource
    order = (ResourcePattern.LITERAL, ResourcePattern.PREFIXED, ResourcePattern.ANY).index(resource.pattern)
    longer_first = -len(resource.name) if resource.pattern is ResourcePattern.PREFIXED else 0
    return (resource.type is ResourceType.ANY, order, longer_first, entry.decision is Decision.ALLOW)


def is_in_range(address: str, wanted: str) -> bool:
    """Return whether the address equals the wanted one, in any spelling, or lies in the wanted network (`10.0.0.0/8`).
    False for a text that is not an address. An IPv4 address within IPv6 (`::ffff:10.0.0.1`) counts as that IPv4
    address."""
    try:
        peer = ipaddress.ip_address(address)
        plain = getattr(peer, "ipv4_mapped", None) or peer
        return plain in ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        return False


def is_address_or_network(text: str) -> bool:
    """Return whether the text is valid in `sourceIps`."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def problem_with(policies: Sequence[Policy]) -> str | None:
    """Return the fault of policies that a request wants to store, in Java's words; None if they are valid."""
    if not policies:
        return "The policies is empty."
    for policy in policies:
        if not policy.entries:
            return "The policy entries is empty."
        for entry in policy.entries:
            if not entry.actions:
                return "The actions is empty."
            if Action.ANY in entry.actions:
                return "The actions can not be Any."
            for source_ip in entry.source_ips:
                if not source_ip.strip():
                    return "The source ip is empty."
                if not is_address_or_network(source_ip):
                    return f"The source ip is invalid: {source_ip!r:.60} is neither an address nor a network."
    return None
