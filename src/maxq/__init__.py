"""MaxQ: Apache RocketMQ's message broker rebuilt in Python.

`maxq.Standalone` is a name server and a broker in this process; `maxq.client` sends and receives.
"""

from typing import TYPE_CHECKING, Any

from maxq.codes import MAXQ_VERSION

__version__ = MAXQ_VERSION
__all__ = ["Standalone", "__version__"]

if TYPE_CHECKING:
    from maxq.standalone import Standalone


def __getattr__(name: str) -> Any:
    # On demand: `import maxq.codes` must not load a broker, and the command line must start fast.
    if name == "Standalone":
        from maxq.standalone import Standalone

        return Standalone
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
