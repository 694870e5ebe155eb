"""docs/operations.md and the dashboard name what a broker shows, and nothing else."""

import json
import re
from pathlib import Path

from maxq.runtime.refusals import Cause
from tests.integration.broker.conftest import Start

_DOCS = Path(__file__).parents[4] / "docs"
_SUFFIXES = ("_bucket", "_count", "_sum")


def _named(text: str) -> set[str]:
    return set(re.findall(r"\b(?:rocketmq|maxq)_[a-z0-9_]*[a-z0-9]\b", text))


def _base(name: str, known: set[str]) -> str:
    for suffix in _SUFFIXES:
        if name not in known and name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


async def test_every_metric_is_in_the_manual_and_the_dashboard_uses_no_other(start_broker: Start) -> None:
    broker = await start_broker(metricsExporterType="PROM", metricsPromExporterPort=0)
    known = set(broker.controller.metrics.names())
    manual = (_DOCS / "operations.md").read_text()
    assert known - {"target_info"} <= _named(manual), "missing in docs/operations.md"
    dashboard = json.loads((_DOCS / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    expressions += [variable.get("definition", "") for variable in dashboard["templating"]["list"]]
    used = {_base(name, known) for expression in expressions for name in _named(expression)}
    assert len(used) > 20 and used <= known
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_every_cause_of_a_refusal_is_in_the_manual() -> None:
    manual = (_DOCS / "operations.md").read_text()
    assert [cause for cause in Cause if f"`{cause}`" not in manual] == []
