"""`maxq` and `python -m maxq`."""

import gc
import io
import os
import signal
import sys

#: New objects after which the garbage collector first runs: more than a start makes. Imported modules are never
#: garbage, and one collection of them takes a tenth of the time of a start.
_COLLECT_AT = 200_000


def main() -> int:
    """Run the command line in `sys.argv`; returns the exit code."""
    gc.set_threshold(_COLLECT_AT)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _replace_closed_streams()
    # as on standard error: a character that the terminal's encoding lacks is escaped and is no error
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    is_python_s = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # in the background it is ignored
    if is_python_s:  # while modules are loaded there is nothing to end in good order: Ctrl-C ends the process
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from maxq.cli.app import run

    if not is_python_s:
        return run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run(sys.argv[1:])
    finally:  # while Python shuts down, Ctrl-C ends the process at once, too
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _replace_closed_streams() -> None:
    """For a program that was started with a standard stream closed (`<&-`, `>&-`).

    Otherwise the next file or connection would get the stream's number. Reading from standard input and writing to
    standard output fail with EBADF; what goes to standard error is lost.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number, which is this one
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


if __name__ == "__main__":
    sys.exit(main())
