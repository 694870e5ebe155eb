"""ARCHITECTURE.md is a map: the files that it names exist. So is each folder of the package: it says what it is for and
what to read, and has no more entries than can be seen at once."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "maxq"


def test_every_file_that_the_map_names_exists() -> None:
    found = [path for top in ("src", "tests", "docs", "fuzz") for path in (ROOT / top).rglob("*.*")]
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in (*found, *ROOT.glob("*.*"))]
    named = set(re.findall(r"`([\w./-]+\.(?:py|pyi|pxd|java|md))`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert len(named) > 100
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)] == []


WALK = re.compile(r"^\*\*(?P<title>[^*]+)\*\* \((?P<steps>\d+) steps\)(?P<text>.*?)(?=^\*\*|^## )", re.M | re.S)


def walks() -> dict[str, tuple[int, list[tuple[str, list[str]]]]]:
    """The walks of the map: how many steps it says they have, and the file and the names of each."""
    found = {}
    for walk in WALK.finditer((ROOT / "ARCHITECTURE.md").read_text()):
        rows = re.findall(r"^\| `([\w/.]+)` \| (`[^|]+`) \|", walk["text"], re.M)
        found[walk["title"]] = int(walk["steps"]), [(file, re.findall(r"`([\w.]+)`", names)) for file, names in rows]
    return found


def names_of(path: Path) -> set[str]:
    """Functions, classes and methods of a module, as `f`, `C` and `C.m`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
            if isinstance(node, ast.ClassDef):
                inner = (one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
                found |= {f"{node.name}.{one.name}" for one in inner}
    return found


def test_the_walks_name_what_there_is_and_as_many_steps_as_they_say() -> None:
    found = walks()
    assert len(found) == 3
    for title, (steps, rows) in found.items():
        assert len(rows) == steps, title
        for file, names in rows:
            assert names and set(names) <= names_of(PACKAGE / file), (title, file)


FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(PACKAGE).as_posix())
def test_a_folder_says_what_it_is_for_and_names_files_that_exist(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    assert folder == PACKAGE or len(text.splitlines()) >= 3
    named = re.findall(r"`([\w/]+\.pyi?)`", text)
    assert [name for name in named if not any((top / name).exists() for top in (folder, PACKAGE))] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(PACKAGE).as_posix())
def test_a_folder_has_twenty_entries_at_most(folder: Path) -> None:
    """The package itself has the layers of ARCHITECTURE.md, of which each has its line there. A folder that moved away
    leaves its bytecode behind in a tree that is updated."""
    kept = [path for path in folder.iterdir() if path.suffix or any(path.rglob("*.py"))]
    entries = {path.name.partition(".")[0] for path in kept} - {"cython_shared"}
    assert len(entries) <= (27 if folder == PACKAGE else 20)
