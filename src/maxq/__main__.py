"""`maxq` and `python -m maxq`."""

import sys


def main() -> int:
    """Run the command line in `sys.argv`; returns the exit code."""
    from maxq.cli.app import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
