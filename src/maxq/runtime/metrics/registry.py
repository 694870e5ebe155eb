"""MetricsRegistry: what a server counts and shows, as the text that Prometheus reads (`lines`), or as numbers for other
exporters (`families`).

A part with metrics takes a registry and makes an instrument of it:

    acked = registry.counter("rocketmq_messages_acked_total", "Messages acknowledged", ("topic", "consumer_group"))
    acked.add(3, "orders", "billing")

    about = "Time from request to answer, in milliseconds"
    waits = registry.histogram("rocketmq_rpc_latency_milliseconds", about, (1, 3, 5, 7, 10, 100), ("request_code",))
    waits.observe(4, "pop_message")

    registry.gauge("rocketmq_half_messages", "Open transactions", self._half_messages, ("topic",))
    # self._half_messages: () -> iterable of ((topic,), value)

Names are those of a scrape: the unit is part of them, counters end in `_total`; names of our own begin with `maxq_`.
The text behind the name is the metric's help text: what is counted or measured, and in which unit. Nothing is rendered
before somebody asks. `observe` functions are called then, on the loop, and are read lazily: one that walks a table
which others change walks a copy (`list(table.items())`), so that the loop may turn in between. Samples of topics come
in blocks: a block that is the same object as at the last scrape is not rendered again, because its text was kept
(packed_text.py).

Rules kept from the exporter of OpenTelemetry for Java, which RocketMQ uses: labels in alphabetical order, `le` last;
values as doubles; at most so many label sets for an instrument, the rest of them counted under
`otel_metric_overflow="true"`. A label whose value is empty is left out: to Prometheus both are the same, and what some
numbers of an instrument do not have needs no instrument of its own.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, Generic, Protocol, TypeVar

from maxq.runtime.metrics.families import Buckets, Family, Point
from maxq.runtime.metrics.metric_rows_cy import HistogramRows
from maxq.runtime.metrics.packed_text import PackedText

#: Values of an instrument's labels in the order of their names, and the number.
Sample = tuple[tuple[str, ...], float]
#: The same, with how many values each bucket has (the last one: above all bounds), and their sum.
HistogramSample = tuple[tuple[str, ...], Sequence[int], float]
#: Values of an instrument's labels, None for the label sets above the limit; and one number, or buckets and their sum.
Row = tuple[tuple[str, ...] | None, float] | tuple[tuple[str, ...] | None, Sequence[int], float]
#: Whole lines of the text form; an empty piece marks a point at which the event loop may run other work.
Piece = str | PackedText

CARDINALITY_LIMIT: Final = 50_000
_LOOKS_KEPT: Final = 100  # scrapes for which the text of labels is kept: topics and groups come and go
_TURN_ROWS: Final = 500  # rows of a family between two points at which other work may run
_OVERFLOW: Final = "otel_metric_overflow"
_EMPTY_LABEL: Final = re.compile(r'(?:(?<=,)|^)\w+="",?')
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Instrument(Protocol):
    """One metric by its name, with its help text and the numbers of all its label sets."""

    name: str
    about: str

    def lines(self) -> Iterator[Piece]:
        """Yield the text of the instrument; nothing if there is no number yet."""

    def family(self) -> Iterator[Family | None]:
        """Yield the numbers of the instrument, if there are any; before them None wherever the loop may run other
        tasks."""


AnyInstrument = TypeVar("AnyInstrument", bound=Instrument)
AnySample = TypeVar("AnySample", bound=Row)


class _Rows:
    """Makes the lines of one instrument: its labels among the constant ones."""

    def __init__(
        self,
        name: str,
        kind: str,
        labels: tuple[str, ...],
        constant: Mapping[str, str],
        texts: dict[str, dict[tuple[str, ...], str]],
        limit: int,
        about: str,
        bounds: tuple[float, ...],
    ) -> None:
        """`texts` are those of all instruments, by pattern: instruments with the same labels share them."""
        self.name = name
        self.labels = labels
        self.bounds = bounds
        self._kind = kind
        self._constant = dict(constant)
        self.about = about
        self.head = f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
        places = {label: index for index, label in enumerate(labels)}
        names = sorted({*labels, *constant})
        self._names = names
        self._places = places
        self.order = tuple(places[label] for label in names if label in places)
        fixed = {label: f'{label}="{_escaped(value)}"'.replace("%", "%%") for label, value in constant.items()}
        self.pattern = ",".join(f'{label}="%s"' if label in places else fixed[label] for label in names)
        self._texts = texts.setdefault(self.pattern, {})
        self._limit = limit
        self.overflow = ",".join(
            sorted([f'{label}="{_escaped(value)}"' for label, value in constant.items()] + [f'{_OVERFLOW}="true"'])
        )

    def text(self, values: tuple[str, ...] | None) -> str:
        """Return the text between the braces. None stands for the label sets above the limit."""
        if values is None:
            return self.overflow
        text = self._texts.get(values)
        if text is None:
            if len(self._texts) >= 2 * self._limit:  # most of them belong to deleted topics and groups
                self._texts.clear()
            text = self.pattern % tuple([_escaped(values[place]) for place in self.order])
            if "" in values:
                text = _EMPTY_LABEL.sub("", text).removesuffix(",")
            self._texts[values] = text
        return text

    def family(self, rows: Iterable[Row]) -> Iterator[Family | None]:
        """Implements `Instrument.family`; `rows` are the instrument's."""
        family = Family(self.name, self._kind, about=self.about)
        bounds = [float(bound) for bound in self.bounds]
        for number, row in enumerate(rows, 1):
            labels = self._labels(row[0])
            if len(row) == 3:
                family.buckets.append(Buckets(labels, bounds, list(row[1]), float(row[2])))
            else:
                family.points.append(Point(labels, float(row[1])))
            if number % _TURN_ROWS == 0:
                yield None
        if family.points or family.buckets:
            yield family

    def _labels(self, values: tuple[str, ...] | None) -> dict[str, str]:
        """Return name → value in the order of the names, without empty ones. None: those above the limit."""
        if values is None:
            return dict(sorted({**self._constant, _OVERFLOW: "true"}.items()))
        places = self._places
        found = ((name, values[places[name]] if name in places else self._constant[name]) for name in self._names)
        return {name: value for name, value in found if value}


def _escaped(value: str) -> str:
    if '"' in value or "\\" in value or "\n" in value:
        return value.translate(_ESCAPES)
    return value


class Counter:
    """A number for each label set that only grows."""

    def __init__(self, rows: _Rows, limit: int) -> None:
        self.name = rows.name
        self.about = rows.about
        self._rows = rows
        self._limit = limit
        self._values: dict[tuple[str, ...] | None, float] = {}

    def add(self, value: float = 1, *labels: str) -> None:
        """Count `value` for the label values, given in the order of the names."""
        values = self._values
        key: tuple[str, ...] | None = labels
        if key not in values:
            assert len(labels) == len(self._rows.labels), f"{self.name} has the labels {self._rows.labels}"
            if len(values) >= self._limit:
                key = None
        values[key] = values.get(key, 0) + value

    def value(self, *labels: str) -> float:
        """Returns the count for these label values."""
        return self._values.get(labels, 0)

    def forget(self, matches: Callable[[tuple[str, ...]], bool]) -> None:
        """Drop the label sets that match, because their topic or group is gone."""
        for labels in [labels for labels in self._values if labels is not None and matches(labels)]:
            del self._values[labels]

    def lines(self) -> Iterator[Piece]:
        if self._values:
            yield self._rows.head
        for labels, value in list(self._values.items()):
            yield f"{self.name}{{{self._rows.text(labels)}}} {float(value)}\n"

    def family(self) -> Iterator[Family | None]:
        return self._rows.family(list(self._values.items()))


class Histogram:
    """Counts, for each label set, how many values were at most each bound."""

    def __init__(self, rows: _Rows, limit: int) -> None:
        self.name = rows.name
        self.about = rows.about
        self._rows = rows
        self._bounds = rows.bounds
        self._limit = limit
        # values in each bucket, the last one above all bounds
        self._counts: dict[tuple[str, ...] | None, list[int]] = {}
        self._sums: dict[tuple[str, ...] | None, float] = {}
        self._writer = HistogramRows(rows.name, rows.bounds)

    def observe(self, value: float, *labels: str, count: int = 1) -> None:
        """Count a value `count` times in the histogram of these labels."""
        key: tuple[str, ...] | None = labels
        counts = self._counts.get(key)
        if counts is None:
            assert len(labels) == len(self._rows.labels), f"{self.name} has the labels {self._rows.labels}"
            if len(self._counts) >= self._limit:
                key = None
            counts = self._counts.setdefault(key, [0] * (len(self._bounds) + 1))
        counts[bisect_left(self._bounds, value)] += count
        self._sums[key] = self._sums.get(key, 0) + value * count

    def forget(self, matches: Callable[[tuple[str, ...]], bool]) -> None:
        """Remove the label sets for which `matches` is true."""
        for labels in [labels for labels in self._counts if labels is not None and matches(labels)]:
            del self._counts[labels], self._sums[labels]

    def lines(self) -> Iterator[Piece]:
        if self._counts:
            yield self._rows.head
        for labels, counts in list(self._counts.items()):
            yield self._writer.text(self._rows.text(labels), counts, self._sums[labels])

    def family(self) -> Iterator[Family | None]:
        return self._rows.family([(labels, counts, self._sums[labels]) for labels, counts in self._counts.items()])


class _ObservedHistogram:
    """Buckets that are computed when they are shown."""

    def __init__(self, rows: _Rows, observe: Callable[[], Iterable[HistogramSample]], limit: int) -> None:
        self.name = rows.name
        self.about = rows.about
        self._rows = rows
        self._head = rows.head
        self._observe = observe
        self._limit = limit
        self._writer = HistogramRows(rows.name, rows.bounds)

    def lines(self) -> Iterator[Piece]:
        head = self._head
        for labels, counts, total_value in islice(self._observe(), self._limit):
            yield head + self._writer.text(self._rows.text(labels), counts, total_value)
            head = ""

    def family(self) -> Iterator[Family | None]:
        return self._rows.family(islice(self._observe(), self._limit))


class _InBlocks(Generic[AnySample]):
    """Samples that come in blocks. The text of a block is cached until another block replaces it."""

    def __init__(
        self,
        rows: _Rows,
        observe: Callable[[], Iterable[Sequence[AnySample]]],
        text: Callable[[AnySample], str],
        limit: int,
    ) -> None:
        """`text` returns the lines of one sample; `limit`: the most samples that are shown."""
        self.name = rows.name
        self.about = rows.about
        self._rows = rows
        self._head = rows.head
        self._observe = observe
        self._text = text
        self._limit = limit
        self._kept: list[tuple[Sequence[AnySample], PackedText]] = []

    def lines(self) -> Iterator[Piece]:
        kept, room = self._kept, self._limit
        found: list[tuple[Sequence[AnySample], PackedText]] = []
        for position, block in enumerate(filter(None, self._observe())):
            if position == 0:
                yield self._head
            if len(block) > room:
                yield "".join(map(self._text, block[:room]))
                break
            is_kept = position < len(kept) and kept[position][0] is block
            text = kept[position][1] if is_kept else PackedText("".join(map(self._text, block)).encode())
            found.append((block, text))
            yield text
            room -= len(block)
        self._kept = found

    def family(self) -> Iterator[Family | None]:
        return self._rows.family(islice(chain.from_iterable(self._observe()), self._limit))


class _Observed:
    """Numbers that are computed when they are shown."""

    def __init__(self, rows: _Rows, observe: Callable[[], Iterable[Sample]], limit: int) -> None:
        self.name = rows.name
        self.about = rows.about
        self._rows = rows
        self._observe = observe
        self._limit = limit

    def lines(self) -> Iterator[Piece]:
        name, text = self.name, self._rows.text
        head = self._rows.head
        for labels, value in islice(self._observe(), self._limit):
            yield f"{head}{name}{{{text(labels)}}} {float(value)}\n"
            head = ""

    def family(self) -> Iterator[Family | None]:
        return self._rows.family(islice(self._observe(), self._limit))


class MetricsRegistry:
    """All instruments of one server, in the order of their names."""

    def __init__(self, constant: Mapping[str, str] | None = None, *, limit: int = CARDINALITY_LIMIT) -> None:
        """
        Args:
            constant: labels of every line.
            limit: label sets that one instrument shows.
        """
        self._constant = dict(constant or {})
        self._limit = limit
        self._instruments: dict[str, Instrument] = {}
        self._preparations: list[Callable[[], Iterator[None]]] = []
        self._texts: dict[str, dict[tuple[str, ...], str]] = {}
        self._looks = 0

    def counter(
        self, name: str, about: str, labels: tuple[str, ...] = (), *, constant: Mapping[str, str] | None = None
    ) -> Counter:
        """Add a counter; `about` is its help text, `constant` are further labels with one value (`storage_type`)."""
        return self._add(Counter(self._rows(name, "counter", about, labels, constant), self._limit))

    def histogram(
        self,
        name: str,
        about: str,
        bounds: tuple[float, ...],
        labels: tuple[str, ...] = (),
        *,
        constant: Mapping[str, str] | None = None,
    ) -> Histogram:
        """Add a histogram; `bounds` ascend, `about` is its help text."""
        return self._add(Histogram(self._rows(name, "histogram", about, labels, constant, bounds), self._limit))

    def gauge(
        self,
        name: str,
        about: str,
        observe: Callable[[], Iterable[Sample]],
        labels: tuple[str, ...] = (),
        *,
        constant: Mapping[str, str] | None = None,
    ) -> None:
        """Add a gauge of numbers that go up and down, as `observe` returns them."""
        self._add(_Observed(self._rows(name, "gauge", about, labels, constant), observe, self._limit))

    def number(
        self, name: str, about: str, read: Callable[[], float], *, constant: Mapping[str, str] | None = None
    ) -> None:
        """Add a gauge without labels, whose number `read` returns."""
        self.gauge(name, about, lambda: [((), read())], constant=constant)

    def observed_counter(
        self,
        name: str,
        about: str,
        observe: Callable[[], Iterable[Sample]],
        labels: tuple[str, ...] = (),
        *,
        constant: Mapping[str, str] | None = None,
    ) -> None:
        """Add a counter of numbers that are counted elsewhere already."""
        self._add(_Observed(self._rows(name, "counter", about, labels, constant), observe, self._limit))

    def observed_histogram(
        self,
        name: str,
        about: str,
        bounds: tuple[float, ...],
        observe: Callable[[], Iterable[HistogramSample]],
        labels: tuple[str, ...] = (),
        *,
        constant: Mapping[str, str] | None = None,
    ) -> None:
        """Add a histogram of buckets that are counted elsewhere already."""
        rows = self._rows(name, "histogram", about, labels, constant, bounds)
        self._add(_ObservedHistogram(rows, observe, self._limit))

    def counter_in_blocks(
        self, name: str, about: str, observe: Callable[[], Iterable[Sequence[Sample]]], labels: tuple[str, ...]
    ) -> None:
        """Add a counter of numbers that are counted elsewhere already and come in blocks; a block is never changed,
        only replaced."""
        rows = self._rows(name, "counter", about, labels, None)

        def text(sample: Sample) -> str:
            return f"{name}{{{rows.text(sample[0])}}} {float(sample[1])}\n"

        self._add(_InBlocks(rows, observe, text, self._limit))

    def histogram_in_blocks(
        self,
        name: str,
        about: str,
        bounds: tuple[float, ...],
        observe: Callable[[], Iterable[Sequence[HistogramSample]]],
        labels: tuple[str, ...],
    ) -> None:
        """Add a histogram whose samples come in blocks; a block is never changed, only replaced."""
        rows = self._rows(name, "histogram", about, labels, None, bounds)
        look = HistogramRows(name, bounds)

        def text(sample: HistogramSample) -> str:
            values, counts, total_value = sample
            return look.text(rows.text(values), counts, total_value)

        self._add(_InBlocks(rows, observe, text, self._limit))

    def before(self, prepare: Callable[[], Iterator[None]]) -> None:
        """Run `prepare` before the text is made; the loop may run other tasks at each of its yields."""
        self._preparations.append(prepare)

    def helps(self) -> dict[str, str]:
        """Return the help texts of all instruments by name, in the order of the names, whether or not they have
        numbers."""
        return {name: self._instruments[name].about for name in sorted(self._instruments)}

    def lines(self) -> Iterator[Piece]:
        """Yield all metrics in the Prometheus text format, in pieces, so that other tasks can run in between."""
        self._looks += 1
        if self._looks % _LOOKS_KEPT == 0:
            for texts in self._texts.values():
                texts.clear()
        for prepare in self._preparations:
            for _ in prepare():
                yield ""
        for name in sorted(self._instruments):
            yield from self._instruments[name].lines()

    def families(self) -> Iterator[Family | None]:
        """Yield the numbers of all instruments that have some, and None wherever the loop may run other tasks."""
        for prepare in self._preparations:
            for _ in prepare():
                yield None
        for name in sorted(self._instruments):
            yield from self._instruments[name].family()

    def _rows(
        self,
        name: str,
        kind: str,
        about: str,
        labels: tuple[str, ...],
        constant: Mapping[str, str] | None,
        bounds: tuple[float, ...] = (),
    ) -> _Rows:
        constants = {**self._constant, **(constant or {})}
        return _Rows(name, kind, labels, constants, self._texts, self._limit, about, bounds)

    def _add(self, instrument: AnyInstrument) -> AnyInstrument:
        assert instrument.name not in self._instruments, f"there are two instruments named {instrument.name}"
        self._instruments[instrument.name] = instrument
        return instrument
