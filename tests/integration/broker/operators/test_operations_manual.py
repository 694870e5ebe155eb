"""The page of metrics, the dashboard and the alerts name what a broker shows, and nothing else; the page of refusals
has every cause."""

import json
import re
from pathlib import Path

import yaml

from maxq.runtime.refusals import Cause
from tests.integration.broker.conftest import Start

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
    known = set(broker.controller.metrics.names())
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


def test_every_cause_of_a_refusal_is_in_the_manual() -> None:
    manual = (_DOCS / "reference/refusals.md").read_text()
    assert [cause for cause in Cause if f"`{cause}`" not in manual] == []
