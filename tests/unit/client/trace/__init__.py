"""Message trace, and spans of OpenTelemetry."""
