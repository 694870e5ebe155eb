"""`maxq` and `python -m maxq`."""

import gc
import signal
import sys

#: Objects that come before garbage is looked for: more than a start makes. Modules are no garbage, and looking at them
#: once takes a tenth of the time of a start.
_COLLECT_AT = 200_000


def main() -> int:
    """Run the command line in `sys.argv`; returns the exit code."""
    gc.set_threshold(_COLLECT_AT)
    is_python_s = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # in the background it is ignored
    if is_python_s:  # while modules are loaded there is nothing to end in good order: Ctrl-C ends the process
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from maxq.cli.app import run

    if not is_python_s:
        return run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run(sys.argv[1:])
    finally:  # nor while Python ends
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
