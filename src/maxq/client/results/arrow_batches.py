"""Messages as Arrow columns for consumers (`LitePullConsumer.poll_arrow`). pyarrow is loaded with the first call."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from maxq.client.errors import WrongArgumentError
from maxq.errors import ClientError, ConfigError
from maxq.protocol.namespace import unwrap

if TYPE_CHECKING:
    import pyarrow as pa

    from maxq.arrow.columns_cy import ColumnMemory
    from maxq.client.consumer.held.fetch_queue_cy import Fetched
    from maxq.protocol.message.message import MessageExt


_ENOUGH: Final = 64 << 20  # bytes of bodies, which may have come compressed to a thousandth of that


def load_arrow(module: str, call: str) -> Any:
    """Import a module of maxq.arrow for a call.

    Raises:
        ClientError: pyarrow, or numpy, is not installed.
    """
    try:
        return import_module(f"maxq.arrow.{module}")
    except ModuleNotFoundError as error:
        if error.name not in ("pyarrow", "numpy"):
            raise
        raise ClientError(
            f"{call} needs {error.name}, which is not installed here: pip install 'maxq[arrow]'"
        ) from error


def column_memory() -> "ColumnMemory":
    """Return memory for the batches of one consumer. Raises ClientError if pyarrow is not installed."""
    memory: ColumnMemory = load_arrow("columns_cy", "poll_arrow").ColumnMemory()
    return memory


def arrow_polls(
    columns: Sequence[str] | None, namespace: str, memory: "ColumnMemory"
) -> "Callable[[Iterable[Fetched]], pa.RecordBatch]":
    """Return what makes the batch of a poll. If the bodies are very large, that has the first messages only.

    Args:
        columns: names of columns, in order; None: all.

    Raises:
        WrongArgumentError: no such column, one named twice, or none at all.
        ClientError: pyarrow is not installed.
    """
    schemas, builders = load_arrow("schemas", "poll_arrow"), load_arrow("columns_cy", "poll_arrow")
    if columns is None:
        names = tuple(schemas.MESSAGE_COLUMNS)
    else:
        if isinstance(columns, str) or not columns or not all(isinstance(name, str) for name in columns):
            raise WrongArgumentError(f"columns is a list of names, such as ['body', 'tags'], not {columns!r:.60}")
        try:
            names = schemas.checked_columns(columns)
        except ConfigError as error:
            raise WrongArgumentError(str(error)) from None

    has_bodies = "body" in map(schemas.base_column, names)

    def make(polled: "Iterable[Fetched]") -> "pa.RecordBatch":
        found = [fetched.messages for fetched in polled]
        if len(found) == 1 and isinstance(found[0], list):
            messages = _enough(found[0]) if has_bodies else found[0]
            return load_arrow("message_columns", "poll_arrow").batch_of_messages(messages, names)
        pulls = [records for records in found if not isinstance(records, list)]
        rows, size = sum(records.count for records in pulls), sum(records.size for records in pulls)
        unwrapped = partial(unwrap, namespace) if namespace else None
        builder = builders.ColumnBuilder(names, rows, size, unwrapped, memory, _ENOUGH)
        for records in pulls:
            if builder.add_records(records) < records.count:
                break
        return builder.batch()

    return make


def rows_in(polled: "Iterable[Fetched]") -> int:
    """Return how many messages a poll has taken; the batch may have fewer."""
    found = [fetched.messages for fetched in polled]
    return sum(len(records) if isinstance(records, list) else records.count for records in found)


def _enough(messages: "Sequence[MessageExt]") -> "Sequence[MessageExt]":
    """Return the first messages, whose bodies are enough for a batch."""
    size = 0
    for count, message in enumerate(messages):
        if size >= _ENOUGH:
            return messages[:count]
        size += len(message.body)
    return messages
