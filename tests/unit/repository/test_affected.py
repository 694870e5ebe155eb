"""The choice of `make check`: what a change can break, nearest first, and a core that is always there."""

import subprocess
from pathlib import Path

import grimp
import pytest

from tests.affected import CORE, ROOT, changed_files, modules_of, nearest_tests

IMPORTS = {
    "maxq.store": ["maxq.log"],
    "maxq.log": ["maxq.record_cy"],
    "tests.unit.test_record": ["maxq.record_cy"],
    "tests.unit.test_log": ["tests.unit.log_world"],
    "tests.unit.log_world": ["maxq.log"],
    "tests.unit.test_store": ["maxq.store", "maxq.log"],
    "tests.unit.test_other": ["maxq.other"],
    "tests.integration.test_broker": ["maxq.store"],
}


@pytest.fixture
def graph() -> grimp.ImportGraph:
    made = grimp.ImportGraph()
    for importer, imported in IMPORTS.items():
        for one in imported:
            made.add_import(importer=importer, imported=one)
    made.add_module("tests.unit.conftest")
    return made


def test_tests_come_in_the_order_of_their_distance_and_only_those_that_reach_the_change(
    graph: grimp.ImportGraph,
) -> None:
    wanted = ["tests.unit.test_record", "tests.unit.test_store", "tests.unit.test_log"]
    assert nearest_tests({"maxq.record_cy"}, graph) == wanted
    assert nearest_tests({"maxq.record_cy"}, graph, most=2) == wanted[:2]
    assert nearest_tests({"tests.unit.test_other"}, graph) == ["tests.unit.test_other"]
    assert nearest_tests(set(), graph) == []


def test_files_are_modules_of_sources_and_of_what_is_compiled_with_them(
    graph: grimp.ImportGraph, tmp_path: Path
) -> None:
    (tmp_path / "src/maxq").mkdir(parents=True)
    (tmp_path / "src/maxq/record_cy.py").write_text("from cython.cimports.maxq.layout import SIZE\n")
    files = ["src/maxq/layout.pxd", "src/maxq/log.py", "tests/unit/test_log.py", "docs/README.md", "src/maxq/gone.py"]
    assert modules_of(files, graph, tmp_path) == {"maxq.record_cy", "maxq.log", "tests.unit.test_log"}
    assert "tests.unit.test_other" in modules_of(["tests/unit/conftest.py"], graph)


def test_what_was_committed_changed_and_made_since_a_branch_left_its_base_is_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "-q", "-b", "main")
    for name in ("kept.py", "edited.py"):
        (tmp_path / name).write_text("1\n")
    git("add", ".")
    git("commit", "-q", "-m", "base")
    assert changed_files("main", tmp_path) == []
    git("switch", "-q", "-c", "work")
    (tmp_path / "committed.py").write_text("1\n")
    git("add", ".")
    git("commit", "-q", "-m", "work")
    (tmp_path / "edited.py").write_text("2\n")
    (tmp_path / "made.py").write_text("1\n")
    assert sorted(changed_files("main", tmp_path)) == ["committed.py", "edited.py", "made.py"]
    assert sorted(changed_files("no-such-branch", tmp_path)) == ["edited.py", "made.py"]


@pytest.mark.parametrize("file", CORE)
def test_the_core_is_there(file: str) -> None:
    assert (ROOT / file).is_file()
