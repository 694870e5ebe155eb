"""Writes maxq/client/settings.py: what type checkers, editors and `help()` know of the settings given by keyword.

python -m tests.unit.client.setting_types
"""

import ast
import inspect
import io
import textwrap
import tokenize
from pathlib import Path
from typing import NamedTuple

from maxq.client import client_config
from tests.ruff_formatted import ruff_formatted

SETTINGS = Path(client_config.__file__).with_name("settings.py")
_HEAD = '''"""The settings that clients take by keyword, as type checkers and editors see them.

Written by `python -m tests.unit.client.setting_types` from client_config.py.
"""
'''
#: What the clients take by position.
_ARGUMENTS = ("namesrv_addr", "producer_group", "consumer_group")


class Setting(NamedTuple):
    """One field of a config."""

    name: str
    annotation: str
    default: str
    comment: str


def classes(source: str) -> dict[str, tuple[str, list[Setting]]]:
    """Return the configs of client_config.py: class → base, fields. Each field is explained by the comment behind it,
    or by one before it that begins with `#:`."""
    comments = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found: dict[str, tuple[str, list[Setting]]] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or not node.name.endswith("Config"):
            continue
        fields = []
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None:
                above = comments.get(part.lineno - 1, "")
                comment = comments.get(part.lineno) or (above if above.startswith("#:") else "")
                fields.append(
                    Setting(
                        part.target.id,
                        ast.unparse(part.annotation),
                        ast.get_source_segment(source, part.value) or "",
                        comment.lstrip("#: ").strip().removesuffix("."),
                    )
                )
        found[node.name] = (ast.unparse(node.bases[0]) if node.bases else "", fields)
    return found


def text() -> str:
    """Return the text of settings.py."""
    source = Path(client_config.__file__).read_text()
    found = classes(source)
    parts, annotations = [], []
    for name, (base, fields) in found.items():
        inherited = set(_ARGUMENTS)
        above = base
        while above:
            inherited |= {field.name for field in found[above][1]}
            above = found[above][0]
        lines = [
            f"class {_typed(name)}({_typed(base) if base else 'TypedDict'}, total=False):",
            f'    """{(inspect.getdoc(getattr(client_config, name)) or "").splitlines()[0]}',
            "",
        ]
        if base:
            lines += [f"    The settings of {_typed(base)}, and these, with their defaults:", ""]
        else:
            lines += ["    With their defaults:", ""]
        for field in fields:
            if field.name not in _ARGUMENTS:
                lines += textwrap.wrap(_explained(field), 115, initial_indent="    ", subsequent_indent=" " * 8)
        lines += ['    """', ""]
        for field in fields:
            if field.name not in inherited:
                lines.append(f"    {field.name}: {field.annotation}")
                annotations.append(field.annotation)
        parts.append("\n".join(lines))
    return ruff_formatted(f"{_HEAD}\n{_imports(source, annotations)}\n\n" + "\n\n\n".join(parts) + "\n", SETTINGS)


def _typed(name: str) -> str:
    return name.removesuffix("Config") + "Settings"


def _explained(field: Setting) -> str:
    default = "" if field.default.startswith("field(") else f" ({field.default})"
    assert field.comment, f"client_config.py says nothing about {field.name}"
    return f"{field.name}{default}: {field.comment}."


def _imports(source: str, annotations: list[str]) -> str:
    names = {
        node.id for text in annotations for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)
    }
    lines = ["from typing import TypedDict"]
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (
            wanted := sorted(alias.name for alias in node.names if alias.name in names)
        ):
            lines.append(f"from {node.module} import {', '.join(wanted)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write settings.py."""
    SETTINGS.write_text(text())


if __name__ == "__main__":
    main()
