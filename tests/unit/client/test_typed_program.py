"""Users' programs are type-checked against the package: every public call and every setting is known, and what is wrong
is found before it runs."""

import ast
import importlib
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import maxq
from maxq import aio, api
from maxq.client import settings
from maxq.client.blocking import calls
from tests.unit.client import setting_types

PROGRAM = Path(__file__).with_name("typed_program.py")
MISTAKES = Path(__file__).with_name("wrong_program.py")
ROOT = Path(__file__).parents[3]
SOURCES = Path(maxq.__file__).parents[1]
CLIENTS = ("Producer", "TransactionProducer", "PushConsumer", "LitePullConsumer", "SimpleConsumer", "Admin")
#: A mistake has a comment that says what mypy calls it; other checkers must not know that.
IGNORED = re.compile("  # type: ignore.*")


def test_settings_are_those_of_the_configs() -> None:
    remedy = "run `python -m tests.unit.client.setting_types`"
    assert setting_types.SETTINGS.read_text() == setting_types.text(), remedy


def test_both_modules_have_the_same_names() -> None:
    assert [name for name in api.__all__ if not name.startswith("async_")] == aio.__all__


def methods(client: str) -> Iterator[str]:
    """The public calls of a blocking client; those of its asynchronous twin are the same."""
    for name, value in inspect.getmembers(getattr(api, client)):
        if not name.startswith("_") and inspect.isfunction(value):
            yield name


def test_the_program_makes_every_call_with_every_setting() -> None:
    tree = ast.parse(PROGRAM.read_text())
    functions = {
        node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    missing = []
    for client in CLIENTS:
        kind = "Producer" if client == "TransactionProducer" else client
        typed = getattr(settings, f"{'Client' if client == 'Admin' else kind}Settings")
        for module, prefix in ((api, ""), (aio, "async_")):
            of = {
                "TransactionProducer": "producers", "PushConsumer": "push_consumers",
                "LitePullConsumer": "lite_pull_consumers", "SimpleConsumer": "simple_consumers",
            }.get(client, f"{client.lower()}s")  # fmt: skip
            text = functions[prefix + of]
            made = text[text.index(f"{module.__name__.removeprefix('maxq.')}.{client}(") :]
            made = made[: made.index("\n    ")]
            missing += [(module.__name__, client, name) for name in typed.__annotations__ if f"{name}=" not in made]
            missing += [
                (module.__name__, client, name)
                for name in methods(client)
                if f".{name}(" not in text and not (prefix and name == "run")
            ]
    for part, kind in calls.ADMIN_PARTS.items():
        of_part = getattr(importlib.import_module(f"maxq.client.admin.{part}"), kind)
        for name, value in vars(of_part).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                call = f"admin.{part}.{name}("
                missing += [(at, call) for at in (part, f"async_{part}") if call not in functions[at]]
    assert missing == []


def test_make_types_checks_the_program_and_the_mistakes() -> None:
    """mypy, which takes them among our own: what it knows of our modules is made once."""
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert mypy["strict"] is True
    assert {str(path.relative_to(ROOT)) for path in (PROGRAM, MISTAKES)} <= set(mypy["files"])


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed (npm install -g pyright)")
def test_strict_pyright_passes_on_the_program_and_finds_what_is_wrong(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "program.py")
    text = MISTAKES.read_text()
    (tmp_path / "wrong.py").write_text(IGNORED.sub("", text))
    lines = {number for number, line in enumerate(text.splitlines(), 1) if IGNORED.search(line)}
    config = f'{{"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": ["{SOURCES}"]}}'
    (tmp_path / "pyrightconfig.json").write_text(config)
    command = ["pyright", "--pythonpath", sys.executable, "program.py", "wrong.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    errors = [line.strip() for line in ended.stdout.splitlines() if " - error: " in line]
    places = [error.split(" - ")[0].rsplit(":", 2) for error in errors]
    assert [place for place in places if not place[0].endswith("wrong.py")] == [], ended.stdout
    assert {int(place[1]) for place in places} == lines, ended.stdout
