"""How commands end: exit codes, and streams that nobody reads any more."""

import os
import sys
from enum import IntEnum
from typing import Final, TextIO


class ExitCode(IntEnum):
    """The exit codes of all commands. Those above 128 are what shells give a program that SIGINT or SIGPIPE ended."""

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    INTERRUPTED = 130
    READER_GONE = 141


#: What each of them means; the manual has the same table.
MEANINGS: Final = {
    ExitCode.DONE: "The work is done. A server that Ctrl-C or SIGTERM ended has done its work, too.",
    ExitCode.FAILED: "The work failed, a part of it failed, or a check found a fault.",
    ExitCode.WRONG_USE: "The command line or a setting is wrong, or a store or archive that it names cannot be used.",
    ExitCode.INTERRUPTED: "Ctrl-C interrupted the command.",
    ExitCode.READER_GONE: "The reader of the output has gone, as in `maxq … | head -1`.",
}


def flush_output() -> None:
    """Write what standard output and standard error still hold.

    Raises:
        BrokenPipeError: the reader of one of them has gone.
        OSError: one of them is closed, or its disk is full.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def drop_unread_output() -> None:
    """Discard what a stream still holds and cannot write, so that Python does not complain at its end."""
    for stream in (sys.stdout, sys.stderr):
        _drop_unread(stream)


def _drop_unread(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
