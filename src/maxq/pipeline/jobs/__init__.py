"""The jobs: each reads, calls a function of transforms/, and writes; with a dataclass of its settings."""
