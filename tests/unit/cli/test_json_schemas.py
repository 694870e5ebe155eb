"""`maxq schema`: there is a schema for every --json, and none for anything else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from maxq.cli.app import group, run
from maxq.cli.json_schemas import LINES, SCHEMAS, schema_of


def _with_json(words: tuple[str, ...], command: Any) -> Iterator[str]:
    if any("--json" in option.opts for option in command.params):
        yield " ".join(words)
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from _with_json((*words, name), command.get_command(None, name))


def test_each_command_with_json_has_a_schema() -> None:
    assert set(SCHEMAS) == set(_with_json((), group)) - {"produce"}, "produce takes JSON"
    assert set(LINES) <= set(SCHEMAS)


@pytest.mark.parametrize("command", SCHEMAS)
def test_a_schema_is_one(command: str) -> None:
    schema = schema_of(command)
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"maxq {command} --json" and schema["$schema"].endswith("2020-12/schema")


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "admin", "topicStatus"]) == 0
    schema = json.loads(capsys.readouterr().out)
    row = schema["items"]["properties"]
    assert schema["type"] == "array" and row["maxOffset"] == {"type": "integer"}
    assert run(["schema", "consume"]) == 0
    assert json.loads(capsys.readouterr().out)["description"].startswith("Each line of the output")
    assert run(["schema"]) == 0
    assert "admin topicStatus\n" in capsys.readouterr().out


def test_what_has_no_json_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "admin", "topicStat"]) == 2
    assert "'admin topicStat' has no --json; did you mean admin topicStatus?" in capsys.readouterr().err
    assert run(["schema", "standalone"]) == 2
    assert "maxq schema lists the commands that have" in capsys.readouterr().err
