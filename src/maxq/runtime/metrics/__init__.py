"""Metrics: the registry, and the text that Prometheus reads."""
