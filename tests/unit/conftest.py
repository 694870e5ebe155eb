"""Hypothesis for all unit tests: an example may take as long as a busy machine makes it take."""

from hypothesis import settings

settings.register_profile("no deadline", settings(), deadline=None)  # else as it was, in CI too
settings.load_profile("no deadline")
