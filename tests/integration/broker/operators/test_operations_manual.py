"""The page of metrics, the dashboard and the alerts name what a broker shows, and nothing else; the page of refusals
has every cause."""

import json
import re
from pathlib import Path

import yaml

from maxq.runtime.refusals import Cause
from tests.integration.broker.conftest import Start
from tests.integration.broker.operators.test_metrics import http_get

_ROOT = Path(__file__).parents[4]
_DOCS = _ROOT / "docs"
_SUFFIXES = ("_bucket", "_count", "_sum")


def _named(text: str) -> set[str]:
    return set(re.findall(r"\b(?:rocketmq|maxq)_[a-z0-9_]*[a-z0-9]\b", text))


def _base(name: str, known: set[str]) -> str:
    for suffix in _SUFFIXES:
        if name not in known and name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


async def test_every_metric_is_in_the_manual_and_dashboard_and_alerts_use_no_other(start_broker: Start) -> None:
    broker = await start_broker(metricsExporterType="PROM", metricsPromExporterPort=0)
    known = set(broker.controller.metrics.helps())
    manual = (_DOCS / "reference/metrics.md").read_text()
    assert known - {"target_info"} <= _named(manual), "missing on the page of metrics"
    dashboard = json.loads((_ROOT / "deploy/grafana/maxq.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    expressions += [variable.get("definition", "") for variable in dashboard["templating"]["list"]]
    alerts = yaml.safe_load((_ROOT / "deploy/prometheus/alerts.yaml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    assert len(rules) >= 10
    expressions += [rule["expr"] for rule in rules]
    used = {_base(name, known) for expression in expressions for name in _named(expression)}
    assert len(used) > 20 and used <= known
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


async def test_help_texts_of_metrics_say_what_is_counted_and_in_which_unit(start_broker: Start) -> None:
    broker = await start_broker(metricsExporterType="PROM", metricsPromExporterPort=0)
    helps = broker.controller.metrics.helps()
    assert len(helps) > 50
    says_nothing = re.compile(r"\W*|\w+|default view.*", re.IGNORECASE)
    assert [name for name, about in helps.items() if says_nothing.fullmatch(about) or about == name] == []
    units = ("milliseconds", "seconds", "bytes")
    named = {name: re.findall("|".join(units), name.removesuffix("_total")) for name in helps}
    lacking = [
        name for name, found in named.items() if found and not re.search(f"(?i){found[-1]}|in spite of", helps[name])
    ]
    assert lacking == []
    assert [about for about in helps.values() if "\n" in about or "\\" in about] == [], "not one line of a scrape"
    page = await http_get(broker.controller.pages.port, "/metrics")
    shown = dict(re.findall(r"(?m)^# HELP (\w+) (.*)$", page[1]))
    assert "maxq_tasks" in shown and shown.items() <= helps.items()


def test_every_cause_of_a_refusal_is_in_the_manual() -> None:
    manual = (_DOCS / "reference/refusals.md").read_text()
    assert [cause for cause in Cause if f"`{cause}`" not in manual] == []
