"""What a command loads before it does anything: the time a user waits for it, measured without a clock."""

import subprocess
import sys

import pytest

SERVERS = {"maxq.broker", "maxq.store", "maxq.namesrv", "maxq.replication", "maxq.access", "maxq.pipeline"}
HEAVY = {"rich", "yaml", "lark", "cryptography", "uvloop", "numpy", "pyarrow", "pandas", "pyspark", "grpc"}
NETWORK = {"asyncio", "ssl", "maxq.client", "maxq.remoting", "maxq.protocol"}


#: What a server needs only for some settings and requests.
SELDOM = {"yaml", "lark", "cryptography", "rich", "maxq.pipeline", "numpy", "pyarrow", "grpc"}


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


def test_servers_load_nothing_for_settings_that_are_not_given() -> None:
    found = loaded("import maxq.cli.app, maxq.cli.commands.servers, maxq.standalone")
    assert "maxq.broker" in found
    assert found & SELDOM == set()


def test_what_servers_load_has_no_methods_compiled_of_classes_that_nobody_uses() -> None:
    """Text that the standard library's `dataclass` has compiled has no file."""
    script = """
import sys
import maxq.cli.app, maxq.cli.commands.servers, maxq.standalone

names = {
    value.__qualname__
    for name, module in list(sys.modules.items()) if name.startswith("maxq.")
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__.startswith("maxq.") and "<string>" in {
        getattr(getattr(vars(value).get(method), "__code__", None), "co_filename", "")
        for method in ("__init__", "__repr__", "__eq__")
    }
}
print(len(names), *sorted(names))
"""
    count, *names = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout.split()  # fmt: skip
    assert int(count) <= 8, names
