"""`maxq context`: named connections, and which of them is in use."""

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from maxq.cli.connection import AccessKey, ContextName, Namesrv, SecretKey, Tls, found_connection
from maxq.cli.connection_variables import CONTEXT_VARIABLE
from maxq.cli.contexts import Profile, changed_contexts, checked_name, load_contexts
from maxq.cli.help_pages import CONNECTION, OUTPUT, CommandApp
from maxq.cli.lazy import NearGroup
from maxq.cli.options import name_servers
from maxq.cli.terminal.report import Report, Style, done_report, show
from maxq.errors import ConfigError
from maxq.machine import tools_credentials

app = CommandApp(
    cls=NearGroup,
    no_args_is_help=True,
    help="Named connections: name servers, TLS and credentials, kept in one file of yours.",
)

_STANDARD_INPUT = "-"
_HIDDEN = "***"
_TLS_WORDS = ("verify", "insecure", "off")
_COLUMNS = {
    "name": "#Name", "current": "#In Use", "namesrv": "#Name Servers", "tls": "#TLS", "accessKey": "#Access Key",
}  # fmt: skip
_SHOWN = {"setting": "#Setting", "value": "#Value", "source": "#From"}

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context's name.")]
AsJson = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print JSON.")]


@app.command()
def add(
    context_name: Name,
    namesrv: Annotated[
        str,
        typer.Option(
            "-n",
            "--namesrv",
            "--namesrvAddr",
            callback=name_servers,
            rich_help_panel=CONNECTION,
            help="Name servers, host or host:port separated by ';'.",
        ),
    ],
    access_key: Annotated[
        str, typer.Option("--access-key", rich_help_panel=CONNECTION, help="Sign requests as this user.")
    ] = "",
    secret_key: Annotated[
        str,
        typer.Option(
            "--secret-key",
            rich_help_panel=CONNECTION,
            help="Its secret; - asks for it, or reads a line of standard input, so that it is not visible.",
        ),
    ] = "",
    security_token: Annotated[
        str, typer.Option("--security-token", rich_help_panel=CONNECTION, help="Its token, of temporary credentials.")
    ] = "",
    tls: Annotated[
        str,
        typer.Option(
            "--tls",
            metavar="WORD",
            rich_help_panel=CONNECTION,
            help="Speak TLS. verify: check servers by the system's authorities; a file of authorities (PEM); a "
            "file FILE.properties with lines tls.client.…, for a certificate of your own; insecure: "
            "trust any server; off: no TLS.",
        ),
    ] = "",
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing context of this name.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a context, or with --replace write one anew."""
    checked_name(context_name)
    secret = _secret(secret_key) if secret_key == _STANDARD_INPUT else secret_key
    if bool(access_key) != bool(secret):
        raise ConfigError("--access-key and --secret-key are given together or not at all")
    profile = Profile(namesrv, _tls(tls), access_key, secret, security_token)
    for option, value in (
        ("--tls", profile.tls),
        ("--access-key", access_key),
        ("--secret-key", secret),
        ("--security-token", security_token),
    ):
        if not value.isprintable():
            raise ConfigError(f"{option} must be a text of one line")
    with changed_contexts() as contexts:
        if context_name in contexts.profiles and not replace:
            raise ConfigError(f"context {context_name} is in file {contexts.path} already: --replace replaces it")
        contexts.profiles[context_name] = profile
        if use:
            contexts.current = context_name
    is_used = contexts.current == context_name
    rest = "it is in use" if is_used else f"`maxq context use {context_name}` makes it the usual one"
    sentence = f"context {context_name} is saved in {contexts.path}; {rest}"
    _done(sentence, as_json, context=context_name, file=str(contexts.path))


@app.command("list", short_help="All contexts.")
def list_contexts(as_json: AsJson = False) -> None:
    """List all contexts, without their secrets."""
    contexts = load_contexts()
    rows = [
        (name, name == contexts.current, profile.namesrv, profile.tls, profile.access_key)
        for name, profile in sorted(contexts.profiles.items())
    ]
    notes = [] if rows else [f"file {contexts.path} has no context: maxq context add makes one"]
    show(Report(_COLUMNS, rows, notes=notes), _style(as_json))


@app.command("show", short_help="Where commands connect, as which user, and which source says so.")
def show_connection(
    context_name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this context instead.")] = None,
    namesrv: Namesrv = None,
    context: ContextName = None,
    access_key: AccessKey = None,
    secret_key: SecretKey = None,
    tls: Tls = None,
    as_json: AsJson = False,
) -> None:
    """Where a command with these options connects, as whom, and what says so: an option, the environment, a context.
    With NAME what that context says. Secrets are not shown."""
    if context_name is not None and context is not None:
        raise ConfigError("NAME and --context exclude each other")
    rows: list[tuple[str, str, str]] = []
    if context_name is not None:
        profile = load_contexts().profile(context_name)
        source = f"context {context_name}"
        values = {
            "namesrv": profile.namesrv, "tls": profile.tls, "accessKey": profile.access_key,
            "secretKey": profile.secret_key, "securityToken": profile.security_token,
        }  # fmt: skip
        rows = [(setting, _shown(setting, value), source) for setting, value in values.items() if value]
    else:
        found = found_connection(namesrv, context, access_key, secret_key, tls)
        rows = [("namesrv", *found.namesrv), ("tls", found.tls.value or "off", found.tls.source)]
        settings = {"access_key": "accessKey", "secret_key": "secretKey", "security_token": "securityToken"}
        for own, shown in settings.items():
            if own in found.credentials:
                setting = found.credentials[own]
                rows.append((shown, _shown(shown, setting.value), setting.source))
        if not found.credentials and (tools := tools_credentials()) is not None:
            rows.append(("accessKey", tools.access_key, "$ROCKETMQ_HOME/conf/tools.yml"))
    value = {setting: {"value": text, "source": source} for setting, text, source in rows}
    show(Report(_SHOWN, rows, value=value), _style(as_json))


@app.command()
def use(
    context_name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The context's name.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context from now on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Use a context in all commands from now on that are given none."""
    if (context_name is None) != none:
        raise ConfigError("name a context, or give --none to use none")
    with changed_contexts() as contexts:
        if context_name is not None:
            contexts.profile(context_name)
        contexts.current = context_name or ""
    sentence = f"context {context_name} is in use" if context_name else "no context is in use"
    _done(sentence, as_json, context=context_name)
    variable = os.environ.get(CONTEXT_VARIABLE, "")
    if context_name and variable not in ("", context_name):
        print(f"maxq: warning: {CONTEXT_VARIABLE}={variable} comes before it", file=sys.stderr)


@app.command()
def remove(context_name: Name, as_json: AsJson = False) -> None:
    """Remove a context and its secrets from the file."""
    with changed_contexts() as contexts:
        contexts.profile(context_name)
        del contexts.profiles[context_name]
        if contexts.current == context_name:
            contexts.current = ""
    sentence = f"context {context_name} is removed from {contexts.path}"
    _done(sentence, as_json, context=context_name, file=str(contexts.path))


def _secret(option: str) -> str:
    """Ask for a secret at a terminal, where it is not shown; elsewhere it is a line of standard input.

    Raises:
        ConfigError: none was given.
    """
    secret = getpass.getpass("secret key: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise ConfigError(f"--secret-key {option}: standard input has no secret")
    return secret


def _tls(word: str) -> str:
    """Return the word, or the absolute path of the file that it names.

    Raises:
        ConfigError: there is no such file.
    """
    if not word or word in _TLS_WORDS:
        return word
    path = Path(word).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(
            f"--tls {word}: there is no such file; give verify, insecure, off, a file of authorities or FILE.properties"
        )
    return str(path)


def _shown(setting: str, value: str) -> str:
    return _HIDDEN if setting in ("secretKey", "securityToken") else value


def _style(as_json: bool) -> Style:
    return Style.JSON if as_json else Style.TEXT


def _done(sentence: str, as_json: bool, **facts: Any) -> None:
    show(done_report(sentence, **facts), _style(as_json))
