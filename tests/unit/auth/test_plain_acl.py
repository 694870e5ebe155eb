"""ACL 1.0: address patterns, files, and what is wrong with them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.auth.address_pattern import address_pattern
from maxq.auth.migration import migrated
from maxq.auth.plain_acl import Permission, check_permissions, read_plain_acl
from maxq.auth.user import UserType
from maxq.errors import ConfigError
from tests.short_form import times

ACCOUNT = {"accessKey": "RocketMQ", "secretKey": "12345678"}


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", [], ["1.2.3.4", "::1"]),
        ("*", ["1.2.3.4", "::1"], []),
        ("*.*.*.*", ["1.2.3.4"], []),
        ("192.168.1.{1,2}", ["192.168.1.1", "192.168.1.2"], ["192.168.1.3", "192.168.1.12"]),
        ("10.0.0.1,10.0.0.9", ["10.0.0.9"], ["10.0.0.2"]),
        ("192.168.1.1-90", ["192.168.1.1", "192.168.1.90"], ["192.168.1.91", "192.168.2.1", "192.168.1.0"]),
        ("192.168.*.*", ["192.168.0.255"], ["192.169.0.1"]),
        ("192.168.1-3.*", ["192.168.3.9"], ["192.168.4.9"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.10", "x", ""]),
        ("1:2:3:4:5:6:7:1-200", ["1:2:3:4:5:6:7:1f", "1:2:3:4:5:6:7:200"], ["1:2:3:4:5:6:7:201", "1.2.3.4"]),
        ("2::ac5:78:1-200:*", ["2::ac5:78:100:ffff"], ["2::ac5:78:300:1"]),
        ("fe80::1", ["fe80:0:0:0:0:0:0:1", "FE80::1"], ["fe80::2"]),
        ("fe80::{a,b}", ["fe80::a"], ["fe80::c"]),
    ],
)
def test_an_address_pattern_matches_what_it_names(pattern: str, inside: list[str], outside: list[str]) -> None:
    matches = address_pattern(pattern)
    assert [address for address in inside if not matches(address)] == []
    assert [address for address in outside if matches(address)] == []


@pytest.mark.parametrize(
    "pattern",
    ["10.0.0", "10.0.0.256", "10.0.0.1-300", "10.0.0.9-1", "10.0.0.x", "{1,2}", "10.0.0.1,x", "a.b.*.*", "*.1"],
)
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="no address pattern"):
        address_pattern(pattern)


@given(st.text(alphabet="0123456789.:*-{},abx ", max_size=20), st.text(alphabet="0123456789.:", max_size=15))
@settings(max_examples=times(300), deadline=None)
def test_any_text_is_a_pattern_or_refused(text: str, address: str) -> None:
    try:
        matches = address_pattern(text)
    except ConfigError:
        return
    assert matches(address) in (True, False)


def test_permissions_are_read_as_java_reads_them() -> None:
    assert Permission.parse("SUB|PUB") == Permission.parse(" PUB|SUB ") == Permission.PUB | Permission.SUB
    for text in (None, "", "pub", "DENY", "PUB|DENY", "SUBPUB"):
        assert Permission.parse(text) is Permission.DENY
    assert not Permission.DENY.allows(Permission.PUB | Permission.SUB)


def test_files_are_put_together_and_the_first_account_of_a_name_counts() -> None:
    acl, warnings = read_plain_acl(
        [
            ("a.yml", {"accounts": [{**ACCOUNT, "topicPerms": ["T=PUB", " U = SUB "], "admin": "true"}]}),
            ("b.yml", {"globalWhiteRemoteAddresses": ["10.0.0.*"], "accounts": [{**ACCOUNT, "secretKey": "another"}]}),
            ("empty.yml", None),
        ]
    )
    account = acl.accounts["RocketMQ"]
    assert (account.secret_key, account.admin) == ("12345678", True)
    assert account.topic_perms == {"T": Permission.PUB, "U": Permission.SUB}
    assert account.topic_permission("V") is Permission.DENY
    assert acl.is_white("10.0.0.7") and not acl.is_white("10.0.1.7")
    assert warnings == ["b.yml: access key RocketMQ stands in two places, the first counts"]
    assert "12345678" not in repr(account)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ([], "is a mapping"),
        ({"accounts": {}}, "accounts is a list"),
        ({"accounts": ["x"]}, "an account is a mapping"),
        ({"accounts": [{**ACCOUNT, "secretKey": "hush12"}]}, "longer than 6"),
        ({"accounts": [{"secretKey": "12345678"}]}, "longer than 6"),
        ({"accounts": [{**ACCOUNT, "topicPerms": ["T"]}]}, "'Res=Perm'"),
        ({"accounts": [{**ACCOUNT, "topicPerms": "T=PUB"}]}, "topicPerms is a list"),
        ({"accounts": [{**ACCOUNT, "groupPerms": [["T=PUB"]]}]}, "list of texts"),
        ({"accounts": [{**ACCOUNT, "whiteRemoteAddress": "10.0"}]}, "no address pattern"),
        ({"accounts": [{**ACCOUNT, "admin": ["x"]}]}, "admin is a text"),
        ({"globalWhiteRemoteAddresses": ["x"]}, "no address pattern"),
    ],
)
def test_a_file_that_makes_no_sense_is_named_and_its_secrets_are_not(tree: object, words: str) -> None:
    with pytest.raises(ConfigError, match=r"f\.yml: ") as refused:
        read_plain_acl([("f.yml", tree)])
    assert words in str(refused.value)
    assert "hush12" not in str(refused.value) and "12345678" not in str(refused.value)


TREES = st.recursive(
    st.none() | st.text(max_size=8) | st.booleans() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "accounts",
                    "accessKey",
                    "secretKey",
                    "topicPerms",
                    "groupPerms",
                    "admin",
                    "globalWhiteRemoteAddresses",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(TREES)
@settings(max_examples=times(300), deadline=None)
def test_any_tree_is_rules_or_refused(tree: object) -> None:
    try:
        read_plain_acl([("f.yml", tree)])
    except ConfigError as error:
        assert str(error).startswith("f.yml: ")


def test_lines_that_somebody_wants_to_store_must_be_right() -> None:
    check_permissions(["T=PUB", "U=DENY"])
    for line in ("T", "T=", "T=pub", "T=PUB=SUB"):
        with pytest.raises(ConfigError):
            check_permissions([line])


def test_an_account_becomes_a_user_with_policies() -> None:
    acl, _ = read_plain_acl(
        [("a.yml", {"accounts": [{
            **ACCOUNT, "topicPerms": ["T=PUB|SUB", "D=DENY"], "groupPerms": ["G=SUB"],
            "defaultTopicPerm": "DENY", "defaultGroupPerm": "SUB",
        }]})]
    )  # fmt: skip
    user, policies = migrated(acl.accounts["RocketMQ"])
    assert (user.username, user.password, user.user_type) == ("RocketMQ", "12345678", UserType.NORMAL)
    told = [
        (policy.policy_type.value, entry.resource.key, "/".join(a.value for a in entry.actions), entry.decision.value)
        for policy in policies
        for entry in policy.entries
    ]
    assert told == [
        ("Custom", "Topic:T", "Pub/Sub", "Allow"), ("Custom", "Topic:D", "All", "Deny"),
        ("Custom", "Group:G", "Sub", "Allow"),
        ("Default", "Topic:*", "All", "Deny"), ("Default", "Group:*", "Sub", "Allow"),
    ]  # fmt: skip
