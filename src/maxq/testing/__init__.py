"""The simulator: the shipped code in virtual time, on an in-memory network and a disk that can fail.

`run_simulation` (simulation.py) is the way in; `SimLoop`, `SimNetwork`, `SimClock`, `SimDisk` and `SimRng` are its
parts. Everything drawn comes from one seed. `simulate` (simulated_cluster.py) runs a user's program on it, against
brokers that are killed, cut off and handed over.

server_process.py is for the other kind of test: it runs servers as processes of this machine, which can be killed.

pytest_plugin.py offers both as fixtures to the tests of users (docs/howto/testing.md).
"""

from typing import TYPE_CHECKING, Any

__all__ = ["MaxQServer", "Simulation", "simulate"]

if TYPE_CHECKING:
    from maxq.testing.server_process import MaxQServer
    from maxq.testing.simulated_cluster import Simulation, simulate


def __getattr__(name: str) -> Any:
    # On demand: pytest loads this package with its plug-ins, and most tests use neither servers nor the simulator.
    if name == "MaxQServer":
        from maxq.testing import server_process

        return server_process.MaxQServer
    if name in __all__:
        from maxq.testing import simulated_cluster

        return getattr(simulated_cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
