"""Small programs, one a task. `python -m examples.clients.NAME` runs one at the server that NAMESRV_ADDR names."""

import os


def name_server() -> str:
    """Return the address in NAMESRV_ADDR, else that of `maxq standalone`."""
    return os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
