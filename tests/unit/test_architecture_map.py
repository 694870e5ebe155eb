"""ARCHITECTURE.md is a map: the files that it names exist, and each folder of the package says what it is for."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "maxq"


def test_every_file_that_the_map_names_exists() -> None:
    found = [path for top in ("src", "tests", "docs", "fuzz") for path in (ROOT / top).rglob("*.*")]
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in (*found, *ROOT.glob("*.*"))]
    named = set(re.findall(r"`([\w./-]+\.(?:py|pyi|pxd|java|md))`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert len(named) > 100
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)] == []


def test_every_folder_says_what_it_is_for() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    silent = [folder for folder in folders if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))]
    assert sorted(str(folder.relative_to(PACKAGE)) for folder in silent) == []
