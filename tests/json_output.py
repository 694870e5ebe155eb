"""Is what a command printed with --json as `maxq schema` says?"""

from typing import Any

from jsonschema import Draft202012Validator

from maxq.cli.json_schemas import schema_of


def check_output(command: str, value: Any, *, closed: bool = True) -> None:
    """Raise AssertionError if the value is not as the schema of the command says.

    Args:
        closed: members that the schema does not know are wrong, too.
    """
    schema = schema_of(command)
    errors = list(Draft202012Validator(_closed(schema) if closed else schema).iter_errors(value))
    assert not errors, "\n".join(f"{command}: {error.json_path}: {error.message:.300}" for error in errors)


def _closed(schema: Any) -> Any:
    """The schema without its tolerance of members that later releases add."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    is_open = "properties" in closed and "additionalProperties" not in closed
    return {**closed, "additionalProperties": False} if is_open else closed
