"""A new slave without a log: a Java slave gets its master's last file only, ours the whole log (haFullCopy), from a
Java master too."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.processes.ha_pair import MIXTURES, Mixture, Pair, log_of
from tests.interop.processes.java_driver import JavaDriver, read_store
from tests.interop.processes.servers import SETTINGS, JavaBroker, MaxqBroker

pytestmark = pytest.mark.interop
SIZE = 4000
COUNT = 2300  # ends in the third file
LOG_FILE = int(SETTINGS["mappedFileSizeCommitLog"])


def alone(mixture: Mixture, folder: Path, jars: Path, driver: JavaDriver) -> Pair:
    """A master with more than two files of log, and no slave yet."""
    pair = Pair(mixture, folder, jars, "ASYNC_MASTER")
    pair.start_namesrv()
    pair.start_master()
    driver.send(pair.namesrv, "Old", COUNT, "async", size=SIZE)
    assert log_of(pair.master).end > 2 * LOG_FILE
    return pair


def mixture(master: type) -> Mixture:
    return next(found for found in MIXTURES if found.master is master)


@pytest.fixture
def java_master(jars: Path, tmp_path: Path, driver: JavaDriver) -> Iterator[Pair]:
    running = alone(mixture(JavaBroker), tmp_path, jars, driver)
    yield running
    running.stop()


@pytest.fixture
def our_master(jars: Path, tmp_path: Path, driver: JavaDriver) -> Iterator[Pair]:
    running = alone(mixture(MaxqBroker), tmp_path, jars, driver)
    yield running
    running.stop()


def test_our_new_slave_takes_the_whole_log_of_a_java_master(java_master: Pair, driver: JavaDriver) -> None:
    java_master.start_slave(haFullCopy="false")  # as Java's does
    java_master.wait_for_link()
    assert log_of(java_master.slave).start == 2 * LOG_FILE
    java_master.slave.stop()
    shutil.rmtree(java_master.slave.store)

    java_master.start_slave(haFullCopy="true")
    java_master.wait_for_link()
    assert log_of(java_master.slave).start == 0
    java_master.master.kill()
    received = driver.consume(java_master.namesrv, "Old", COUNT)  # every message, from the slave alone
    assert sorted(int(row["body"].split("|")[1]) for row in received) == list(range(COUNT))


def test_a_new_java_slave_gets_the_last_file_of_our_master(
    our_master: Pair, driver: JavaDriver, jars: Path, java_classes: Path, tmp_path: Path
) -> None:
    our_master.start_slave()
    our_master.wait_for_link()
    assert log_of(our_master.slave).start == 2 * LOG_FILE
    our_master.join(driver)
    our_master.slave.stop()
    settings = [f"{name}={SETTINGS[name]}" for name in SETTINGS if name.startswith(("mappedFileSize", "max"))]
    found = read_store(jars, java_classes, our_master.slave.store, tmp_path / "reader", *settings)
    master = log_of(our_master.master)
    assert (found["minPhysicalOffset"], found["maxPhysicalOffset"]) == (2 * LOG_FILE, master.end)
    assert all(row["foundByKey"] for row in found["messages"])
    assert max(row["physicalOffset"] for row in found["messages"]) < master.end
