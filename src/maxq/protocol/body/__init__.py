"""JSON bodies: one dataclass each, in modules by subject. Nothing is imported here: a command needs few of them."""
