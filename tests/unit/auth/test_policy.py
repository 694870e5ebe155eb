"""Resources, policies, and which entry decides."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.auth.policy import Acl, Action, Decision, Need, Policy, PolicyEntry, PolicyType, is_in_range, problem_with
from maxq.auth.resource import Resource, ResourcePattern, ResourceType, group, topic

ALLOW, DENY = Decision.ALLOW, Decision.DENY
CUSTOM, DEFAULT = PolicyType.CUSTOM, PolicyType.DEFAULT


def entry(resource: str, decision: Decision, *actions: Action, ips: tuple[str, ...] = ()) -> PolicyEntry:
    found = Resource.parse(resource)
    assert found is not None
    return PolicyEntry(found, actions or (Action.ALL,), decision, ips)


def acl(*entries: PolicyEntry, default: tuple[PolicyEntry, ...] = ()) -> Acl:
    return Acl("User:u", (Policy(CUSTOM, entries), Policy(DEFAULT, default)))


def allows(rules: Acl, resource: Resource, action: Action = Action.PUB, ip: str = "10.0.0.1") -> bool:
    return rules.refusal(Need(resource, (action,)), ip) is None


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("Topic:a", Resource(ResourceType.TOPIC, "a")),
        ("topic:a*", Resource(ResourceType.TOPIC, "a", ResourcePattern.PREFIXED)),
        ("Group:*", Resource(ResourceType.GROUP, "", ResourcePattern.ANY)),
        ("Cluster:c:d", Resource(ResourceType.CLUSTER, "c:d")),
        ("*", Resource(ResourceType.ANY, "", ResourcePattern.ANY)),
        ("Topic:a*b*", Resource(ResourceType.TOPIC, "a", ResourcePattern.PREFIXED)),
    ],
)
def test_a_resource_is_read_from_its_text(text: str, resource: Resource) -> None:
    assert Resource.parse(text) == resource
    assert Resource.parse(resource.key) == resource


@pytest.mark.parametrize("text", ["", "  ", "Topic", "Queue:a", ":a", "a"])
def test_other_texts_are_no_resources(text: str) -> None:
    assert Resource.parse(text) is None


def test_a_retry_topic_is_its_group() -> None:
    assert group("%RETRY%g") == group("g") == Resource(ResourceType.GROUP, "g")


def test_the_narrowest_entry_decides() -> None:
    order = ["*", "Topic:*", "Topic:ab*", "Topic:abc*", "Topic:abcd"]
    for wide, narrow in itertools.combinations(order, 2):
        for first in (True, False):
            pair = [entry(wide, DENY), entry(narrow, ALLOW)]
            assert allows(acl(*(pair if first else pair[::-1])), topic("abcd")), (wide, narrow)
            pair = [entry(wide, ALLOW), entry(narrow, DENY)]
            assert not allows(acl(*(pair if first else pair[::-1])), topic("abcd")), (wide, narrow)


def test_of_equally_narrow_entries_a_deny_decides() -> None:
    """RocketMQ 5.5; before, the Allow did."""
    for pair in itertools.permutations([entry("Topic:a", ALLOW, Action.PUB), entry("Topic:a", DENY, Action.ALL)]):
        rules = acl(*pair)
        assert rules.refusal(Need(topic("a"), (Action.PUB,)), "") == "the decision is deny."


def test_default_entries_count_where_no_custom_one_matches() -> None:
    rules = acl(entry("Topic:a", DENY, Action.SUB), default=(entry("Topic:*", ALLOW),))
    assert allows(rules, topic("a"), Action.PUB)
    assert not allows(rules, topic("a"), Action.SUB)
    assert allows(rules, topic("b"), Action.SUB)
    assert not allows(rules, group("b"), Action.SUB)


def test_no_entry_is_a_refusal() -> None:
    assert acl().refusal(Need(topic("a"), (Action.PUB,)), "") == "no matched policies."


def test_one_of_the_actions_is_enough() -> None:
    rules = acl(entry("Topic:a", ALLOW, Action.GET))
    assert rules.refusal(Need(topic("a"), (Action.SUB, Action.GET)), "") is None
    assert rules.refusal(Need(topic("a"), (Action.SUB,)), "") is not None


def test_an_entry_counts_where_it_says() -> None:
    rules = acl(entry("Topic:a", ALLOW, ips=("10.0.0.0/8", "192.168.1.7", "fe80::/16")))
    assert allows(rules, topic("a"), ip="10.200.0.1")
    assert allows(rules, topic("a"), ip="192.168.1.7")
    assert allows(rules, topic("a"), ip="fe80::1")
    for elsewhere in ("11.0.0.1", "192.168.1.70", "", "x"):
        assert not allows(rules, topic("a"), ip=elsewhere)
    assert not is_in_range("10.0.0.1", "10.0.0.0/99")


def test_an_address_is_known_however_it_is_written() -> None:
    """A Deny for an address would else be passed by another spelling of it."""
    for written, wanted in (
        ("::ffff:192.168.1.7", "192.168.1.7"), ("::ffff:10.2.3.4", "10.0.0.0/8"), ("fe80::1%eth0", "fe80::1"),
        ("2001:db8::7", "2001:0db8:0:0::0007"),
    ):  # fmt: skip
        assert is_in_range(written, wanted)
        rules = acl(entry("Topic:*", ALLOW), entry("Topic:a", DENY, ips=(wanted,)))
        assert not allows(rules, topic("a"), ip=written)


def test_entries_take_the_place_of_those_for_the_same_resource() -> None:
    rules = acl(entry("Topic:a", ALLOW), entry("Topic:b", ALLOW)).updated([Policy(CUSTOM, (entry("Topic:a", DENY),))])
    custom = rules.policy(CUSTOM)
    assert custom is not None
    assert [(one.resource.key, one.decision) for one in custom.entries] == [("Topic:a", DENY), ("Topic:b", ALLOW)]
    gone = rules.without(CUSTOM, topic("a")).without(CUSTOM, topic("b"))
    assert gone.policy(CUSTOM) is None


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ((), "policies is empty"),
        ((Policy(),), "entries is empty"),
        ((Policy(CUSTOM, (PolicyEntry(topic("a"), (), ALLOW),)),), "actions is empty"),
        ((Policy(CUSTOM, (PolicyEntry(topic("a"), (Action.ANY,), ALLOW),)),), "can not be Any"),
        ((Policy(CUSTOM, (entry("*", ALLOW, ips=("300.1.1.1",)),)),), "source ip is invalid"),
        ((Policy(CUSTOM, (entry("*", ALLOW, ips=("",)),)),), "source ip is empty"),
    ],
)
def test_policies_that_make_no_sense_are_named(policies: tuple[Policy, ...], words: str) -> None:
    assert words in (problem_with(policies) or "")


NAMES = st.text(alphabet="ab", max_size=3)
RESOURCES = st.one_of(
    st.just("*"),
    st.builds("{}:{}{}".format, st.sampled_from(["Topic", "Group"]), NAMES, st.sampled_from(["", "*"])),
).filter(lambda text: not text.endswith(":"))
ENTRIES = st.builds(
    lambda text, decision, actions: entry(text, decision, *actions),
    RESOURCES,
    st.sampled_from(list(Decision)),
    st.lists(st.sampled_from([Action.ALL, Action.PUB, Action.SUB]), min_size=1, max_size=2),
)


def naive(entries: list[PolicyEntry], need: Need) -> bool:
    """Java's way: sort what matches with a comparison, take the first."""

    def rank(one: PolicyEntry) -> tuple[int, int]:
        text = one.resource.key
        if text == "*":
            return (3, 0)
        name = text.partition(":")[2]
        if name == "*":
            return (2, 0)
        return (1, -len(name)) if name.endswith("*") else (0, 0)

    found = []
    for one in entries:
        text = one.resource.key
        kind, _, name = text.partition(":")
        asked = need.resource.key
        fits = text in ("*", asked) or (
            name.endswith("*") and asked.startswith(f"{kind}:") and asked.partition(":")[2].startswith(name[:-1])
        )
        if fits and (Action.ALL in one.actions or set(one.actions) & set(need.actions)):
            found.append(one)
    best = [one for one in found if rank(one) == min(map(rank, found))]
    return bool(best) and all(one.decision is ALLOW for one in best)


@given(st.lists(ENTRIES, max_size=5), st.sampled_from([topic, group]), NAMES.filter(bool), st.sampled_from(Action))
def test_the_decision_is_that_of_a_naive_reading(entries: list[PolicyEntry], kind, name: str, action: Action) -> None:  # type: ignore[no-untyped-def]
    need = Need(kind(name), (action,))
    assert (acl(*entries).refusal(need, "1.1.1.1") is None) == naive(entries, need)
