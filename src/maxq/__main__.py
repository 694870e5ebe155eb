"""`maxq` and `python -m maxq`."""

import gc
import sys

#: Objects that come before garbage is looked for: more than a start makes. Modules are no garbage, and looking at them
#: once takes a tenth of the time of a start.
_COLLECT_AT = 200_000


def main() -> int:
    """Run the command line in `sys.argv`; returns the exit code."""
    gc.set_threshold(_COLLECT_AT)
    from maxq.cli.app import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
