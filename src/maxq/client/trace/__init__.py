"""Message trace: hooks that record sends and listener calls, a dispatcher that sends the records, OpenTelemetry
spans.
"""
