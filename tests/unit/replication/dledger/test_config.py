"""Settings of a member."""

import pytest

from maxq.errors import ConfigError
from maxq.replication.dledger.config import dledger_config, parse_peers

PEERS = "n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911"


def test_peers_are_ids_and_addresses_in_order() -> None:
    assert list(parse_peers(PEERS).items()) == [
        ("n0", "10.0.0.1:40911"), ("n1", "10.0.0.2:40911"), ("n2", "10.0.0.3:40911"),
    ]  # fmt: skip
    assert parse_peers("n0-my-host:1") == {"n0": "my-host:1"}


@pytest.mark.parametrize(
    ("peers", "remedy"),
    [
        ("", "lists all members"), ("n0", "no id-host:port"), ("n0-host", "no id-host:port"),
        ("n0-:1", "no id-host:port"), ("-h:1", "no id-host:port"), ("n0-h:0", "no id-host:port"),
        ("n0-h:1;n0-h:2", "n0 is there twice"), ("n0-h:1;n1-h:1", "h:1 is there twice"),
    ],
)  # fmt: skip
def test_wrong_peers_are_refused_with_what_to_write(peers: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        parse_peers(peers)


def test_a_member_must_be_a_peer_and_so_must_a_preferred_leader() -> None:
    with pytest.raises(ConfigError, match="dLegerSelfId=n3"):
        dledger_config("g", "n3", PEERS)
    with pytest.raises(ConfigError, match="preferredLeaderId=n1;n9"):
        dledger_config("g", "n0", PEERS, preferred="n1;n9")
    with pytest.raises(ConfigError, match="dLegerGroup"):
        dledger_config("", "n0", PEERS)
    config = dledger_config("g", "n1", PEERS, preferred="n1;n2")
    assert config.preferred_leader_ids == ("n1", "n2") and config.self_address == "10.0.0.2:40911"


def test_members_of_one_group_have_one_digest_whoever_writes_it_in_which_order() -> None:
    other_order = ";".join(reversed(PEERS.split(";")))
    assert dledger_config("g", "n0", PEERS).digest == dledger_config("g", "n2", other_order).digest
    assert dledger_config("g", "n0", PEERS).digest != dledger_config("h", "n0", PEERS).digest
    assert dledger_config("g", "n0", PEERS).digest != dledger_config("g", "n0", PEERS, shared=("1024",)).digest
    assert dledger_config("g", "n0", PEERS).raft().maxq == dledger_config("g", "n0", PEERS).digest
