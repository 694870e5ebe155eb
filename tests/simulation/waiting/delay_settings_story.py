"""One seed, one story of messages that wait, as in delay_power_story.py, whose broker starts with other settings at
times: of the wheel's precision and of how far it reaches, of flushing, of the index and of extension units.

The rules are those of delay_story.py. Another precision is refused while messages wait, and the refusal says which one
they wait with; a message of a delay level has its time although the unit in its queue has the address of an extension
unit that nobody can read any more.
"""

import re
from typing import Final

from maxq.errors import StoreRefusedError
from maxq.testing.sim_disk import PowerLoss
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.waiting.delay_power_story import DelayPowerStory

_BEFORE: Final = re.compile(r"Set timerPrecisionMs to (\d+)")


class DelaySettingsStory(DelayPowerStory):
    """See the module."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._is_refused = False

    def _live(self, life: int, ending: str) -> None:
        rng = self.rng.fork(f"other settings {life}")
        if rng.chance(0.7):
            drawn = _drawn(rng)
            self.marks |= {f"other: {name}" for name in drawn if self.settings.get(name) != drawn[name]}
            self.settings.update(drawn)
            self.history.append(f"other settings: {drawn}")
        super()._live(life, ending)
        if self._is_refused:
            self._is_refused = False
            super()._live(life, ending)
            assert not self._is_refused, "a start with the precision that the refusal names is refused"

    async def _main(self, world: SimWorld, rng: SimRng, ending: str) -> None:
        try:
            await super()._main(world, rng, ending)
        except StoreRefusedError as refusal:
            before = _BEFORE.search(str(refusal))
            assert before is not None, f"a start is refused: {refusal}"
            self.settings["timer_precision_ms"] = int(before[1])
            self._is_refused = True
            self.marks.add("refused: timerPrecisionMs")
            self.history.append(f"refused: {refusal}")
            world.disk.kill_process()
            raise PowerLoss from refusal


def _drawn(rng: SimRng) -> dict[str, object]:
    return {
        "flush_disk_type": rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
        "flush_delay_offset_interval": rng.choice((50, 500, 10_000)),
        "timer_precision_ms": rng.choice((100, 200, 500, 1000)),
        "timer_flush_interval_ms": rng.choice((50, 1000, 5000)),
        "timer_roll_window_slot": rng.choice((8, 40, 172_800)),
        "message_index_enable": rng.chance(0.7),
        "enable_consume_queue_ext": rng.chance(0.5),
        "mapped_file_size_consume_queue_ext": rng.choice((1024, 2048)),
    }
