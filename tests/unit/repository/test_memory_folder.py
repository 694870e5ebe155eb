"""Runs of the tests make their files in memory where there is room, and leave nothing there."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TESTS = """
    import tempfile
    def test_passes(tmp_path):
        (tmp_path / "a file").write_text("of one that passes")
        print("folders:", tmp_path, tempfile.gettempdir())
    def test_ends(tmp_path):
        (tmp_path / "a file").write_text("of the other")
        assert {ends}
"""


def run(folder: Path, ends: bool, room: int) -> tuple[str, list[Path]]:
    """Return what a run says, and the folders that its first test had."""
    (folder / "memory").mkdir()  # stands for the file system in memory
    (folder / "needed.py").write_text(
        "import pathlib\n"
        "import tests.memory_folder\n"
        f"tests.memory_folder.MEMORY = pathlib.Path({str(folder / 'memory')!r})\n"
        f"tests.memory_folder.ROOM = {room}\n"
    )
    (folder / "test_a.py").write_text(TESTS.format(ends=ends).replace("\n    ", "\n"))
    (folder / "disk").mkdir()
    options = ["-o", "tmp_path_retention_policy=failed", "-p", "needed", "-p", "tests.memory_folder", "-c", os.devnull]
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": f"{ROOT}:{folder}",
        "TMPDIR": f"{folder}/disk",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--rootdir", str(folder), *options]
    done = subprocess.run(
        [*command, "test_a.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == (not ends), done.stdout + done.stderr
    said = re.search("folders: (.*)", done.stdout)
    assert said is not None, done.stdout
    return done.stdout, [Path(name) for name in said[1].split()]


def test_files_are_in_memory_and_gone_at_the_end(tmp_path: Path) -> None:
    _, folders = run(tmp_path, ends=True, room=0)
    for folder in folders:
        assert tmp_path / "memory" in folder.parents
        assert not folder.exists()
    assert not any((tmp_path / "disk").iterdir())


def test_what_a_failed_run_left_is_on_the_disk(tmp_path: Path) -> None:
    said, folders = run(tmp_path, ends=False, room=0)
    assert not folders[-1].exists()
    kept = re.search(rf"^what was in {folders[-1]} is in (.*) now$", said, re.MULTILINE)
    assert kept is not None, said
    assert [path.read_text() for path in (tmp_path / "disk").glob("maxq-tests-*/**/test_ends0/a file")] == [
        "of the other"
    ]
    assert Path(kept[1]).parent == tmp_path / "disk"


def test_files_are_on_the_disk_where_memory_has_no_room(tmp_path: Path) -> None:
    _, folders = run(tmp_path, ends=True, room=1 << 60)
    assert all(tmp_path / "disk" in [folder, *folder.parents] for folder in folders)
