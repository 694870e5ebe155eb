"""Custom header fields: one dataclass a request or response, in modules by subject."""
