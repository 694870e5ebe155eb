"""Finds the home folder of the user who runs this process, also of one that the system does not list."""

import os
from pathlib import Path


def home() -> Path:
    """Return the user's home; the root folder for a user without one, as in a container that runs under a number that
    /etc/passwd does not know."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.sep)
