"""How commands end: exit codes of the shell's convention, and streams that nobody reads any more."""

import os
import sys
from typing import Final, TextIO

#: After Ctrl-C: what a shell gives a program that SIGINT ended.
INTERRUPTED: Final = 130
#: The reader of the output has gone (`maxq … | head`): what a shell gives a program that SIGPIPE ended.
READER_GONE: Final = 141


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
