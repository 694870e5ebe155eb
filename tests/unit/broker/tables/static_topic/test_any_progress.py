"""Whatever clients and operators do, a group goes on in a global queue where it was last set: a plain model beside real
brokers, of which some are away now and then."""

import asyncio
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from tests.short_form import times
from tests.unit.broker.tables.static_topic.test_progress_in_chains import Chain

PARTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 10])), min_size=1, max_size=3)
DEEDS = ["commit", "commit", "commit if ahead", "reset", "pull", "leave", "return"]
STEPS = st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 3), st.integers(0, 10)), min_size=4, max_size=9)


class Progress:
    """A chain, and where its group may be after what was done; a refusal leaves open whether it was done."""

    def __init__(self, counts: list[int], chain: Chain) -> None:
        self.counts, self.chain = counts, chain
        self.places: set[int | None] = {None}  # None: it is new
        self.is_reset = False

    def at(self, part: int, offset: int) -> int:
        """Return a global offset of a part; that of the next one if the part has no message, and is not the last."""
        while part < len(self.counts) - 1 and not self.counts[part]:
            part, offset = part + 1, 0
        return 10_000 * part + min(offset, self.counts[part])

    async def do(self, deed: str, part: int, offset: int) -> None:
        part %= len(self.counts)
        place = self.at(part, offset)
        if deed == "leave":
            self.chain.away.add("abc"[part % 3])
        elif deed == "return":
            self.chain.away.clear()
        elif deed == "pull":
            await self.pull()
        elif deed == "reset":
            with suppress(RequestRefusedError):  # nothing is reset then
                assert await self.chain.reset(10_000 * part + min(offset, self.counts[part])) == place
                self.places, self.is_reset = {place}, True
        else:
            await self.commit(place, is_ahead=deed == "commit if ahead")

    async def pull(self) -> None:
        """Hear of a reset that waits."""
        if self.is_reset:
            last = str(10_000 * (len(self.counts) - 1))
            with suppress(RequestRefusedError):
                told = await self.chain.call(RequestCode.PULL_MESSAGE, queueOffset=last, maxMsgNums="1", sysFlag="0")
                assert told.code == ResponseCode.PULL_OFFSET_MOVED
                assert {int(told.ext["nextBeginOffset"])} == self.places
                self.is_reset = False

    async def commit(self, place: int, *, is_ahead: bool) -> None:
        wanted: set[int | None] = {max(before or 0, place) for before in self.places} if is_ahead else {place}
        try:
            await self.chain.commit(place, **({"maxqIfAhead": "true"} if is_ahead else {}))
        except RequestRefusedError:
            self.places = self.places | wanted
        else:
            self.places = self.places if self.is_reset else wanted

    async def check(self) -> None:
        """See that the group is where it was set, also while some are away, unless nobody knows then."""
        away, self.chain.away = self.chain.away, set()
        place = await self.known()
        assert place in self.places
        self.places, self.chain.away = {place}, away
        with suppress(RequestRefusedError):
            assert await self.known() == place or place is None

    async def known(self) -> int | None:
        place = await self.chain.place()
        return None if place is None else self.at(*divmod(place, 10_000))


@given(PARTS, STEPS)
@settings(max_examples=times(200, short=40), deadline=None)
def test_a_group_goes_on_where_it_was_last_set(parts: list[tuple[str, int]], steps: list[tuple[str, int, int]]) -> None:
    async def story() -> None:
        everything = [*parts, ("a", 10)]
        progress = Progress([count for _, count in everything], Chain(*everything))
        for step in steps:
            await progress.do(*step)
            await progress.check()

    asyncio.run(story())
