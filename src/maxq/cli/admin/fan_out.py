"""One question to many servers: who answered, and who did not.

A command that asks several brokers goes on when one fails. The answers that came are printed; each failure is a line on
standard error, and in `failures` of a JSON object; the exit code is then 1.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from maxq.cli.terminal.error_text import error_line
from maxq.cli.terminal.report import Report, json_values
from maxq.errors import MaxQError

Answer = TypeVar("Answer")
_AT_ONCE = 32


@dataclass
class Outcomes(Generic[Answer]):
    """Results by address, in the order of the addresses."""

    answers: dict[str, Answer] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def report(self, sentence: Callable[[str], str], **facts: Any) -> Report:
        """Report success on each address: mqadmin's sentence for each one, and the facts for --json."""
        done = list(self.answers)
        text = "".join(f"{sentence(address)}\n" for address in done)
        columns = {"broker": "#Broker", "done": "#Done"}
        rows = [*((address, True) for address in done), *((address, False) for address in self.failures)]
        return Report(columns, rows, value={"brokers": done, **facts}, text=text, failures=self.failures)


def settings_report(
    found: Outcomes[dict[str, str]], *, heads: Mapping[str, str] | None = None, texts: Collection[str] = ()
) -> Report:
    """Report all settings of several servers, as mqadmin lists them; as JSON, one object for each server.

    Args:
        heads: what stands above a server's settings, where it is not the address.
        texts: settings that are texts even if they look like numbers.
    """
    rows = [(address, key, value) for address, config in found.answers.items() for key, value in config.items()]
    text = "".join(
        f"============{(heads or {}).get(address, address)}============\n"
        + "".join(f"{key:<50}=  {value}\n" for key, value in config.items())
        for address, config in found.answers.items()
    )
    columns = {"address": "#Address", "key": "#Key", "value": "#Value"}
    value = {address: json_values(config, names=texts) for address, config in found.answers.items()}
    return Report(columns, rows, value=value, text=text, failures=found.failures)


async def ask_each(addresses: Iterable[str], ask: Callable[[str], Awaitable[Answer]]) -> Outcomes[Answer]:
    """Ask all of them at the same time.

    Raises:
        MaxQError, OSError: there is only one, and it failed.
    """
    targets = list(dict.fromkeys(addresses))
    if len(targets) == 1:
        return Outcomes({targets[0]: await ask(targets[0])})
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(address: str) -> Answer | MaxQError | OSError:
        async with limit:
            try:
                return await ask(address)
            except (MaxQError, OSError) as error:
                return error

    outcomes: Outcomes[Answer] = Outcomes()
    for address, answer in zip(targets, await asyncio.gather(*map(one, targets)), strict=True):
        if isinstance(answer, (MaxQError, OSError)):
            outcomes.failures[address] = error_line(answer)
        else:
            outcomes.answers[address] = answer
    return outcomes
