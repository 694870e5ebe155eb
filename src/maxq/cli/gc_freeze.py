"""Python's cycle collector in a server: objects that survive a full collection are frozen.

A full collection looks at every container there is while the loop stands still: 10 000 topics and 20 000 groups are 300
000 objects and 100 ms, again each time their number has grown by a quarter. But tables are not garbage. So objects that
survive a full collection are frozen (`gc.freeze`), and the next collection examines only newer ones. A frozen object
that later becomes garbage is found when all objects are examined again: when as many have been frozen as the last full
examination found. So garbage stays bounded, and a program that fills tables pays for a few examinations, not dozens.
"""

import gc
from typing import Any, Final

#: Objects that are frozen at least before all are examined again.
_LEAST: Final = 200_000
_FULL: Final = 2
_USUAL_THRESHOLDS: Final = (700, 10, 10)  # Python's thresholds; the start of a program raises them


class SurvivorFreeze:
    """Sets surviving objects aside from `start` to `stop`. It affects the whole process: only programs have one."""

    def __init__(self, least: int = _LEAST) -> None:
        """`least` is the number of objects that are set aside at least before all are examined again."""
        self._least = least
        self._set_aside = 0  # objects that were frozen since all were examined
        self._limit = least

    def start(self) -> None:
        """Start; the objects that exist now are set aside."""
        gc.freeze()
        gc.set_threshold(*_USUAL_THRESHOLDS)
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Restore the collector to its former state, whether this was started or not."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)
            gc.unfreeze()

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "start":
            if self._set_aside >= self._limit:
                gc.unfreeze()  # done before the collector takes its list, so that it examines all objects
                self._set_aside = -1
            return
        survivors = len(gc.get_objects(generation=_FULL))
        gc.freeze()
        if self._set_aside < 0:
            self._set_aside, self._limit = 0, max(self._least, survivors)
        else:
            self._set_aside += survivors
