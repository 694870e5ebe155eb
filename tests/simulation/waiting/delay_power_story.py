"""One seed, one story of messages that wait while machines die: as in delay_story.py, with larger messages that come in
bursts, small files, and more kills and losses of power, also one after the other.

With ASYNC_FLUSH the log has a tail of many pages that was not flushed. A loss of power takes any of them: the copies of
some messages that were delivered and not those of others, in any order. After a kill the tail is there, and not durable
before the next start has made it so. Properties have their check sum: a record with torn ones would be another message.
"""

from typing import ClassVar

from maxq.testing.sim_rng import SimRng
from tests.simulation.waiting.delay_story import DelayStory


class DelayPowerStory(DelayStory):
    """See the module."""

    ENDINGS: ClassVar[tuple[str, ...]] = (
        "shutdown", "kill", "kill in operation", "kill in start", "moment", "moment", "operation", "operation", "start",
        "start", "power lost in shutdown",
    )  # fmt: skip

    @staticmethod
    def _settings(rng: SimRng) -> dict[str, object]:
        return {
            **DelayStory._settings(rng),
            "flush_disk_type": rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH", "ASYNC_FLUSH", "ASYNC_FLUSH")),
            "flush_interval_commit_log": rng.choice((20, 500, 4_000)),
            "flush_delay_offset_interval": rng.choice((50, 500, 10_000)),
            "mapped_file_size_commit_log": rng.choice((32_768, 65_536)),
            "mapped_file_size_consume_queue": rng.choice((400, 2_000)),
            "max_message_size": 8_192,
            "enabled_append_prop_crc": True,
            "force_verify_prop_crc": True,
        }

    def _body(self, rng: SimRng) -> bytes:
        return b"x" * rng.choice((1, 200, 1_000, rng.below(4_000) + 1))
