"""Metrics: the registry, and the text that Prometheus reads.

`registry.py` has counters, gauges and histograms by family; `metric_rows_cy.py` and `packed_text.py` make their
text fast and keep it compressed.
"""
