"""Settings of workers."""

from dataclasses import replace

from maxq.cli.commands.workers import derive_workers
from maxq.config import BrokerSettings


def settings(**store: str) -> BrokerSettings:
    base, _ = BrokerSettings.from_properties(
        {"brokerName": "b", "listenPort": "10911", "haListenPort": "10912", "storePathRootDir": "/s"}, source="test"
    )
    log = store.get("log", "/s/commitlog")
    base.store = replace(base.store, store_path_commit_log=log)
    return base


def test_workers_share_neither_name_nor_ports_nor_folders() -> None:
    workers = derive_workers(settings(), 3)
    for key in workers[0].settings:
        assert len({worker.settings[key] for worker in workers}) == 3, key
    assert workers[2].settings == {
        "brokerName": "b-2",
        "listenPort": "10931",
        "haListenPort": "10932",
        "storePathRootDir": "/s/worker-2",
        "storePathCommitLog": "/s/worker-2/commitlog",
    }


def test_a_log_with_a_place_of_its_own_keeps_it() -> None:
    (worker,) = derive_workers(settings(log="/fast/log"), 1)
    assert worker.settings["storePathCommitLog"] == "/fast/log/worker-0"


def test_each_worker_has_users_and_policies_of_its_own() -> None:
    """Each writes the whole file from what it knows: what one is told to take away another would bring back."""
    base = settings()
    base.auth = replace(base.auth, auth_config_path="/etc/maxq/auth")
    folders = [worker.settings["authConfigPath"] for worker in derive_workers(base, 2)]
    assert folders == ["/etc/maxq/auth/worker-0", "/etc/maxq/auth/worker-1"]
