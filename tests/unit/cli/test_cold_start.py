"""What a command loads before it does anything: the time a user waits for it, measured without a clock."""

import subprocess
import sys

import pytest

SERVERS = {"maxq.broker", "maxq.store", "maxq.namesrv", "maxq.replication", "maxq.access", "maxq.pipeline"}
HEAVY = {"rich", "yaml", "lark", "cryptography", "uvloop", "numpy", "pyarrow", "pandas", "pyspark", "grpc"}
NETWORK = {"asyncio", "ssl", "maxq.client", "maxq.remoting", "maxq.protocol"}


def loaded(code: str) -> set[str]:
    """Packages, and those of MaxQ, that a fresh process has loaded after `code`."""
    script = f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    names = done.stderr.splitlines()[-1].split()
    return {name.partition(".")[0] for name in names} | {".".join(name.split(".")[:2]) for name in names}


@pytest.mark.parametrize("line", [["--help"], ["admin", "--help"]])
def test_help_loads_no_command_and_no_network(line: list[str]) -> None:
    found = loaded(f"from maxq.cli.app import run; run({line})")
    assert "maxq.cli" in found
    assert found & (NETWORK | SERVERS | HEAVY) == set()


def test_admin_commands_load_the_client_and_no_server() -> None:
    found = loaded(
        "import importlib\nfrom maxq.cli.admin import ENTRIES\n"
        "for entry in ENTRIES.values(): importlib.import_module(entry.module)"
    )
    assert "maxq.client" in found
    assert found & (SERVERS | HEAVY) == set()
