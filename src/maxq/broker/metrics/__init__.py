"""Metrics and health of a broker for operators' tools (broker/metrics/ of RocketMQ).

`broker_metrics.py` puts them together: `traffic_metrics.py`, `store_metrics.py`, `client_metrics.py`,
`lag_metrics.py`, `pop_metrics.py` and `rpc_latency.py` put families into the registry (`runtime/metrics`),
`labels.py` is what they have in common. `status_pages.py` serves them over HTTP; `metrics_export.py` sends or logs
them, by OpenTelemetry through `otlp_exporter.py` (with `growth.py`).
"""
