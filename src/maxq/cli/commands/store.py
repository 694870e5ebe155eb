"""`maxq store …`: look into a store directory, check it, recover it, rehearse taking it over. No broker is needed.

All but `recover` never write, and may be run beside a broker that is writing.
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Annotated, Any

import orjson
import typer

from maxq.cli.help_pages import OUTPUT, CommandApp
from maxq.cli.lazy import NearGroup
from maxq.cli.options import folder
from maxq.cli.terminal.ends import ExitCode
from maxq.cli.terminal.progress import progress_in_bytes
from maxq.errors import ConfigError, MaxQError, StoreError
from maxq.machine import raise_file_limit, system_host
from maxq.runtime.files.overlay_disk import OverlayDisk
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.tools import recover as recovering
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.message_lines import lines_of, messages_of
from maxq.store.tools.offsets import queue_offsets
from maxq.store.tools.store_files import StoreFiles, StoreSettings

_OTHER_FILES = 200  # descriptors beside those of queues
_MAPPED_MOST = 30_000  # of the 65,530 mappings that Linux lets a process have

app = CommandApp(
    cls=NearGroup,
    help="Store directories, offline.",
    no_args_is_help=True,
)

Directory = Annotated[
    Path, typer.Argument(parser=folder, metavar="DIR", help="The store's root directory (storePathRootDir).")
]
Conf = Annotated[Path | None, typer.Option("--conf", "-c", help="broker.conf, for settings that no file shows.")]
Json = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="JSON on standard output.")]
HashSlots = Annotated[int, typer.Option("--hash-slots", help="maxHashSlotNum of the index files.", min=0)]
IndexEntries = Annotated[int, typer.Option("--index-entries", help="maxIndexNum of the index files.", min=0)]


@app.command(short_help="Every message in log order.")
def messages(directory: Directory, as_json: Json = False, conf: Conf = None) -> None:
    """Every message in log order, one a line; with --json as an object, without it tab-separated: physical offset,
    size, topic, queue id, queue offset, store time in milliseconds, offset id, tags, keys."""
    with _errors_to_stderr(), progress_in_bytes() as progress:
        walk = LogWalk(_open(directory, conf), progress)
        out = sys.stdout.buffer
        for batch in walk.batches():
            if as_json:
                out.writelines(orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE) for found in messages_of(batch))
            else:
                out.write(lines_of(batch))
        walk.close()
        out.flush()
        for fault in walk.faults:
            print(fault, file=sys.stderr)


@app.command(short_help="First and next offset of every queue.")
def offsets(directory: Directory, as_json: Json = False, conf: Conf = None) -> None:
    """First and next offset of every queue; without --json tab-separated behind topic and queue id."""
    with _errors_to_stderr(), progress_in_bytes() as progress:
        found = queue_offsets(_open(directory, conf), progress)
    if as_json:
        _print_json([queue.to_json() for queue in found])
        return
    for queue in found:
        print(f"{queue.topic}\t{queue.queue_id}\t{queue.min_offset}\t{queue.max_offset}")


@app.command(short_help="Compare log, queues, index, checkpoint and settings files.")
def check(
    directory: Directory,
    as_json: Json = False,
    conf: Conf = None,
    hash_slots: HashSlots = 0,
    index_entries: IndexEntries = 0,
) -> None:
    """Compare log, queues, index, checkpoint and settings files with each other; exit 1 if anything is wrong."""
    with _errors_to_stderr(), progress_in_bytes() as progress:
        raise_file_limit()
        files = _open(directory, conf, hash_slots, index_entries)
        report = StoreCheck(files, progress, open_queues=_queues_to_open(system_host().open_files)).run()
    if as_json:
        _print_json(report.to_json())
    else:
        for line in report.lines():
            print(line)
    if report.faults:
        raise typer.Exit(ExitCode.FAILED)


@app.command(short_help="Recover as the broker does at its start; --rebuild: rebuild everything.")
def recover(
    directory: Directory,
    as_json: Json = False,
    conf: Conf = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Rebuild queues, index and checkpoint from the whole log.")
    ] = False,
    hash_slots: HashSlots = 0,
    index_entries: IndexEntries = 0,
) -> None:
    """Do what the broker does at its start, end cleanly, and say what was done. The broker must not be running."""
    with _errors_to_stderr(), progress_in_bytes() as progress:
        files = _open(directory, conf, hash_slots, index_entries)
        report = recovering.recover(files, SystemClock(), rebuild=rebuild, progress=progress)
    if as_json:
        _print_json(recovering.recovery_json(report))
        return
    for line in report.lines():
        print(line)


@app.command(short_help="Could MaxQ take over this (Java) store? Changes nothing.")
def rehearse(
    directory: Directory,
    as_json: Json = False,
    conf: Conf = None,
    hash_slots: HashSlots = 0,
    index_entries: IndexEntries = 0,
) -> None:
    """Could MaxQ take over this (Java) store? Recovers it on an overlay, so that nothing changes, and compares
    every queue."""
    with (
        _errors_to_stderr(),
        progress_in_bytes() as progress,
        tempfile.TemporaryDirectory(prefix="maxq-rehearse-") as upper,
    ):
        original = _open(directory, conf, hash_slots, index_entries)
        copy = StoreFiles(
            OverlayDisk(PurePath(directory), PurePath(upper), also=original.outer_log_folders),
            PurePath(directory),
            original.settings,
        )
        report = recovering.Rehearsal(original, copy, SystemClock(), progress).run()
    if as_json:
        _print_json(report.to_json())
    else:
        for line in report.lines():
            print(line)
    if not report.possible:
        raise typer.Exit(ExitCode.FAILED)


def _queues_to_open(open_files: int) -> int:
    """Return how many queues may be mapped at once by a process that may open `open_files` files; 0: any number."""
    return min(max((open_files - _OTHER_FILES) // 2, 1), _MAPPED_MOST) if open_files else _MAPPED_MOST


def _open(directory: Path, conf: Path | None, hash_slots: int = 0, index_entries: int = 0) -> StoreFiles:
    settings = None
    if conf is not None:
        try:
            data = conf.read_bytes()
        except OSError as error:
            raise ConfigError(f"file {conf} can not be read: {error.strerror}") from None
        settings = StoreSettings.from_properties(data, source=str(conf))
    if directory.is_file():
        raise StoreError(f"{directory} is a file: give the store's root directory (storePathRootDir)")
    files = StoreFiles(SystemDisk(), PurePath(directory), settings, hash_slots=hash_slots, index_entries=index_entries)
    if not files.exists:
        raise StoreError(f"{directory} holds no store: no commitlog, consumequeue or checkpoint; give storePathRootDir")
    return files


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def _errors_to_stderr() -> Iterator[None]:
    """Make refusals end the command with status 2 and one line on standard error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (MaxQError, OSError) as error:
        print(f"maxq: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.WRONG_USE) from None
