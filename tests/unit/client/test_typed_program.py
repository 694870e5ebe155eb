"""Users' programs are type-checked against the package: every public call and every setting is known, and what is wrong
is found before it runs."""

import ast
import importlib
import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import maxq
from maxq import aio, api
from maxq.client import settings
from maxq.client.blocking import calls
from tests.unit.client import setting_types

PROGRAM = Path(__file__).with_name("typed_program.py")
SOURCES = Path(maxq.__file__).parents[1]
CLIENTS = ("Producer", "TransactionProducer", "PushConsumer", "LitePullConsumer", "SimpleConsumer", "Admin")
WRONG = """\
from maxq import aio, api

api.Producer("p", "a:1", send_msg_timeot=1)
aio.Producer("p", "a:1", send_msg_timeout="1")
api.PushConsumer("p", "a:1", lambda messages, context: None, auto_commit=True)
api.async_lite_pull_consumer("p", "a:1", auto_comit=True)
with api.Producer("p", "a:1") as producer:
    producer.send("text")
"""
WRONG_LINES = {3, 4, 5, 6, 8}


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


def test_strict_mypy_passes_on_the_program_and_finds_what_is_wrong(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "program.py")
    (tmp_path / "wrong.py").write_text(WRONG)
    cache = Path(__file__).parents[3] / ".mypy_cache" / "user"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    ended = subprocess.run(
        [*command, "program.py", "wrong.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    errors = [line.split(":") for line in ended.stdout.splitlines() if ": error:" in line]
    assert [error for error in errors if error[0] != "wrong.py"] == [], ended.stderr
    assert {int(error[1]) for error in errors} == WRONG_LINES, ended.stdout + ended.stderr


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed (npm install -g pyright)")
def test_strict_pyright_passes_on_the_program_and_finds_what_is_wrong(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "program.py")
    (tmp_path / "wrong.py").write_text(WRONG)
    config = f'{{"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": ["{SOURCES}"]}}'
    (tmp_path / "pyrightconfig.json").write_text(config)
    command = ["pyright", "--pythonpath", sys.executable, "program.py", "wrong.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    errors = [line.strip() for line in ended.stdout.splitlines() if " - error: " in line]
    places = [error.split(" - ")[0].rsplit(":", 2) for error in errors]
    assert [place for place in places if not place[0].endswith("wrong.py")] == [], ended.stdout
    assert {int(place[1]) for place in places} == WRONG_LINES, ended.stdout
