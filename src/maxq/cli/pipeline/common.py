"""Options that the commands `archive`, `replay` and `dlq` share, and what they make of them."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import typer

from maxq.cli.options import split_assignments
from maxq.cli.terminal.report import Report, Style, pairs_report, show
from maxq.cli.terminal.times import parse_time
from maxq.errors import BrokerError
from maxq.machine import environment_credentials
from maxq.remoting.tls.contexts import tls_settings
from maxq.runtime.files.system import SystemClock

Options = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", metavar="NAME=VALUE", help='An option of format("rocketmq"); may be repeated.'),
]
Begin = Annotated[str | None, typer.Option("-b", "--begin", help="Stored at this time or later.")]
End = Annotated[str | None, typer.Option("-e", "--end", help="Stored before this time.")]
Key = Annotated[str | None, typer.Option("-k", "--key", help="Only messages with this key.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only messages with this tag; may be repeated.")]
Where = Annotated[str | None, typer.Option(help="Only messages that meet this condition of Spark's SQL.")]
Stores = Annotated[
    list[str] | None,
    typer.Option("--store", metavar="DIR", help="A broker's store directory, broker up or down; may be repeated."),
]
BrokerName = Annotated[str, typer.Option(help="Name of the broker of --store; without it the folder's name.")]


def reading(namesrv: str, options: list[str] | None) -> dict[str, str]:
    """Return the options of format("rocketmq"): name servers, TLS and credentials, and those given by hand."""
    return {"rocketmq.namesrv": namesrv, **format_options(options)}


def format_options(options: list[str] | None) -> dict[str, str]:
    """Return the options of format("rocketmq") from the command line, with TLS and credentials of the command's
    connection unless these options set them."""
    given = split_assignments(options or (), option="--option")
    names = {name.lower() for name in given}
    found: dict[str, str] = {}
    credentials = environment_credentials()
    if credentials is not None and not names & {"rocketmq.accesskey", "rocketmq.secretkey"}:
        found |= {"rocketmq.accessKey": credentials.access_key, "rocketmq.secretKey": credentials.secret_key}
        if credentials.security_token:
            found["rocketmq.securityToken"] = credentials.security_token
    tls = tls_settings(os.environ.get("MAXQ_TLS", ""))
    if tls.use_tls and not any(name.startswith(("rocketmq.usetls", "rocketmq.tls.")) for name in names):
        found["rocketmq.useTLS"] = "true"
        if not tls.tls_client_auth_server:
            found["rocketmq.tls.client.authServer"] = "false"
        if tls.tls_client_trust_cert_path:
            found["rocketmq.tls.client.trustCertPath"] = tls.tls_client_trust_cert_path
    return found | given


def need_name_server(options: Mapping[str, str]) -> None:
    """Check before Spark starts that a name server answers: reads wait for one, `rocketmq.brokerWait` long.

    Args:
        options: options of format("rocketmq"); without `rocketmq.namesrv` no name server is asked.

    Raises:
        ConfigError: one of the connection's is wrong.
        RemotingConnectError: none answers.
    """
    if "rocketmq.namesrv" not in options:
        return
    from maxq.pipeline.options.option_values import OptionValues
    from maxq.pipeline.options.read_options import FORMAT, ConnectionOptions
    from maxq.pipeline.wire.wire_client import WireClient

    with WireClient(ConnectionOptions.parse(OptionValues(options, FORMAT))) as client, suppress(BrokerError):
        client.cluster_info()


def need_stores(paths: Sequence[str]) -> None:
    """Check before Spark starts that each folder is a store. Raises ConfigError."""
    from maxq.pipeline.store.store_folder import open_store

    for path in paths:
        open_store(path)


def need_archive(path: str) -> None:
    """Check before Spark starts that there is an archive. Raises ConfigError."""
    from maxq.pipeline.archive.folder import ArchiveFolder

    ArchiveFolder(path).existing()


def time_ms(text: str | None) -> int | None:
    """Parse a time of the command line; None if none was given."""
    return None if text is None else parse_time(text, SystemClock())


def print_result(result: Mapping[str, Any], as_json: bool) -> None:
    """Print one JSON object, or a line for each of its members, and of those that are objects."""
    if as_json:
        show(pairs_report(result), Style.JSON)
        return
    lines: dict[str, str] = {}
    for name, value in result.items():
        members = value.items() if isinstance(value, Mapping) else [("", value)]
        lines |= {f"{name} {member}".strip(): _in_words(one) for member, one in members}
    show(pairs_report(lines), Style.TEXT)


def _in_words(value: Any) -> str:
    """Returns a value as text: lists with commas, pairs of offsets as first-last."""
    if not isinstance(value, (list, tuple)):
        return str(value)
    pairs = (isinstance(one, (list, tuple)) and len(one) == 2 for one in value)
    words = [f"{one[0]}-{one[1]}" if is_pair else str(one) for one, is_pair in zip(value, pairs, strict=True)]
    return ", ".join(words) or "none"


def print_rows(rows: Sequence[Any], columns: Sequence[str], as_json: bool, **result: Any) -> None:
    """Print Spark's rows under the names of their columns; as JSON, `result` is in the object as well."""
    report = Report({name: f"#{name}" for name in columns}, [[row[name] for name in columns] for row in rows])
    if as_json:
        report = replace(report, value={**result, "rows": report.objects()})
    show(report, Style.JSON if as_json else Style.TEXT)
