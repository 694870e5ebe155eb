"""StoreOwner: whose store a folder is, and who may go on with it."""

import errno
import json
import logging
from pathlib import PurePath

import pytest

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.store_owner import StoreOwner
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import StoreRefusedError
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng

ROOT = PurePath("/store")


class Scene:
    def __init__(self, *, messages: bool = True) -> None:
        self.disk = SimDisk(SimRng(1), SimClock())
        for folder in (ROOT, ROOT / "commitlog"):
            self.disk.make_dirs(folder)
        if messages:
            self.disk.write(ROOT / "commitlog" / "00000000000000000000", b"log")

    def owner(self, cluster: str = "C", name: str = "broker-a", broker_id: int = 1) -> StoreOwner:
        config = MessageStoreConfig(store_path_root_dir=str(ROOT))
        return StoreOwner(self.disk, config, BrokerAddress(cluster, name, broker_id, "10.0.0.1"))

    def goes_on(self, cluster: str = "C", name: str = "broker-a", broker_id: int = 1, *, role: str) -> object:
        """What `owner.json` says when such a broker has started on the store."""
        owner = self.owner(cluster, name, broker_id)
        owner.check(role)
        owner.record(role)
        return json.loads(self.disk.read(ROOT / "owner.json"))

    def write(self, name: str, data: bytes) -> None:
        self.disk.write(ROOT / name, data)


@pytest.mark.parametrize(("cluster", "name"), [("D", "broker-a"), ("C", "broker-b")])
def test_a_slave_does_not_go_on_with_another_groups_messages(cluster: str, name: str) -> None:
    scene = Scene()
    scene.owner().record("ASYNC_MASTER")
    with pytest.raises(StoreRefusedError, match=f"broker-a of cluster C.* belongs to {name} of cluster {cluster}"):
        scene.owner(cluster, name).check("SLAVE")


def test_a_slave_goes_on_with_a_store_of_its_own_group_whoever_had_it() -> None:
    scene = Scene()
    scene.owner(broker_id=0).record("SYNC_MASTER")
    assert scene.goes_on(broker_id=2, role="SLAVE") == {
        "brokerId": 2, "brokerName": "broker-a", "clusterName": "C", "role": "SLAVE",
    }  # fmt: skip


def test_a_slave_says_whether_its_log_is_another_until_it_is_none_or_has_no_log() -> None:
    scene = Scene()
    owner = scene.owner()
    owner.check("SLAVE")
    owner.record("SLAVE")
    owner.log_is_another = True
    owner.record_log()
    for role, says in (("SLAVE", True), ("ASYNC_MASTER", True), ("SLAVE", False)):  # the master takes it away
        again = scene.owner()
        again.check(role)
        assert again.log_is_another is says
        again.record(role)
        again.record_log()
    scene.write("owner.json", b'{"brokerName":"broker-a","clusterName":"C","logIsAnother":true,"role":"SLAVE"}')
    scene.disk.write(ROOT / "commitlog" / "00000000000000000000", b"")
    empty = scene.owner()
    empty.check("SLAVE")
    assert not empty.log_is_another


def test_a_store_without_messages_is_anybodys() -> None:
    scene = Scene(messages=False)
    scene.owner().record("ASYNC_MASTER")
    assert scene.goes_on("D", "broker-z", role="SLAVE") == {
        "brokerId": 1, "brokerName": "broker-z", "clusterName": "D", "role": "SLAVE",
    }  # fmt: skip


def test_a_master_may_be_renamed_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.owner().record("ASYNC_MASTER")
    renamed = scene.owner("D", "broker-z", 0)
    renamed.check("ASYNC_MASTER")
    assert "belonged" not in caplog.text  # the store may be locked yet, or refuse to start
    renamed.record("ASYNC_MASTER")
    assert "belonged to broker-a of cluster C until now" in caplog.text
    scene.owner("D", "broker-z").check("SLAVE")


def test_a_store_that_names_nobody_is_taken_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Scene().owner().check("SLAVE")
    assert "/store does not name the owner of its messages" in caplog.text


def test_the_identity_of_javas_controller_mode_counts_where_ours_is_missing_or_broken() -> None:
    scene = Scene()
    scene.write("brokerIdentity", b"C#broker-j#3\n")
    for broken in (None, b"{", b"[]", b'{"clusterName":"C"}'):
        if broken is not None:
            scene.write("owner.json", broken)
        with pytest.raises(StoreRefusedError, match=r"brokerIdentity.*broker-j"):
            scene.owner().check("SLAVE")
        scene.owner(name="broker-j").check("SLAVE")


def test_the_file_is_written_only_when_it_says_something_else() -> None:
    scene = Scene()
    scene.owner().record("SLAVE")
    before = scene.disk.read(ROOT / "owner.json")
    assert before == b'{"brokerId":1,"brokerName":"broker-a","clusterName":"C","role":"SLAVE"}'
    replaced: list[PurePath] = []
    scene.disk.replace = lambda path, data: replaced.append(path)  # type: ignore[method-assign]
    scene.owner().record("SLAVE")
    assert replaced == []
    scene.owner().record("SYNC_MASTER")
    assert replaced == [ROOT / "owner.json"]


def test_a_disk_without_room_for_another_role_of_the_same_group_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.owner().record("SLAVE")

    def refuse(path: PurePath, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(scene.disk, "replace", refuse)
    scene.owner().record("SYNC_MASTER")
    with pytest.raises(OSError, match="no room"):
        scene.owner(name="broker-b").record("SYNC_MASTER")  # then the folder would go on naming another group


@pytest.mark.parametrize("role", ["SLAVE", "ASYNC_MASTER"])
def test_who_used_it_last_is_told(role: str) -> None:
    scene = Scene()
    scene.owner().record(role)
    owner = scene.owner()
    owner.check("SYNC_MASTER")
    assert (owner.was_slave, owner.slave_until) == (role == "SLAVE", 0)
    owner.record("ASYNC_MASTER", 100)
    owner = scene.owner()
    owner.check("ASYNC_MASTER")
    assert (owner.was_slave, owner.slave_until) == (False, 100)
