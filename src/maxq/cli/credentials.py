"""--access-key, --secret-key and --tls. Better places for a secret: MAXQ_ACCESS_KEY and MAXQ_SECRET_KEY, or
$ROCKETMQ_HOME/conf/tools.yml, for the arguments of a process are seen by everybody on its machine."""

import os
from typing import Annotated

import typer

from maxq.errors import ConfigError

AccessKey = Annotated[
    str | None, typer.Option("--access-key", help="Sign requests; or MAXQ_ACCESS_KEY, or conf/tools.yml.")
]
SecretKey = Annotated[str | None, typer.Option("--secret-key", help="Its secret; or MAXQ_SECRET_KEY.")]
Tls = Annotated[
    str | None,
    typer.Option(
        "--tls",
        metavar="WORD",
        help="Speak TLS; verify: check servers by the system's authorities; a file of authorities (PEM); insecure: "
        "trust any server. Or MAXQ_TLS.",
    ),
]


def use_credentials(access_key: str | None, secret_key: str | None, tls: str | None) -> None:
    """Make all clients of this process sign with these credentials and use TLS accordingly, where they are given.

    Raises:
        ConfigError: a key without its secret, wherever they come from.
    """
    for name, value in (("MAXQ_ACCESS_KEY", access_key), ("MAXQ_SECRET_KEY", secret_key), ("MAXQ_TLS", tls)):
        if value:
            os.environ[name] = value
    if bool(os.environ.get("MAXQ_ACCESS_KEY")) != bool(os.environ.get("MAXQ_SECRET_KEY")):
        raise ConfigError(
            "--access-key (MAXQ_ACCESS_KEY) and --secret-key (MAXQ_SECRET_KEY) are given together or not at all"
        )
