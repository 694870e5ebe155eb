"""Store files are archived under the name of their broker."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from maxq.errors import ConfigError
from maxq.pipeline.jobs.archive.job import ArchiveConfig, archive_once, check_names


def test_a_store_whose_folder_has_another_name_than_its_broker_needs_the_brokers(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "checkpoint").write_bytes(bytes(4096))
    config = ArchiveConfig(str(tmp_path / "archive"), store=(str(store),))
    check_names(config)  # a Java broker's: nothing says whose
    (store / "owner.json").write_text(json.dumps({"brokerName": "broker-a", "clusterName": "C", "brokerId": 0}))
    with pytest.raises(ConfigError, match="is the store of broker broker-a: give --broker-name broker-a"):
        archive_once(Mock(), config)
    check_names(ArchiveConfig(config.path, store=config.store, broker_name="store"))
    renamed = store.rename(tmp_path / "broker-a")
    check_names(ArchiveConfig(config.path, store=(str(renamed),)))
