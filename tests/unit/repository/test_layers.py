"""What may be installed where: a name server and a client need no store (import-linter keeps the finer rules)."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["maxq.namesrv.controller", "maxq.api", "maxq.cli.app"])
def test_the_store_belongs_to_the_broker_alone(module: str) -> None:
    program = f"import sys, {module}; print(*[name for name in sys.modules if name.startswith('maxq.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert module in loaded
    assert [name for name in loaded if name.startswith(("maxq.store", "maxq.broker"))] == []


@pytest.mark.parametrize("module", ["maxq.namesrv.controller", "maxq.api", "maxq.broker.controller"])
def test_servers_and_clients_share_one_remoting(module: str) -> None:
    program = f"import sys, {module}; print('maxq.remoting.endpoint' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
