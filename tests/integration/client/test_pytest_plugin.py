"""The pytest plug-in, as users of it have it: tests of theirs in a pytest of their own, and the manual's examples."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import pytest

from tests.forked_commands import ForkedCommand

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
MANUAL = ROOT / "docs/howto/testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)```", MANUAL.read_text(), re.DOTALL | re.MULTILINE)
PLUGIN = ("-p", "maxq.testing.pytest_plugin", "-p", "no:cacheprovider")
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here is not what users have; the plug-in is named by its module."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


def is_there(pid: int) -> bool:
    """Is this process there, and no zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def forked_pytest(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """As `runpytest_subprocess` with the plug-in, forked from a process that has loaded pytest and MaxQ."""
    temporary = tempfile.mkdtemp(dir=pytester.path)
    command = [*PLUGIN, "--basetemp", temporary, *arguments]
    began = time.monotonic()
    with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        streams = (nothing.fileno(), out.fileno(), err.fileno())
        code = ForkedCommand(command, streams, cwd=pytester.path, module="pytest").wait(PATIENCE_S)
        lines = [file.read().decode().splitlines() for file in (out, err) if not file.seek(0)]
    return pytest.RunResult(code, *lines, time.monotonic() - began)


def test_the_package_names_the_plugin_and_what_it_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"maxq": PLUGIN[1]}
    assert [name.partition(">=")[0] for name in project["optional-dependencies"]["test"]] == ["pytest"]


def test_a_pytest_that_uses_none_of_it_loads_none_of_it() -> None:
    program = (
        f"import sys, {PLUGIN[1]}; print(*sorted(name for name in sys.modules if 'maxq' in name or name == 'asyncio'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["maxq", "maxq.codes", "maxq.testing", "maxq.testing.pytest_plugin"]


def test_assertions_of_the_package_stay_as_they_are(pytester: pytest.Pytester) -> None:
    """pytest rewrites all that is installed with a plug-in, which takes time and changes what is tested."""
    pytester.makeconftest("import pytest\npytest.register_assert_rewrite('maxq')")
    pytester.makepyfile(
        """
        import maxq.api

        def test_one():
            assert type(maxq.api.__loader__).__name__ == "SourceFileLoader"
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_the_manuals_examples_pass(pytester: pytest.Pytester) -> None:
    for number, code in enumerate(EXAMPLES):
        pytester.makepyfile(**{f"test_example_{number}": code})
    (ini,) = re.findall(r"```ini\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    pytester.makeini("\n".join(line.removeprefix("  ") for line in ini.splitlines()))
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(passed=len(EXAMPLES))
    assert len(EXAMPLES) == 5


def test_every_fixture_and_option_is_in_the_manual(pytester: pytest.Pytester) -> None:
    text = MANUAL.read_text()
    fixtures = forked_pytest(pytester, "--fixtures").stdout.str()
    names = set(re.findall(r"^(maxq_\w+)", fixtures, re.MULTILINE))
    assert names == set(re.findall(r"`(maxq_\w+)(?:`|\()", text)) - {"maxq_settings"}
    options = set(re.findall(r"--maxq-[a-z-]+", forked_pytest(pytester, "--help").stdout.str()))
    assert options == set(re.findall(r"--maxq-[a-z-]+", text))


SERVER_TESTS = """
import os
import threading
from pathlib import Path

import pytest

from tests.forked_commands import ForkedCommand

from maxq.api import Message

def test_first(maxq_server, maxq_producer, maxq_topic):
    Path("pid").write_text(str(maxq_server.pid))
    assert maxq_producer.send(Message(maxq_topic, b"one")).queue_offset == 0

@pytest.mark.parametrize("text", ["a b/ü", "x" * 300])
def test_topics_are_clean(maxq_producer, maxq_topic, maxq_new_topic, maxq_group, maxq_messages, text):
    single = maxq_new_topic(queues=1)
    assert len({maxq_topic, single, maxq_group}) == 3
    results = maxq_producer.send_many(Message(single, b"%d" % number) for number in range(3))
    assert [result.queue_offset for result in results] == [0, 1, 2]
    assert [message.body for message in maxq_messages(single, 3)] == [b"0", b"1", b"2"]
    assert maxq_messages(maxq_topic, 0) == []

def test_topics_are_deleted(maxq_admin):
    assert [name for name in maxq_admin.topics.names() if name.startswith("test_")] == []

def test_too_few(maxq_producer, maxq_topic, maxq_messages):
    maxq_producer.send(Message(maxq_topic, b"the only one", {"TAGS": "created"}))
    maxq_messages(maxq_topic, 2, timeout=0.5)

def test_a_topic_that_is_made_later(maxq_producer, maxq_messages):
    timer = threading.Timer(0.3, maxq_producer.send, [Message("MadeLater", b"first")])
    timer.start()
    assert [message.body for message in maxq_messages("MadeLater", 1)] == [b"first"]
    timer.join()

def test_no_topic(maxq_messages):
    maxq_messages("NeverMade", 1, timeout=0.2)

def test_deadly(maxq_server):
    maxq_server.kill()

def test_after_it(maxq_producer, maxq_topic):
    maxq_producer.send(Message(maxq_topic, b"x"))
"""


def test_a_server_serves_all_tests_and_leaves_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SERVER_TESTS)
    result = forked_pytest(pytester, "--basetemp", str(pytester.path / "files"))
    result.assert_outcomes(passed=7, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*Failed: test_too_few-* has 1 messages after 0.5 s, 2 are expected",
            "*b'the only one', tags created",
            "*Failed: there is no topic NeverMade after 0.2 s, 1 messages are expected",
        ]
    )
    result.stdout.no_fnmatch_line("*the store is kept*")
    assert not is_there(int((pytester.path / "pid").read_text()))
    assert list((pytester.path / "files").rglob("commitlog")) == []


def test_a_store_is_kept_with_its_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from maxq.api import Message

        def test_one(maxq_producer, maxq_topic):
            maxq_producer.send(Message(maxq_topic, b"one"))
        """
    )
    result = forked_pytest(pytester, "--maxq-keep-store")
    result.assert_outcomes(passed=1)
    (store,) = re.findall(r"the store is kept: (\S+)", result.stdout.str())
    assert "test_one-" in (Path(store) / "config" / "topics.json").read_text()


def test_each_worker_of_xdist_has_a_server(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os
        from pathlib import Path

        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_one(maxq_server, maxq_topic, number):
            Path(f"{os.environ['PYTEST_XDIST_WORKER']}-{maxq_server.pid}").touch()
        """
    )
    result = pytester.runpytest_subprocess("-p", "xdist.plugin", *PLUGIN, "-n2", "--maxq-keep-store")
    result.assert_outcomes(passed=4)
    servers = sorted(path.name for path in pytester.path.glob("gw*"))
    assert [name.partition("-")[0] for name in servers] == ["gw0", "gw1"]
    assert not any(is_there(int(name.partition("-")[2])) for name in servers)
    assert len(set(re.findall(r"the store is kept: (\S+)", result.stdout.str()))) == 2


def test_a_server_ends_with_a_pytest_that_is_killed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, signal
        from pathlib import Path

        def test_one(maxq_server):
            Path("pid").write_text(str(maxq_server.pid))
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert forked_pytest(pytester).ret == -signal.SIGKILL
    pid, end = int((pytester.path / "pid").read_text()), time.monotonic() + PATIENCE_S
    while is_there(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_there(pid)


def test_settings_reach_the_server_and_wrong_ones_are_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_one(maxq_admin, maxq_server):
            config = maxq_admin.brokers.config(maxq_server.broker_address)
            assert config["brokerName"] == "shop" and config["messageDelayLevel"] == "1s 2s"
        """
    )
    pytester.makeini("[pytest]\nmaxq_settings =\n  brokerName=shop\n  messageDelayLevel = 1s 2s\n")
    forked_pytest(pytester).assert_outcomes(passed=1)
    pytester.makeini("[pytest]\nmaxq_settings =\n  brokerName=shop\n  messageDelayLevels=1s\n")
    result = forked_pytest(pytester)
    result.stdout.fnmatch_lines(["*maxq_settings: unknown setting messageDelayLevels; did you mean messageDelayLevel?"])
    pytester.makeini("[pytest]\nmaxq_settings = flushDiskType=SOMETIMES\n")
    result = forked_pytest(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*maxq_server cannot be started: *flushDiskType*"])
    pytester.makeini("[pytest]\nmaxq_settings = flushDiskType\n")
    result = forked_pytest(pytester)
    result.stdout.fnmatch_lines(["*maxq_settings: 'flushDiskType' is not name=value*"])


STORY = """
import asyncio

import pytest

from tests.forked_commands import ForkedCommand

from maxq.api import Message, async_producer

def test_story(maxq_simulate):
    async def story(sim):
        async with async_producer("shop", sim.namesrv_address) as producer:
            await producer.send(Message("Orders", b"one"))
        if sim.seed == 6:
            sim.master.kill()
            await sim.until(lambda: sim.master.is_up, seconds=5)
        return sim.seed

    assert maxq_simulate(story) == maxq_simulate(story, brokers=1)

def test_without():
    pass
"""


def test_seeds_are_tests_of_their_own_and_failures_tell_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shop=STORY)
    result = forked_pytest(pytester, "--maxq-seeds", "3", "--maxq-seed", "5", "-rA")
    result.assert_outcomes(passed=3, failed=1)
    again = "pytest 'test_shop.py::test_story[seed-6]' --maxq-seed 6"
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: no broker is the master now*",
            "*simulation with seed 6:",
            "*broker 1 is killed",
            f"*the same again: {again.replace('[', '[[]')}",
        ]
    )
    result.stdout.fnmatch_lines(
        ["PASSED test_shop.py::test_story[[]seed-5]", "PASSED test_shop.py::test_story[[]seed-7]"]
    )
    result.stdout.no_fnmatch_line("*open to other machines*")  # a simulated network has no strangers
    one = forked_pytest(pytester, "test_shop.py::test_story[seed-6]", "--maxq-seed", "6")
    one.assert_outcomes(failed=1)
    assert "run_simulation" not in one.stdout.str()  # frames of the simulator say nothing to users


def test_the_default_is_one_seed_and_none_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shop=STORY)
    forked_pytest(pytester).assert_outcomes(passed=2)
    result = forked_pytest(pytester, "--maxq-seeds", "0")
    result.stderr.fnmatch_lines(["*--maxq-seeds=0: give 1 or more"])


def test_pytest_asyncio_runs_tests_with_the_clients(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio

        from maxq.api import Message

        async def test_one(maxq_async_producer, maxq_topic, maxq_messages):
            async with maxq_async_producer as producer:
                await producer.send(Message(maxq_topic, b"one"))
            assert len(await asyncio.to_thread(maxq_messages, maxq_topic, 1)) == 1
        """
    )
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess("-p", "pytest_asyncio.plugin", *PLUGIN).assert_outcomes(passed=1)
