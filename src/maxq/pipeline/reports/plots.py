"""Drawings for reports: matplotlib's, as SVG whose text is text and whose colours are the page's.

matplotlib writes the colours that it is given, so it is given placeholders, which become variables of the page's style:
one drawing serves light, dark and paper. Its objects are used without pyplot, which keeps figures in a global.
"""

import datetime
import io
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, MultipleLocator

from maxq.pipeline.reports.page import Plot, plain_text
from maxq.pipeline.reports.quantities import Unit, format_value

_WIDTH: Final = 10.0  # inches; 720 units across the page
_NAME_MAX: Final = 48
_SERIES_MAX: Final = 8
_TICKS: Final = 5
_LEGEND_COLUMNS: Final = 4
_LEGEND_ROW: Final = 0.19  # inches
_LETTER: Final = 0.075  # inches, a letter of a legend on average, and somewhat more
_LEGEND_SIDES: Final = 0.55  # inches of each entry that are no letters
_DECADES: Final = 2  # on an axis with fewer, 2 and 5 are named, too
_LONE_TIME: Final = datetime.timedelta(seconds=30)  # margin on both sides of a time axis that has only one time
_CLOCK_STEPS: Final = tuple(  # milliseconds, from 15 s to 20 days
    scale * count
    for scale, counts in (
        (1000, (15, 30)),
        (60_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000, (1, 2, 4, 6, 12)),
        (86_400_000, (1, 2, 5, 10, 20)),
    )
    for count in counts
)
_COLOURS: Final = tuple(f"#fa0af{number}" for number in range(1, _SERIES_MAX + 1))
_INK, _MUTED, _LINE = "#fa0afa", "#fa0afb", "#fa0afc"
_VARIABLES: Final = {
    **{colour: f"var(--c{number})" for number, colour in enumerate(_COLOURS, start=1)},
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _LINE: "var(--line)",
}
_SETTINGS: Final[dict[str, Any]] = {
    "svg.fonttype": "none",
    "svg.id": None,
    "svg.hashsalt": "maxq",
    "text.parse_math": False,  # a topic may be called $x$
    "axes.unicode_minus": True,
    "font.size": 9.0,
    "text.color": _INK,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _MUTED,
    "axes.linewidth": 0.6,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.0,
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True, slots=True)
class Series:
    """A named line: `x` in one unit (milliseconds since 1970 for Unit.TIME), `y` in one; None breaks the line."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]


def lines(
    series: Sequence[Series],
    *,
    y: Unit,
    x: Unit = Unit.TIME,
    logarithmic: bool = False,
    logarithmic_x: bool = False,
    limit: tuple[str, float] | None = None,
    height: float = 2.6,
) -> Plot:
    """Plot lines over time or another quantity, at most eight.

    Args:
        y, x: units of the axes.
        logarithmic, logarithmic_x: of y, of x, for latencies.
        limit: a name and a value: a dashed line across.
        height: inches, of a width of 10.
    """
    shown = series[:_SERIES_MAX]
    names = [_name(one.name) for one in shown] if len(shown) > 1 else []
    with _drawing(height + _LEGEND_ROW * max(_legend_rows(names) - 1, 0)) as (figure, axes):
        for one, colour in zip(shown, _COLOURS, strict=False):
            points = [float("nan") if value is None else value for value in one.y]
            lone = _lone_points(one.y)
            axes.plot(
                _positions(one.x, x), points, color=colour, label=_name(one.name), marker="o" if lone else "",
                markersize=4, markevery=lone,
            )  # fmt: skip
        if limit is not None:
            axes.axhline(limit[1], color=_INK, linewidth=0.9, linestyle=(0, (4, 3)))
            axes.annotate(
                f"{_name(limit[0])}: {format_value(limit[1], y)}", (1, limit[1]), xycoords=("axes fraction", "data"),
                xytext=(0, 4), textcoords="offset points", ha="right", fontsize=8,
            )  # fmt: skip
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=min(0, *(value for one in shown for value in one.y if value is not None), 0))
        if logarithmic_x:
            axes.set_xscale("log")
        elif x is not Unit.TIME:
            axes.set_xlim(left=min(0, *(value for one in shown for value in one.x), 0))
        if x is Unit.TIME:
            _widen_lone_time(axes, shown)
        _axis(axes, "y", y)
        _axis(axes, "x", x)
        axes.grid(axis="y", color=_LINE, linewidth=0.6)
        _legend(figure, axes, names)
        svg = _svg(figure)
    return Plot(svg, f"{len(shown)} lines: {', '.join(_name(one.name) for one in shown)}")


def bars(
    names: Sequence[str], values: Sequence[float], *, unit: Unit, parts: Sequence[Sequence[float]] = (),
    part_names: Sequence[str] = (),
    colours: Sequence[int] = (),
) -> Plot:  # fmt: skip
    """Plot horizontal bars, the first at the top, each with its value.

    Args:
        values: lengths, or their sums if there are `parts`.
        parts: for every part a length for each bar; they follow one another. `part_names` are their names,
            `colours` their numbers in the page's style, from 1.
    """
    of_parts = [_name(name) for name in part_names] if parts else []
    with _drawing(0.5 + 0.27 * max(len(names), 1) + _LEGEND_ROW * _legend_rows(of_parts)) as (figure, axes):
        rows = list(range(len(names)))
        begun = [0.0] * len(names)
        order = colours or [number % _SERIES_MAX + 1 for number in range(len(parts) or 1)]
        for number, lengths in enumerate(parts or [values]):
            label = of_parts[number] if parts else None
            axes.barh(rows, lengths, 0.66, left=begun, color=_COLOURS[order[number] - 1], label=label)
            begun = [start + length for start, length in zip(begun, lengths, strict=True)]
        for row, value in zip(rows, values, strict=True):
            axes.annotate(
                format_value(value, unit), (begun[row], row), xytext=(5, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(rows, [_name(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, max([*begun, 0]) * 1.12 or 1)
        axes.tick_params(axis="y", labelcolor=_INK)
        axes.get_xaxis().set_visible(False)
        axes.spines["bottom"].set_visible(False)
        axes.spines["left"].set_visible(True)
        _legend(figure, axes, of_parts)
        svg = _svg(figure)
    told = ", ".join(f"{_name(name)} {format_value(value, unit)}" for name, value in zip(names, values, strict=True))
    return Plot(svg, f"bars: {told}")


def _name(text: str) -> str:
    """Shorten a name in the middle, because names of groups or files may differ at either end."""
    if len(text) > _NAME_MAX:
        text = f"{text[: _NAME_MAX // 2 - 1]}…{text[-_NAME_MAX // 2 :]}"
    name = plain_text(text)
    return f" {name}" if name.startswith("_") else name  # matplotlib leaves names with _ first out of legends


def _lone_points(values: Sequence[float | None]) -> list[int]:
    """Return the indexes of values without neighbours, which no line would show; all indexes if there are one or two
    values."""
    there = [place for place, value in enumerate(values) if value is not None]
    if len(there) <= 2:
        return there
    known = set(there)
    return [place for place in there if not {place - 1, place + 1} & known]


def _positions(values: Sequence[float], unit: Unit) -> list[Any]:
    if unit is Unit.TIME:
        return [datetime.datetime.fromtimestamp(value / 1000, datetime.UTC) for value in values]
    return list(values)


def _axis(axes: Axes, which: Literal["x", "y"], unit: Unit) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    if unit is Unit.TIME:
        locator = AutoDateLocator(tz=datetime.UTC, minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator, tz=datetime.UTC))  # type: ignore[no-untyped-call]
        axes.set_xlabel("UTC", loc="left", fontsize=8)
        return
    axes.tick_params(axis=which, which="minor", size=0)
    if axis.get_scale() == "linear":
        axis.set_major_locator(_ticks(axes.get_ylim()[1] if which == "y" else axes.get_xlim()[1], unit))
    else:
        low, high = axes.get_ylim() if which == "y" else axes.get_xlim()
        if high < low * 10**_DECADES:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value, unit)))


def _widen_lone_time(axes: Axes, series: Sequence[Series]) -> None:
    """Widen the axis of a single time, which would otherwise span years."""
    times = {time for one in series for time in one.x}
    if len(times) == 1:
        (time,) = _positions([*times], Unit.TIME)
        axes.set_xlim(time - _LONE_TIME, time + _LONE_TIME)


def _ticks(top: float, unit: Unit) -> Locator:
    """Choose about five round ticks: bytes are round in the binary system, durations in that of clocks."""
    if unit in (Unit.BYTES, Unit.BYTE_RATE) and top > _TICKS:
        return MultipleLocator(2.0 ** math.ceil(math.log2(top / _TICKS)))
    if unit is Unit.MILLIS and top > _CLOCK_STEPS[0]:
        step = next((step for step in _CLOCK_STEPS if top / step <= _TICKS), None)
        if step is not None:
            return MultipleLocator(step)
    return MaxNLocator(_TICKS, integer=unit is Unit.COUNT)


def _legend_columns(names: Sequence[str]) -> int:
    """Return the number of columns of a legend: as many as fit into the page."""
    entry = _LETTER * max((len(name) for name in names), default=0) + _LEGEND_SIDES
    return max(1, min(_LEGEND_COLUMNS, int(_WIDTH / entry)))


def _legend_rows(names: Sequence[str]) -> int:
    return math.ceil(len(names) / _legend_columns(names))


def _legend(figure: Figure, axes: Axes, names: Sequence[str]) -> None:
    """Place the legend above the drawing, if there are names."""
    if names:
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper left", ncols=_legend_columns(names), frameon=False,
            borderaxespad=0.2, handlelength=1.2, columnspacing=1.6, fontsize=9,
        )  # fmt: skip


@contextmanager
def _drawing(height: float) -> Iterator[tuple[Figure, Axes]]:
    with matplotlib.rc_context(_SETTINGS):  # type: ignore[arg-type]
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.spines[["top", "right", "left"]].set_visible(False)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        yield figure, axes


def _svg(figure: Figure) -> str:
    """Return the `<svg>` element alone, without size, with the page's colours and font; its ids occur in this drawing
    only."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for placeholder, variable in _VARIABLES.items():
        text = text.replace(placeholder, variable)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    own = f"p{zlib.crc32(text.encode()):x}"
    text = re.sub(r'\bid="', f'id="{own}-', text)
    text = text.replace('href="#', f'href="#{own}-').replace("url(#", f"url(#{own}-")
    return re.sub(r"\s*\n\s*", "\n", text).strip()
