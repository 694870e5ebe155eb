"""Metrics: the registry, and the two forms in which its numbers leave it.

`registry.py` has counters, gauges and histograms; `families.py` is the form in numbers, for exporters;
`metric_rows_cy.py` and `packed_text.py` make the text that Prometheus reads fast and keep it compressed.
"""
