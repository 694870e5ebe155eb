"""Tests that are shared by processes end as they do in one: nothing is run twice, left out or taken for passed."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.side_by_side import Units

ROOT = Path(__file__).parents[3]
ENDS = {
    "tests/unit/test_a.py": """
        import os, signal, warnings, pytest
        def test_passes(tmp_path): print(tmp_path)
        def test_fails():
            print("what it says")
            assert 1 == 2
        def test_is_killed(): os.kill(os.getpid(), signal.SIGKILL)
        def test_behind_it(): pass
        @pytest.fixture
        def broken():
            yield
            raise RuntimeError("the end")
        def test_ends_badly(broken): pass
        @pytest.mark.skip(reason="why not")
        def test_skipped(): pass
        def test_warns(): warnings.warn("look here")
    """,
    "tests/integration/test_b.py": """
        import os
        def test_exits(): os._exit(3)
        def test_behind_it(): pass
    """,
}
#: Each test says who ran it and when the fixture of its package, folder and session ended.
SHARED = {
    "conftest.py": """
        import os, pytest
        def said(what):
            with open(os.environ["SAID"], "a") as file:
                file.write(f"{os.getpid()} {what}\\n")
        @pytest.fixture(scope="session", autouse=True)
        def session():
            yield
            said("end")
        @pytest.fixture(autouse=True)
        def name(request):
            said(request.node.nodeid)
    """,
    **{f"tests/pipeline/test_{n}.py": "def test_one(): pass\ndef test_two(): pass\n" for n in range(3)},
    **{f"tests/unit/test_u{n}.py": "def test_one(): pass\ndef test_two(): pass\n" for n in range(4)},
}


def run(folder: Path, files: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        margin = re.match(r"\n( *)", text)
        (folder / name).write_text(text.replace(margin[0], "\n") if margin else text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.side_by_side", "-p", "no:cacheprovider", *options]
    environment = {
        **os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "SAID": str(folder / "said"),
    }  # fmt: skip
    command += ["--rootdir", str(folder), "-c", os.devnull, "--basetemp", str(folder / "temporary"), "tests"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_each_test_has_the_outcome_that_it_has_alone(tmp_path: Path) -> None:
    done = run(tmp_path, ENDS, "--processes", "3")
    assert done.returncode == 1
    (last,) = done.stdout.splitlines()[-1:]
    assert re.sub(r" in .*", "", last) == "3 failed, 5 passed, 1 skipped, 1 warning, 1 error", done.stdout
    for said in (
        "assert 1 == 2", "what it says", "the process that ran it ended by SIGKILL", "ended with exit code 3",
        "RuntimeError: the end", "UserWarning: look here",
    ):  # fmt: skip
        assert said in done.stdout, said
    assert re.search(r"longest =+\n +\d\.\d s  tests/", done.stdout), "how long files took"
    assert re.search(r"^processes had no more to do after \d+(, \d+)* s$", done.stdout, re.MULTILINE)
    assert "test_passes" not in done.stdout, "only what tests that fail have printed is shown"


def test_every_test_runs_once_and_files_stay_together(tmp_path: Path) -> None:
    done = run(tmp_path, SHARED, "--processes", "2")
    assert done.returncode == 0, done.stdout
    ran: dict[str, list[str]] = {}
    for line in (tmp_path / "said").read_text().splitlines():
        pid, _, what = line.partition(" ")
        ran.setdefault(pid, []).append(what)
    assert len(ran) == 2
    assert all(whats[-1] == "end" and whats.count("end") == 1 for whats in ran.values())
    tests = [what for whats in ran.values() for what in whats if what != "end"]
    assert len(tests) == len(set(tests)) == 14
    for file in {test.partition("::")[0] for test in tests}:
        (whats,) = [whats for whats in ran.values() if f"{file}::test_one" in whats]
        assert whats.index(f"{file}::test_two") == whats.index(f"{file}::test_one") + 1
    (with_spark,) = [whats for whats in ran.values() if any("pipeline" in what for what in whats)]
    assert all("pipeline" in what for what in with_spark[:6])


def test_the_first_failure_ends_it_if_that_is_asked_for(tmp_path: Path) -> None:
    files = {f"tests/unit/test_f{n}.py": "def test_it(): assert 0\n" for n in range(9)}
    done = run(tmp_path, files, "--processes", "2", "-x")
    assert done.returncode == 1 and "stopping after 1 failures" in done.stdout, done.stdout


def test_tests_with_a_spark_session_are_two_processes_work_and_come_first() -> None:
    folders = ("unit", "pipeline/source", "pipeline/jobs", "pipeline/sql", "pipeline", "pipeline/processes")
    units = Units(f"tests/{folder}/test_it.py::test_it" for folder in folders)
    assert [units.take(0) for _ in range(4)] == [[2], [1, 3, 4], [0], [5]]


def test_one_half_begins_with_tests_that_wait_and_helps_the_other() -> None:
    waiting = [f"tests/integration/test_{n}.py::test_it" for n in range(3)]
    computing = [f"tests/unit/test_{n}.py::test_it" for n in range(3)]
    units = Units([*waiting, *computing])
    assert [units.take(1) for _ in range(5)] == [[0], [1], [2], [5], [4]]
    units.put_back([7, 8])
    assert [units.take(2) for _ in range(3)] == [[7, 8], [3], []]
