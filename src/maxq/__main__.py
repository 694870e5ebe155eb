"""`maxq` and `python -m maxq`."""

import gc
import sys

#: Objects that come before garbage is looked for. Modules are none, and Python's 700 would be a tenth of a start.
_COLLECT_AT = 50_000


def main() -> int:
    """Run the command line in `sys.argv`; returns the exit code."""
    gc.set_threshold(_COLLECT_AT)
    from maxq.cli.app import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
