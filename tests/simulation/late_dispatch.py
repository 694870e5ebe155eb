"""Dispatch that is far behind: what was appended in one go is dispatched record by record, a while apart.

In a real broker that is a batch with millions of keys, which takes many turns of the loop; whatever may happen between
two of them happens here between any two records.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar
from unittest.mock import patch

from maxq.store.append.append_propagation import AppendPropagation
from maxq.store.dispatch import dispatcher as dispatch
from maxq.store.dispatch.dispatcher import DispatchService
from maxq.testing.sim_rng import SimRng

_PAUSES_S: Final = (0.005, 0.02, 0.05)


class _Story(Protocol):
    def run(self) -> None:
        """Tell it."""


S = TypeVar("S", bound=_Story)


def late(make: Callable[[int], S]) -> Callable[[int], S]:
    """The same stories, told of stores whose dispatch is late."""

    def make_late(seed: int) -> S:
        story = make(seed)
        run, pause_s = story.run, SimRng(seed).fork("late dispatch").choice(_PAUSES_S)

        def run_late() -> None:
            with late_dispatch(pause_s):
                run()

        story.run = run_late  # type: ignore[method-assign]
        return story

    return make_late


@contextlib.contextmanager
def late_dispatch(pause_s: float) -> Iterator[None]:
    """Stores dispatch one record in each turn, and the turns are `pause_s` apart, in virtual time."""

    def dispatch_later(self: AppendPropagation) -> None:
        if not self._is_dispatching:
            self._is_dispatching = True
            asyncio.get_running_loop().call_later(pause_s, self._dispatch_rest)

    async def finish_turns(self: DispatchService) -> None:
        while self.is_late:  # noqa: ASYNC110 virtual time
            await asyncio.sleep(pause_s)

    with (
        patch.multiple(dispatch, _PIECE=1, _TURN_NS=-1),
        patch.object(AppendPropagation, "dispatch_later", dispatch_later),
        patch.object(DispatchService, "finish_turns", finish_turns),
    ):
        yield
