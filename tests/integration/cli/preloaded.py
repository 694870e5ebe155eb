"""Loaded once by the process that the commands of `harness.maxq` are forked from."""

from tests.integration.cli.harness import load_commands

load_commands()
