"""The pages of reports: valid, whole in themselves, safe with names of strangers. Without Spark."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from maxq.pipeline.reports.page import Column, Plot, ReportPage
from maxq.pipeline.reports.plots import Series, bars, lines
from maxq.pipeline.reports.quantities import Unit, duration_text, format_value, size_text, time_text

T0 = 1_700_000_000_000
HOSTILE = [
    "<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "a\u202egnp.exe", "\x00\x1b[31m\x01",
    "$x^$ $\\frac", "]]></svg><b>", "&lt;b&gt;", "\ud800", "x" * 5000,
]  # fmt: skip
VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Elements, their attributes and text; every element is closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}


def full_report(name: str = "Orders") -> ReportPage:
    times = [T0 + 1000 * step for step in range(10)]
    report = ReportPage(name, made_ms=T0).facts({name: name}).figures({name: (12_345, Unit.COUNT)})
    for _ in range(4):
        report.heading(name).paragraph(name).warning(name)
    report.table([Column(name, help=name), Column("n", Unit.COUNT)], [[name, 1], [None, None]], name)
    report.plot(
        lines([Series(name, times, [1, None, 3, 4, 5, 6, 7, 8, 9, 1])] * 2, y=Unit.MILLIS, limit=(name, 4)), name
    )
    return report.plot(bars([name, "b"], [1, 2], unit=Unit.BYTES), name)


def test_page_is_valid_and_needs_nothing_else(tmp_path: Path) -> None:
    path = full_report().write(tmp_path / "page.html")
    text = path.read_text("utf-8")
    page = Page(text)
    assert {"h1", "h2", "table", "svg", "nav", "figcaption"} <= page.names()
    assert not page.names() & {"script", "link", "img", "iframe", "object", "style>"}
    loaded = [v for _, attrs in page.tags for n, v in attrs.items() if n.split(":")[-1] in ("src", "href")]
    assert loaded and all(value and value.startswith("#") for value in loaded)
    assert "url(http" not in text and "@import" not in text
    policy = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_ids_are_unique_and_links_lead_to_them() -> None:
    page = Page(full_report().html())
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [v[1:] for _, attrs in page.tags for n, v in attrs.items() if n.split(":")[-1] == "href" and v]
    assert set(targets) <= set(ids)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_and_nothing_else(name: str, tmp_path: Path) -> None:
    tame, wild = Page(full_report().html()), Page(full_report(name).html())
    in_page = [tag for tag, _ in tame.tags if tag not in ("use", "path", "g", "text")]
    assert [tag for tag, _ in wild.tags if tag not in ("use", "path", "g", "text")] == in_page
    assert not any(attribute.startswith("on") for _, attrs in wild.tags for attribute in attrs)
    text = "".join(wild.text)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\ud800-\udfff]", text)
    assert len(text) < 60_000
    full_report(name).write(tmp_path / "page.html").read_text("utf-8")


def test_control_and_direction_characters_are_shown_as_numbers() -> None:
    text = "".join(Page(ReportPage("a\u202eb\x01").html()).text)
    assert "a‹202E›b‹1›" in text


def test_tables_say_what_they_leave_out() -> None:
    rows = [[number] for number in range(30)]
    cut = ReportPage("t").table([Column("n", Unit.COUNT)], rows, most=10, total=1234).html()
    assert cut.count("<td") == 10 and "The first 10 of 1\u202f234 rows." in cut
    assert "The first" not in ReportPage("t").table([Column("n", Unit.COUNT)], rows).html()
    assert ">none<" in ReportPage("t").table(["n"], []).html()
    hidden = ReportPage("t").table(["n"], [], most=0, total=3).html()
    assert ">none<" not in hidden and ">not shown<" in hidden


def test_times_are_utc_and_truth_is_words() -> None:
    page = Page(ReportPage("t").table([Column("At", Unit.TIME), "Good"], [[T0, True], [None, False]]).html())
    texts = [text for text in page.text if text.strip()]
    assert texts[-6:] == ["At, UTC", "Good", "2023-11-14 22:13:20", "yes", "–", "no"]


def test_drawings_take_the_colours_and_the_font_of_the_page() -> None:
    plot = lines([Series("a", [1, 2], [1, 2]), Series("b", [1, 2], [2, 1])], y=Unit.COUNT, x=Unit.COUNT)
    root = ElementTree.fromstring(plot.svg)
    assert "viewBox" in root.attrib and "width" not in root.attrib
    assert "var(--c1)" in plot.svg and "var(--c2)" in plot.svg and "fa0af" not in plot.svg
    assert {"a", "b"} <= texts(plot)
    assert "DejaVu" not in plot.svg
    assert plot == lines([Series("a", [1, 2], [1, 2]), Series("b", [1, 2], [2, 1])], y=Unit.COUNT, x=Unit.COUNT)


def texts(plot: Plot) -> set[str]:
    return {element.text or "" for element in ElementTree.fromstring(plot.svg).iter() if element.tag.endswith("}text")}


def test_long_names_leave_the_lines_the_width_of_the_page() -> None:
    names = [f"a-group-{number}-with-a-very-long-name · and-a-topic-that-is-no-shorter" for number in range(8)]
    plot = lines([Series(name, [T0, T0 + 60_000], [1, 2]) for name in names], y=Unit.COUNT)
    (drawn,) = re.findall(r'<path d="([^"]*)" clip-path[^>]*stroke: var\(--c8\)', plot.svg)
    places = [float(place) for place in re.findall(r"[ML] ([\d.]+) ", drawn)]
    assert max(places) - min(places) > 0.8 * float(ElementTree.fromstring(plot.svg).attrib["viewBox"].split()[2])
    entries = [text for text in texts(plot) if text.startswith("a-group") and text.endswith("shorter")]
    assert len(entries) == 8, "both ends of a name are told"


def test_every_line_is_in_the_legend() -> None:
    plot = lines([Series(name, [1, 2], [1, 2]) for name in ("a", "_b")], y=Unit.COUNT, x=Unit.COUNT)
    assert {"a", "_b"} <= {text.strip() for text in texts(plot)}


def test_points_that_no_line_would_show_are_dots() -> None:
    """A median of a step between two steps without messages; and no dot where a line is."""
    values = [1, 2, None, 5, None, 3, 4, None, 6]
    plot = lines([Series("a", list(range(9)), values)], y=Unit.COUNT, x=Unit.COUNT)
    assert len(re.findall(r'<use [^>]*style="[^"]*fill: var\(--c1\)', plot.svg)) == 2
    unbroken = lines([Series("a", [1, 2, 3], [1, 2, 3])], y=Unit.COUNT, x=Unit.COUNT)
    assert not re.findall(r'<use [^>]*style="[^"]*fill: var\(--c1\)', unbroken.svg)


def test_the_axis_of_one_time_is_about_that_time() -> None:
    assert "2023-Nov-14 22:13" in texts(lines([Series("a", [T0], [1])], y=Unit.COUNT))


def test_places_that_are_close_together_have_numbers() -> None:
    plot = lines([Series("a", [20_000_000, 20_060_000], [1, 2])], y=Unit.COUNT, x=Unit.BYTES)
    assert {"0 B", "16 MiB"} <= texts(plot)


def test_a_logarithmic_axis_has_numbers_however_short_it_is() -> None:
    plot = lines([Series("a", [30, 60], [0, 1])], y=Unit.SHARE, x=Unit.MILLIS, logarithmic_x=True)
    assert {"40 ms", "50 ms"} <= texts(plot)


def test_drawings_of_nothing_and_of_one_point_are_drawings() -> None:
    for plot in (
        lines([], y=Unit.MILLIS), lines([Series("a", [T0], [0])], y=Unit.BYTES), bars([], [], unit=Unit.COUNT),
        bars(["a"], [0], unit=Unit.SHARE), lines([Series("a", [1, 10], [1, 5])], y=Unit.SHARE, x=Unit.MILLIS,
                                                 logarithmic=True, logarithmic_x=True),
    ):  # fmt: skip
        assert ElementTree.fromstring(plot.svg).tag.endswith("svg")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_234_567, Unit.COUNT, "1\u202f234\u202f567"), (None, Unit.COUNT, "–"), (0.1234, Unit.SHARE, "12.3 %"),
        (0.00001, Unit.SHARE, "< 0.01 %"), (0, Unit.SHARE, "0 %"), (1536, Unit.BYTES, "1.5 KiB"),
        (999, Unit.BYTES, "999 B"), (1024**5 * 2, Unit.BYTES, "2 PiB"), (2048, Unit.BYTE_RATE, "2 KiB/s"),
        (12.34, Unit.RATE, "12.3/s"), (T0, Unit.TIME, "2023-11-14 22:13:20 UTC"), (2.5, Unit.NUMBER, "2.5"),
        ("x", Unit.COUNT, "x"), (True, Unit.TEXT, "True"), (10**30, Unit.TIME, f"{10**30} ms"),
    ],
)  # fmt: skip
def test_numbers_have_units(value: object, unit: Unit, text: str) -> None:
    assert format_value(value, unit) == text


def test_sizes_and_durations_change_unit_in_time() -> None:
    assert [size_text(n) for n in (1023, 1024, 1024**2 - 1, 1024**2)] == ["1\u202f023 B", "1 KiB", "1 MiB", "1 MiB"]
    durations = {0: "0 ms", 0.25: "0.25 ms", 999: "999 ms", 1500: "1.5 s", 90_000: "1.5 min", 5_400_000: "1.5 h"}
    assert {ms: duration_text(ms) for ms in durations} == durations
    assert duration_text(3 * 86_400_000) == "3 d"
    assert time_text(T0 + 5) == "2023-11-14 22:13:20.005 UTC"
