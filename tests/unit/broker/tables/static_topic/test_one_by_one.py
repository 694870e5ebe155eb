"""Changes of one thing come in turn, those of others at once; what has ended or was given up leaves nothing behind."""

import asyncio

from maxq.broker.tables.static_topic.one_by_one import OneByOne


async def test_turns_come_in_order_and_leave_nothing_behind() -> None:
    changes, done = OneByOne(), list[str]()
    first = asyncio.Event()

    async def change(key: str, name: str, goes_on: asyncio.Event | None = None) -> None:
        async with changes.turn(key):
            if goes_on is not None:
                await goes_on.wait()
            done.append(name)

    tasks = [
        asyncio.create_task(change("a", "first", first)),
        asyncio.create_task(change("a", "given up")),
        asyncio.create_task(change("a", "second")),
        asyncio.create_task(change("b", "other")),
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    assert (done, changes.is_busy("a"), changes.is_busy("b")) == (["other"], True, False)
    tasks[1].cancel()
    first.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == ["other", "first", "second"]
    assert not changes.is_busy("a")
