"""A report: one HTML file that needs nothing else, not even a network. Light, dark, and on paper.

    report = Report("Audit of broker-a", made_ms=clock.wall_ms())
    report.facts({"Store": "/data/store", "Files": "12"})
    report.heading("Faults")
    report.paragraph("Every ConsumeQueue entry was compared with the log.")
    report.table([Column("File"), Column("Position", Unit.BYTES)], rows, total=12_345)
    report.plot(lines([Series("p99", times, values)], y=Unit.MILLIS), "Latency over time")
    report.write(Path("audit.html"))

All given text is escaped on the page, because topics, keys and bodies come from strangers. Markup is escaped, control
and direction characters are shown as their numbers, long values are cut, and the page forbids scripts and loading.
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from maxq.pipeline.reports.page_style import STYLE
from maxq.pipeline.reports.quantities import Unit, format_value, grouped, time_text

ROWS_MAX: Final = 200
_TEXT_MAX: Final = 300
_CONTENTS_FROM: Final = 4
_WHOLE_MAX: Final = 34  # characters of a cell that stay on one line; a message id has 32
_LEFT: Final = (Unit.TEXT, Unit.TIME)
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff\ud800-\udfff]"
)
_THIN_SPACE: Final = "\u202f"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its head.
        unit: of its values; all but text stand to the right.
        help: what it means, shown when the pointer rests on the head.
    """

    name: str
    unit: Unit = Unit.TEXT
    help: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing.

    Attributes:
        svg: one `<svg>` element.
        text: what it shows, in words, for who can not see it.
    """

    svg: str
    text: str


def plain_text(value: object, most: int = _TEXT_MAX) -> str:
    """Return a text of unknown origin without characters that hide or reorder others, cut to `most` characters."""
    text = str(value)
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return _UNSEEN.sub(lambda found: found[0] if found[0] == _THIN_SPACE else f"‹{ord(found[0]):X}›", cut)


def _escaped(value: object, most: int = _TEXT_MAX) -> str:
    return html.escape(plain_text(value, most))


class ReportPage:
    """Builds a page from parts, in the order in which they are added; every method returns the report itself.

    Args:
        title: of the page.
        made_ms: when it was made, milliseconds since 1970; None leaves it out.
    """

    def __init__(self, title: str, *, made_ms: int | None = None) -> None:
        self._title = title
        self._made_ms = made_ms
        self._parts: list[str] = []
        self._headings: list[str] = []

    def facts(self, facts: Mapping[str, object]) -> Self:
        """Add names and values, such as what was read: topics, offsets, times."""
        rows = "".join(f"<dt>{_escaped(name)}</dt><dd>{_escaped(value)}</dd>" for name, value in facts.items())
        return self._add(f'<dl class="facts">{rows}</dl>')

    def figures(self, figures: Mapping[str, tuple[Any, Unit]]) -> Self:
        """Add the few numbers that matter most, in large type: name → value and unit."""
        tiles = "".join(
            f"<div><b>{_escaped(format_value(value, unit))}</b><span>{_escaped(name)}</span></div>"
            for name, (value, unit) in figures.items()
        )
        return self._add(f'<div class="figures">{tiles}</div>')

    def heading(self, text: str) -> Self:
        """Begin a section of the page with a heading."""
        self._headings.append(text)
        return self._add(f'<h2 id="s{len(self._headings)}">{_escaped(text)}</h2>')

    def paragraph(self, text: str) -> Self:
        """Add a paragraph of text to the section."""
        return self._add(f"<p>{_escaped(text, 10 * _TEXT_MAX)}</p>")

    def warning(self, text: str) -> Self:
        """Add a warning that the reader must see before trusting the numbers."""
        return self._add(f'<p class="warning" role="note">{_escaped(text, 10 * _TEXT_MAX)}</p>')

    def table(
        self,
        columns: Sequence[Column | str],
        rows: Sequence[Sequence[Any]],
        caption: str = "",
        *,
        most: int = ROWS_MAX,
        total: int | None = None,
    ) -> Self:
        """Add a table; it says so if there are more rows than it shows.

        Args:
            columns: a bare name is a column of text.
            rows: a value for each column; None is shown as a dash.
            most: show so many.
            total: how many there are, if `rows` are only the first of them.
        """
        heads = [Column(column) if isinstance(column, str) else column for column in columns]
        there = max(total or 0, len(rows))
        shown = min(len(rows), most)
        parts = ["<figure><div class=scroll><table>"]
        if caption:
            parts.append(f"<caption>{_escaped(caption)}</caption>")
        parts.append(f"<thead><tr>{''.join(map(_head, heads))}</tr></thead><tbody>")
        for row in rows[:shown]:
            cells = (_cell(value, column.unit) for value, column in zip(row, heads, strict=True))
            parts.append(f"<tr>{''.join(cells)}</tr>")
        if not rows:
            parts.append(f'<tr><td colspan="{len(heads)}" class="none">{"not shown" if there else "none"}</td></tr>')
        parts.append("</tbody></table></div>")
        if there > shown:
            parts.append(f"<figcaption>The first {grouped(shown)} of {grouped(there)} rows.</figcaption>")
        return self._add("".join(parts) + "</figure>")

    def plot(self, plot: Plot, caption: str = "") -> Self:
        """Add a drawing with its caption above it."""
        head = f"<figcaption>{_escaped(caption)}</figcaption>" if caption else ""
        label = html.escape(plain_text(plot.text), quote=True)
        return self._add(f'<figure class="plot">{head}<div role="img" aria-label="{label}">{plot.svg}</div></figure>')

    def html(self) -> str:
        """Return the whole page as HTML."""
        title = _escaped(self._title)
        made = "" if self._made_ms is None else f'<p class="made">Made {time_text(self._made_ms)} by MaxQ</p>'
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta name="color-scheme" content="light dark">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            f"<style>{STYLE}</style></head>\n<body><main><header><h1>{title}</h1>{made}</header>\n"
            f"{self._contents()}" + "\n".join(self._parts) + "\n</main></body></html>\n"
        )

    def write(self, path: Path) -> Path:
        """Write the page; the folder must be there. Gives the path."""
        path.write_text(self.html(), encoding="utf-8")
        return path

    def _contents(self) -> str:
        if len(self._headings) < _CONTENTS_FROM:
            return ""
        links = "".join(
            f'<a href="#s{number}">{_escaped(text)}</a>' for number, text in enumerate(self._headings, start=1)
        )
        return f'<nav aria-label="Contents">{links}</nav>\n'

    def _add(self, part: str) -> Self:
        self._parts.append(part)
        return self


def _head(column: Column) -> str:
    side = "" if column.unit in _LEFT else ' class="n"'
    help_text = f' title="{_escaped(column.help)}"' if column.help else ""
    zone = ", UTC" if column.unit is Unit.TIME else ""
    return f'<th scope="col"{side}{help_text}>{_escaped(column.name)}{zone}</th>'


def _cell(value: Any, unit: Unit) -> str:
    text = ("no", "yes")[value] if isinstance(value, bool) else format_value(value, unit)
    if unit is Unit.TIME:
        text = text.removesuffix(" UTC")  # the head says so
    kind = "n" if unit not in _LEFT else "w" if len(text) > _WHOLE_MAX else "s"
    return f'<td class="{kind}">{_escaped(text)}</td>'
