"""Runs tests in several processes, each a copy of the one that has collected them: what they import is imported once.

    python -m pytest -p tests.side_by_side --processes 6 tests

A file is one process's. So is each half of the tests that share a Spark session, which costs 10 s of CPU and 1 GiB;
they come first, for they take longest. Half of the other processes begins with tests that wait for clocks, disks and
each other, half with tests that compute, and who has no more of its kind takes from the end of the other: so the
processors always have something to do.

A process that dies fails the test it was at, and another one takes the rest of its files. The end of a run names the
files that took longest, and says when each process had no more to do: the last ones should be few and soon.
"""

import atexit
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NoReturn
from warnings import WarningMessage

import pytest
from _pytest.pathlib import cleanup_numbered_dir

SPARK_FOLDER: Final = "tests/pipeline/"
_WITHOUT_SESSION: Final = "tests/pipeline/processes/"
#: The folder of the second half of the tests with a Spark session; the others are the first.
SECOND_SESSION: Final = "tests/pipeline/jobs/"
_WAITING: Final = ("tests/integration/", _WITHOUT_SESSION)
#: Those that wait longest, for brokers that take over from each other; begun last they would be waited for alone.
_WAITING_LONGEST: Final = "tests/integration/replication/"
#: What a process may take to end when it is not needed any more.
_END_SECONDS: Final = 60
_LONGEST: Final = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of processes."""
    parser.addoption("--processes", type=int, default=0, help="run the tests in so many processes")


def unit_of(nodeid: str) -> str:
    """Return what one process runs as a whole: the file of a test, or a folder of those that share a session."""
    if nodeid.startswith(SPARK_FOLDER) and not nodeid.startswith(_WITHOUT_SESSION):
        return SECOND_SESSION if nodeid.startswith(SECOND_SESSION) else SPARK_FOLDER
    return nodeid.partition("::")[0]


class Units:
    """What is still to be given out: lists of tests, by their numbers."""

    def __init__(self, nodeids: Iterable[str]) -> None:
        """Args: nodeids: all tests, in their order."""
        units: dict[str, list[int]] = {}
        for number, nodeid in enumerate(nodeids):
            units.setdefault(unit_of(nodeid), []).append(number)
        self._first = [numbers for name in (SECOND_SESSION, SPARK_FOLDER) if (numbers := units.pop(name, []))]
        self._kinds: list[list[list[int]]] = [[], []]
        for name, numbers in sorted(units.items(), key=lambda unit: not unit[0].startswith(_WAITING_LONGEST)):
            self._kinds[name.startswith(_WAITING)].append(numbers)

    def take(self, process: int) -> list[int]:
        """Take out the next unit for a process; an empty one if there is none."""
        if self._first:
            return self._first.pop(0)
        own, other = (self._kinds[(process + turn) % 2] for turn in (0, 1))
        return own.pop(0) if own else other.pop() if other else []

    def put_back(self, numbers: list[int]) -> None:
        """Give out these tests before all others."""
        if numbers:
            self._first.append(numbers)


@dataclass
class _Process:
    """A copy of this process, as this one sees it."""

    number: int
    pid: int
    pipe: Connection
    left: list[int] = field(default_factory=list)  # tests that it has been given and has not told of
    told_s: float = field(default_factory=time.monotonic)  # when it told of one, or began
    told_processor_s: float = 0.0  # what it and its ended children had used of a processor then


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests, if several processes are to."""
    config = session.config
    if not config.option.processes or config.option.collectonly or session.testsfailed:
        return None
    config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # made before each process has a folder in it
    units = Units(item.nodeid for item in session.items)
    config.pluginmanager.register(times := _Times())
    running: dict[Connection, _Process] = {}
    started = 0
    try:
        while True:
            while len(running) < config.option.processes and (numbers := units.take(started)):
                process = _start(session, started, running)
                running[process.pipe] = process
                started += 1
                _give(process, numbers)
            if not running:
                return True
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)
                process = running[pipe]
                try:
                    told = pipe.recv()
                except (EOFError, ConnectionResetError):
                    del running[pipe]
                    units.put_back(_ended(session, process))
                    continue
                _hear(session, process, told, units, times)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
    finally:
        _end(running.values())


class _Times:
    """Plugin that says at the end which units took longest, and which used most of a processor.

    Attributes:
        seconds: by unit.
        processor_s: by unit, of the processes that ran its tests and of those that they started and that have ended;
            without those that were forked from others (tests/forked_commands.py), and without Spark's Java.
        idle_s: how long the run lasted when a process found no more units, in their order.
    """

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.idle_s: list[float] = []
        self.seconds: Counter[str] = Counter()
        self.processor_s: Counter[str] = Counter()

    def found_no_more(self) -> None:
        """Note that a process has no more to do."""
        self.idle_s.append(time.monotonic() - self._began_s)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for title, counted in (("longest", self.seconds), ("most of a processor", self.processor_s)):
            terminalreporter.section(title)
            for name, seconds in counted.most_common(_LONGEST):
                terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
        ends = ", ".join(f"{seconds:.0f}" for seconds in self.idle_s)
        terminalreporter.write_line(f"processes had no more to do after {ends} s")


def _start(session: pytest.Session, number: int, others: Iterable[Connection]) -> _Process:
    ours, theirs = Pipe()
    pid = os.fork()
    if not pid:
        for pipe in (ours, *others):
            pipe.close()
        _serve(session, number, theirs)
    theirs.close()
    return _Process(number, pid, ours)


def _give(process: _Process, numbers: list[int]) -> None:
    process.left += numbers
    with suppress(BrokenPipeError):  # its end is noticed when it is read from
        process.pipe.send(numbers)


def _hear(session: pytest.Session, process: _Process, told: Any, units: Units, times: "_Times") -> None:
    """Work off what a process says: it asks for a unit, has had a warning, or has run a test."""
    hook = session.config.hook
    match told:
        case None:
            numbers = units.take(process.number)
            if not numbers:
                times.found_no_more()
            _give(process, numbers)
        case dict():
            hook.pytest_warning_recorded.call_historic(kwargs=told)
        case _:
            item = session.items[process.left.pop(0)]
            unit = unit_of(item.nodeid)
            reports, processor_s = told
            times.seconds[unit] += time.monotonic() - process.told_s
            times.processor_s[unit] += processor_s - process.told_processor_s
            process.told_s, process.told_processor_s = time.monotonic(), processor_s
            for data in reports:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _ended(session: pytest.Session, process: _Process) -> list[int]:
    """Return the tests that an ended process has not begun; the one that ended it has failed."""
    process.pipe.close()
    _, status = os.waitpid(process.pid, 0)
    process.pid = 0
    if not process.left:
        return []
    item = session.items[process.left.pop(0)]
    code = os.waitstatus_to_exitcode(status)
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    now = time.time()
    report = pytest.TestReport(
        item.nodeid, item.location, {}, "failed", f"the process that ran it ended {how}", "call", start=now, stop=now
    )
    item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return process.left


def _end(processes: Iterable[_Process]) -> None:
    """Have processes end that are still there when the run is broken off: they notice that nobody listens."""
    there = [process for process in processes if process.pid]
    for process in there:
        process.pipe.close()
    ends = time.monotonic() + _END_SECONDS
    for process in there:
        while os.waitpid(process.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > ends:
                os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.05)


class _Told:
    """Plugin of a copy: what is known of the test that runs."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config = config
        self._pipe = pipe
        self.reports: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed or report.sections:
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            self.reports.append(data)

    def pytest_warning_recorded(
        self, warning_message: WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        warning_message.source = None  # what is warned of need not be one that can be sent
        told = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self._pipe.send(told)


def _serve(session: pytest.Session, number: int, pipe: Connection) -> NoReturn:
    """Run units of tests as they come through the pipe, up to an empty one."""
    code = 1
    try:
        told = _become_a_process(session.config, number, pipe)
        unit = pipe.recv()
        while unit:
            following: list[int] = []
            for place, index in enumerate(unit, 1):
                if place == len(unit):  # the fixtures that stay depend on what comes next
                    pipe.send(None)
                    following = pipe.recv()
                item, after = session.items[index], (unit[place:] or following)[:1]
                nextitem = session.items[after[0]] if after else None
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
                used = os.times()
                pipe.send((told.reports, used.user + used.system + used.children_user + used.children_system))
                told.reports = []
            unit = following
        threading._shutdown()  # type: ignore[attr-defined]
        code = 0
    except (EOFError, ConnectionError, KeyboardInterrupt):  # the run is broken off
        with suppress(BaseException):
            session._setupstate.teardown_exact(None)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(code)


def _become_a_process(config: pytest.Config, number: int, pipe: Connection) -> _Told:
    """Part with what a copy must not share: the terminal, captured output, the temporary folder, random numbers."""
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    capture = plugins.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    temporary = config._tmp_path_factory  # type: ignore[attr-defined]
    temporary._basetemp = temporary.getbasetemp() / f"process{number}"
    temporary._basetemp.mkdir()
    random.seed()
    atexit.unregister(cleanup_numbered_dir)  # the first process does that
    told = _Told(config, pipe)
    plugins.register(told, "told")
    return told
