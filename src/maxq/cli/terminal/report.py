"""The result of a command in the requested form: text, --json, --table or --csv.

Text is what mqadmin prints, as far as scripts may depend on it: column heads that begin with '#', padded columns. rich
is imported for --table only.
"""

import csv
import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
_SWITCHES: Final = {"true": True, "false": False}


class Style(Enum):
    """How reports are printed."""

    TEXT = "text"
    JSON = "json"
    TABLE = "table"
    CSV = "csv"


@dataclass(frozen=True)
class Report:
    """Rows under columns.

    Attributes:
        columns: JSON name → head of the column in text, such as {"brokerName": "#Broker Name"}.
        rows: a value for each column.
        value: what --json prints instead of the rows as objects.
        notes: lines after the table, in text only.
        text: replaces the table in text.
        failures: servers that did not do it, or topics that have nothing of it, and why; the command ends with code 1.
    """

    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]
    value: Any = None
    notes: Sequence[str] = ()
    text: str | None = None
    failures: Mapping[str, str] = field(default_factory=dict)

    def objects(self) -> Any:
        """Return what `--json` prints: a value that JSON can express."""
        if isinstance(self.value, dict) and self.failures:
            return {**self.value, "failures": dict(self.failures)}
        if self.value is not None:
            return self.value
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def json_values(texts: Mapping[str, str], *, names: Collection[str] = ()) -> dict[str, Any]:
    """Convert texts of a server for --json: numbers, true and false as JSON has them.

    Args:
        names: keys whose values are texts even if they look like numbers, such as brokerName.
    """
    return {key: text if key in names else json_value(text) for key, text in texts.items()}


def json_value(text: str) -> Any:
    """Return a number, True or False if the text is one; else the text."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return _SWITCHES.get(text, text)
    return float(text) if found[2] else int(text)


def pairs_report(values: Mapping[str, Any], value: Mapping[str, Any] | None = None) -> Report:
    """Report names and values; as JSON one object (`value`, if it is given), as text `name: value` lines with mqadmin's
    width of 32."""
    text = "".join(f"{name:<32}: {one}\n" for name, one in values.items())
    shown = dict(values if value is None else value)
    return Report({"key": "#Key", "value": "#Value"}, list(values.items()), value=shown, text=text)


def done_report(sentence: str, **facts: Any) -> Report:
    """Report success: mqadmin's sentence, and its facts for --json."""
    columns = {name: f"#{name}" for name in facts}
    return Report(columns, [list(facts.values())], value={"done": sentence, **facts}, text=sentence + "\n")


def show(report: Report, style: Style) -> None:
    """Print the report on standard output."""
    out = sys.stdout
    if style is Style.JSON:
        out.write(json.dumps(report.objects(), ensure_ascii=False, default=str) + "\n")
    elif style is Style.CSV:
        writer = csv.writer(out)
        writer.writerow(report.columns)
        writer.writerows([_cell(value) for value in row] for row in report.rows)
    elif style is Style.TABLE:
        _show_table(report)
    elif report.text is not None:
        out.write(report.text)
    else:
        out.write(_aligned(report))


def _aligned(report: Report) -> str:
    return "\n".join((*aligned_lines(report.columns.values(), report.rows), *report.notes)) + "\n"


def aligned_lines(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Return a table as lines of text: the heads and the rows, in columns of one width."""
    lines = [list(heads), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _show_table(report: Report) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    # What comes from messages is text, not markup, and a narrow terminal breaks it rather than cutting it.
    heads = (head.removeprefix("#") for head in report.columns.values())
    table = Table(*(Column(Text(head), overflow="fold") for head in heads))
    for row in report.rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console = Console()
    console.print(table)
    for note in report.notes:
        console.print(note, markup=False)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, (list, tuple, set)):
        return ",".join(str(item) for item in value) or "-"
    text = "" if value is None else str(value)
    return text or "-"
