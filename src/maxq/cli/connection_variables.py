"""The environment variables that say where a command connects, and as whom."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
CONTEXT_VARIABLE: Final = "MAXQ_CONTEXT"
TLS_VARIABLE: Final = "MAXQ_TLS"
#: By the names of a context's settings.
CREDENTIAL_VARIABLES: Final = {
    "access_key": "MAXQ_ACCESS_KEY",
    "secret_key": "MAXQ_SECRET_KEY",
    "security_token": "MAXQ_SECURITY_TOKEN",
}
_ALL: Final = (NAMESRV_VARIABLE, CONTEXT_VARIABLE, TLS_VARIABLE, *CREDENTIAL_VARIABLES.values())


def set_variable(name: str, value: str) -> None:
    """Set a variable; without a value it is removed."""
    if value:
        os.environ[name] = value
    else:
        os.environ.pop(name, None)


@contextmanager
def scoped_variables() -> Iterator[None]:
    """Restore these variables at the end of the block: one command's connection is not the next one's in `maxq
    shell`."""
    before = {name: os.environ.get(name, "") for name in _ALL}
    try:
        yield
    finally:
        for name, value in before.items():
            set_variable(name, value)
