"""Did you mean …? for names of topics, consumer groups, brokers and clusters that servers do not know."""

import asyncio
import difflib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from maxq.client.admin.admin import Admin
from maxq.errors import MaxQError, RemotingError
from maxq.protocol.namespace import RETRY_PREFIX

_SECONDS: Final = 2  # longest delay of an error for a search for similar names
_CUTOFF: Final = 0.75  # difflib's measure of likeness, from 0 to 1


@asynccontextmanager
async def near_names(admin: Admin, words: Iterable[object]) -> AsyncIterator[None]:
    """Add the most similar existing name, as a note, to an error of the block that names one of `words`, which no
    server knows."""
    try:
        yield
    except RemotingError:
        raise
    except MaxQError as error:
        text = str(error)
        unknown = [word for word in words if isinstance(word, str) and word and word in text]
        if unknown and not error.is_wrong_value:
            known = await _known(admin)
            for word in unknown:
                if word not in known and (near := nearest(word, known)):
                    error.add_note(f"did you mean {near}?")
        raise


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the name that is most similar to `word`, in any case; None if none is similar."""
    by_folded = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), list(by_folded), n=1, cutoff=_CUTOFF)
    return by_folded[found[0]] if found else None


async def _known(admin: Admin) -> set[str]:
    """Return the names of topics, groups, brokers and clusters; none if the name server does not answer in time."""
    try:
        async with asyncio.timeout(_SECONDS):
            topics, clusters = await asyncio.gather(admin.topics.names(), admin.cluster_info())
    except (MaxQError, TimeoutError):
        return set()
    groups = {topic.removeprefix(RETRY_PREFIX) for topic in topics}
    return {*topics, *groups, *clusters.broker_addr_table, *clusters.cluster_addr_table}
