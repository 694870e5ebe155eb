"""The Makefile rebuilds what changed: it knows every file that the compiled modules are made of."""

import subprocess
from pathlib import Path

from setup import HOT_MODULES

ROOT = Path(__file__).parents[3]


def prerequisites(target: str) -> set[str]:
    """Files that make compares with `target`, as its own database of rules lists them."""
    # Make's exit status says whether the target is up to date, which is not what is asked.
    rules = subprocess.run(["make", "-pnq", "setup"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    (line,) = (line for line in rules.splitlines() if line.startswith(f"{target}:"))
    return set(line.partition(":")[2].split())


def test_a_change_of_any_compiled_source_sets_up_again() -> None:
    sources = {
        str(path.relative_to(ROOT)) for pattern in ("*_cy.py", "*.pxd") for path in (ROOT / "src").rglob(pattern)
    }
    assert len(sources) > 30
    assert sources | {"pyproject.toml", "setup.py"} == prerequisites(".venv/.ready")


def test_every_compiled_module_is_built() -> None:
    sources = {str(path.relative_to(ROOT / "src").with_suffix("")) for path in (ROOT / "src").rglob("*_cy.py")}
    assert {name.replace(".", "/") for name in HOT_MODULES} == sources
