"""The picture and the tables of measured figures in README.md, README.zh.md and the manual.

    python -m benches.readme_figures           # writes docs/images/cpu-{light,dark}.svg and the tables

They are made from the files in benches/results; the command that wrote a file stands in it. A page keeps a table
between two comments, `<!-- NAME -->` and `<!-- end of NAME -->`, and a test holds it against the results (TABLES).
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benches/results"
IMAGES: Final = ROOT / "docs/images"
_CLIENTS: Final = {
    "maxq": "MaxQ", "maxq_blocking": "MaxQ, blocking", "confluent": "confluent-kafka (C)", "aiokafka": "aiokafka",
    "nats": "nats-py (JetStream)", "maxq_arrow": "MaxQ, blocking", "maxq_many": "MaxQ, blocking", "maxq_gather": "MaxQ",
    "maxq_batch": "MaxQ, blocking", "maxq_poll": "MaxQ, blocking", "maxq_push": "MaxQ, blocking",
}  # fmt: skip

#: Of the picture: the workload's name there, its results file, and the workload.
BARS: Final = (
    ("send 1 KiB", "async_flush", "send_1k"),
    ("send 100 B", "async_flush", "send_100"),
    ("batches of 32 × 1 KiB", "async_flush", "send_batch32"),
    ("consume, 32 × 1 KiB a pull", "async_flush", "consume"),
    ("SYNC_FLUSH, 64 senders", "sync_flush", "sync_64"),
)


class Row(NamedTuple):
    """A line of the table: its name in both languages, where the figure is, and its form."""

    english: str
    chinese: str
    file: str
    workload: str
    figure: str
    form: str  # rate, us, mib or s


ROWS: Final = (
    Row("Send 1 KiB, 256 in flight: rate", "发送 1 KiB，并发 256：吞吐", "async_flush", "send_1k",
        "sent_per_s", "rate"),
    Row("Batches of 32 × 1 KiB: processor time a message", "32 × 1 KiB 批量：每条消息 CPU", "async_flush",
        "send_batch32", "server_cpu_us_per_msg", "us"),
    Row("Consume, pulls of 32 × 1 KiB: rate", "消费，每次拉取 32 × 1 KiB：吞吐", "async_flush", "consume",
        "received_per_s", "rate"),
    Row("SYNC_FLUSH, 64 senders: rate", "SYNC_FLUSH，64 个发送者：吞吐", "sync_flush", "sync_64", "sent_per_s", "rate"),
    Row("One message in flight: median latency", "单条在途：延迟中位数", "async_flush", "sync_1", "send_us.p50", "us"),
    Row("15,000 messages/s: 99th percentile of a send", "每秒 15,000 条：发送延迟 p99", "async_flush", "rate_15k",
        "send_us.p99", "us"),
    Row("5,000 messages/s, send to receipt: median", "每秒 5,000 条，发送到收到：中位数", "async_flush", "rate_5k_e2e",
        "e2e_us.p50", "us"),
    Row("Private memory under load", "负载下的私有内存", "async_flush", "send_1k", "server_rss_anon_mb", "mib"),
    Row("Start, command to ready", "启动到就绪", "async_flush", "start", "ready_s", "s"),
)  # fmt: skip
HEADS: Final = {
    "en": "| Workload | Java RocketMQ {} | MaxQ | MaxQ is |\n|---|---:|---:|---:|\n",
    "zh": "| 负载 | Java RocketMQ {} | MaxQ | MaxQ 领先 |\n|---|---:|---:|---:|\n",
}
_BETTER: Final = {"en": "{:.1f} × better", "zh": "{:.1f} 倍"}


def results(name: str) -> dict[str, Any]:
    """One results file."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def figure(row: Mapping[str, Any], name: str) -> float:
    """A figure of one system in one workload; `send_us.p50` is the one below the other."""
    outer, _, inner = name.partition(".")
    return float(row[outer][inner] if inner else row[outer])


def shown(value: float, form: str) -> str:
    """A figure with its unit, as a reader takes it in."""
    if form == "rate":
        return f"{value / 1000:.0f} k/s" if value >= 10_000 else f"{value / 1000:.1f} k/s"
    if form == "us":
        return f"{value:.0f} µs" if value >= 100 else f"{value:.1f} µs"
    return f"{value:.0f} MiB" if form == "mib" else f"{value:.1f} s"


def in_table(value: float, form: str) -> str:
    """As `shown`, but times in ms from 1,000 µs on."""
    return f"{value / 1000:.1f} ms" if form == "us" and value >= 1000 else shown(value, form)


def table(language: str) -> str:
    """The table of numbers, in Markdown."""
    lines = HEADS[language].format(results("async_flush")["rocketmq"])
    for row in ROWS:
        medians = results(row.file)["medians"][row.workload]
        java, ours = figure(medians["java"], row.figure), figure(medians["maxq"], row.figure)
        times = _BETTER[language].format(ours / java if row.form == "rate" else java / ours)
        name = row.chinese if language == "zh" else row.english
        lines += f"| {name} | {in_table(java, row.form)} | {in_table(ours, row.form)} | {times} |\n"
    return lines


def runs() -> str:
    """The table of the runs that the figures are from: command, day, commit and machine, in Markdown."""
    lines = "| Results | Command | Day | MaxQ | Machine |\n|---|---|---|---|---|\n"
    for name in sorted(file.stem for file in RESULTS.glob("*.json")):
        found = results(name)
        machine = found["machine"]
        words = f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']:.0f} GiB, "
        words += f"kernel {machine['kernel']}, Python {machine['python']}"
        if "load_average" in machine:
            words += f", load average {machine['load_average']:.0f}"
        lines += f"| `{name}.json` | `{found['command']}` | {found['day']} | commit {found['commit']} | {words} |\n"
    return lines


def clients() -> str:
    """The table of Python clients and their servers, in Markdown: processor time a message, 1 KiB and 100 B."""
    figures = {(row["way"], row["size"], row["client"]): row for row in results("clients")["medians"]}
    lines = "| What | Client | Client, 1 KiB | 100 B | Server, 1 KiB | 100 B |\n|---|---|---:|---:|---:|---:|\n"
    for way, size, client in figures:
        if size != 1024:
            continue
        both = [figures[way, each, client] for each in (1024, 100)]
        cells = [shown(row[name], "us") for name in ("cpu_us", "server_cpu_us") for row in both]
        lines += f"| {way} | {_CLIENTS[client]} | {' | '.join(cells)} |\n"
    return lines


def auto_batch() -> str:
    """Sends with `auto_batch` on and off, in Markdown."""
    ways = {"lone": "one at a time", "gathered": "256 in flight"}
    lines = "| Sends | `auto_batch` | Client's processor time | Broker's | Median latency | Messages a second |\n"
    lines += "|---|---|---:|---:|---:|---:|\n"
    for row in results("auto_batch")["medians"]:
        size = f"{row['size']} bytes" if row["size"] < 1024 else f"{row['size'] // 1024} KiB"
        times = [shown(row[name], "us") for name in ("cpu_us", "server_cpu_us")]
        cells = [*times, in_table(row["p50_us"], "us"), f"{row['per_s']:,.0f}"]
        lines += f"| {ways[row['way']]}, {size} | {row['auto_batch']} | {' | '.join(cells)} |\n"
    return lines


def access_control() -> str:
    """What access control adds to a send, in Markdown."""
    lines = "| Body | Without access control | With it | Median of the differences |\n|---|---:|---:|---:|\n"
    for row in results("acl")["rows"]:
        cells = " | ".join(f"{row[name]:.1f} µs" for name in ("off_us", "on_us", "added_us"))
        lines += f"| {row['bytes']:,} bytes | {cells} |\n"
    return lines


def scrapes(language: str) -> str:
    """What a scrape of the metrics costs and how long it is, in Markdown."""
    row = next(row for row in results("many_topics")["rows"] if row["server"] == "maxq")
    heads = {"en": "Scrape of {:,} topics", "zh": "抓取 {:,} 个 Topic"}
    names = {
        "en": ("processor time, few topics receive messages",
               "processor time, all topics have received messages since the last scrape",
               "size with gzip", "size without gzip"),
        "zh": ("处理器时间：只有少数 Topic 在接收消息", "处理器时间：自上次抓取以来所有 Topic 都收到了消息",
               "使用 gzip 时的大小", "不使用 gzip 时的大小"),
    }[language]  # fmt: skip
    lines = f"| {heads[language].format(row['topics'])} | |\n|---|---:|\n"
    figures = ("scrape_cpu", "scrape_cpu_all_written", "scrape_bytes", "scrape_bytes_plain")
    for name, key in zip(names, figures, strict=True):
        unit, divisor = ("KiB", 1024) if "bytes" in key else ("ms", 1)
        lines += f"| {name} | {row[key] / divisor:,.0f} {unit} |\n"
    return lines


def java_producers() -> str:
    """Failed sends of a Java producer around one change of leader, in Markdown."""
    names = {
        "transfer": "hands over",
        "stop": "ends (SIGTERM) and is started again",
        "kill": "is killed and started again",
    }
    runs = {"": results("java_producers"), ", with `enableShutdownGracefully`": results("java_producers_graceful")}
    lines = f"| The leader | MaxQ group | Java group ({runs['']['rocketmq']}) |\n|---|---|---|\n"
    for how, name in names.items():
        for with_setting, found in runs.items():
            rows = [row for row in found["rows"] if row["how"] == how]
            if rows:
                cells = [", ".join(_failed(row) for row in rows if row["kind"] == kind) for kind in ("maxq", "java")]
                lines += f"| {name}{with_setting} | {' | '.join(cell or '–' for cell in cells)} |\n"
    return lines


def _failed(row: Mapping[str, Any]) -> str:
    """How many sends failed, and for how long."""
    if not row["failed"]:
        return "0"
    return f"{row['failed']:,} in {row['failing_until_s'] - row['failing_from_s']:.0f} s"


#: The tables: page, name of the table in the page, and what makes it.
TABLES: Final[list[tuple[str, str, Callable[[], str]]]] = [
    ("README.md", "figures", partial(table, "en")),
    ("README.zh.md", "figures", partial(table, "zh")),
    ("docs/explanation/benchmarks.md", "figures", partial(table, "en")),
    ("docs/explanation/benchmarks.md", "runs", runs),
    ("docs/explanation/benchmarks.md", "clients", clients),
    ("docs/explanation/python-client.md", "auto_batch", auto_batch),
    ("docs/explanation/dledger.md", "java_producers", java_producers),
    ("docs/reference/security.md", "access control", access_control),
    ("docs/howto/monitor.md", "scrapes", partial(scrapes, "en")),
    ("docs/zh/howto/monitor.md", "scrapes", partial(scrapes, "zh")),
]


def place(name: str) -> re.Pattern[str]:
    """Where a page has the table of this name."""
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", re.DOTALL)


def draw(dark: bool) -> None:
    """The picture: processor time a message, Java's as the full bar of each row."""
    ink, back, java_ink, our_ink = (
        ("#e6edf3", "#0d1117", "#6e7681", "#ff9d3c") if dark else ("#1f2328", "#ffffff", "#afb8c1", "#e36209")
    )
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "maxq", "font.family": "sans-serif", "font.size": 11})
    picture, axes = plt.subplots(figsize=(8, 3.7), facecolor=back)
    axes.set_facecolor(back)
    for number, (label, file, workload) in enumerate(reversed(BARS)):
        medians = results(file)["medians"][workload]
        java, ours = (figure(medians[kind], "server_cpu_us_per_msg") for kind in ("java", "maxq"))
        axes.barh(number + 0.19, 100, 0.34, color=java_ink)
        axes.barh(number - 0.19, 100 * ours / java, 0.34, color=our_ink)
        axes.text(101.5, number + 0.19, f"Java {shown(java, 'us')}", color=ink, va="center", fontsize=10)
        axes.text(100 * ours / java + 1.5, number - 0.19, f"MaxQ {shown(ours, 'us')}, 1/{java / ours:.1f}",
                  color=ink, va="center", fontsize=10, fontweight="bold")  # fmt: skip
        axes.text(-2, number, label, color=ink, va="center", ha="right")
    axes.set_xlim(-50, 122)
    axes.axis("off")
    version = results("async_flush")["rocketmq"]
    axes.set_title(f"Processor time of the broker for one message: RocketMQ {version} and MaxQ", color=ink, fontsize=12)
    name = IMAGES / f"cpu-{'dark' if dark else 'light'}.svg"
    picture.savefig(name, bbox_inches="tight", facecolor=back, metadata={"Date": None})
    plt.close(picture)
    name.write_text("\n".join(line.rstrip() for line in name.read_text().splitlines()) + "\n")


def main() -> None:
    """Write both pictures and the tables."""
    IMAGES.mkdir(exist_ok=True)
    draw(dark=False)
    draw(dark=True)
    for page, name, make in TABLES:
        path, lines = ROOT / page, make().replace("\\", r"\\")
        path.write_text(place(name).sub(lines, path.read_text()))


if __name__ == "__main__":
    main()
