"""Where a command connects, and as whom: options, the environment, contexts.

Each of name servers, TLS and credentials comes from the first of these that has it:

1. the options `-n`, `--tls`, `--access-key` with `--secret-key`;
2. the context that `--context` names; with this option the environment does not count;
3. NAMESRV_ADDR, MAXQ_TLS, MAXQ_ACCESS_KEY with MAXQ_SECRET_KEY and MAXQ_SECURITY_TOKEN;
4. the context that MAXQ_CONTEXT names, else the one that `maxq context use` has chosen;
5. name servers: 127.0.0.1:9876; credentials: mqadmin's $ROCKETMQ_HOME/conf/tools.yml.

The clients of this process take TLS and credentials from the environment (maxq.machine); `use_connection` sets these
variables for the duration of a command (`scoped_variables`).
"""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NamedTuple

import typer

from maxq.cli.connection_variables import (
    CONTEXT_VARIABLE,
    CREDENTIAL_VARIABLES,
    NAMESRV_VARIABLE,
    TLS_VARIABLE,
    set_variable,
)
from maxq.cli.contexts import Profile, contexts_file, load_contexts
from maxq.cli.help_pages import CONNECTION
from maxq.cli.options import DEFAULT_NAMESRV, name_servers
from maxq.errors import ConfigError

_TOGETHER: Final = "--access-key (MAXQ_ACCESS_KEY) and --secret-key (MAXQ_SECRET_KEY) are given together or not at all"

Namesrv = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrvAddr",
        callback=name_servers,
        rich_help_panel=CONNECTION,
        help="Name servers, host or host:port separated by ';'. Else NAMESRV_ADDR, else the context's, else "
        f"{DEFAULT_NAMESRV}.",
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        rich_help_panel=CONNECTION,
        help="Connect as this context says (maxq context list). Else MAXQ_CONTEXT, else the one in use.",
    ),
]
AccessKey = Annotated[
    str | None,
    typer.Option(
        "--access-key",
        rich_help_panel=CONNECTION,
        help="Sign requests as this user. Else MAXQ_ACCESS_KEY, else the context's, else conf/tools.yml.",
    ),
]
SecretKey = Annotated[
    str | None,
    typer.Option(
        "--secret-key",
        rich_help_panel=CONNECTION,
        help="Secret of --access-key. Everybody on the machine can see options; MAXQ_SECRET_KEY or a context hides it.",
    ),
]
Tls = Annotated[
    str | None,
    typer.Option(
        "--tls",
        metavar="WORD",
        rich_help_panel=CONNECTION,
        help="Speak TLS. verify: check servers by the system's authorities; a file of authorities (PEM); a "
        "file FILE.properties with lines tls.client.…, for a certificate of your own; insecure: "
        "trust any server; off: no TLS. Else MAXQ_TLS, else the context's.",
    ),
]
CONNECTION_OPTIONS: Final[Mapping[str, Any]] = {
    "namesrv": Namesrv,
    "context": ContextName,
    "access_key": AccessKey,
    "secret_key": SecretKey,
    "tls": Tls,
}


class SourcedValue(NamedTuple):
    """One setting of a connection, such as the address, and where it comes from: an option, a variable or a context."""

    value: str
    source: str


class _Layer(NamedTuple):
    """One place that may say something: the values by their names in a Profile, and what the place is called."""

    values: Mapping[str, str]
    source: Callable[[str], str]


class ConnectionSettings(NamedTuple):
    """The settings with which a command connects.

    Attributes:
        is_named: the command line named the name servers, with `-n` or `--context`.
        credentials: access_key, secret_key and security_token; empty if nothing here says any.
    """

    namesrv: SourcedValue
    tls: SourcedValue
    credentials: Mapping[str, SourcedValue]
    is_named: bool


def found_connection(
    namesrv: str | None = None,
    context: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    tls: str | None = None,
) -> ConnectionSettings:
    """Return the connection that these options, the environment and contexts say.

    Raises:
        ConfigError: the file of contexts is wrong, it lacks the context, or a key comes without its secret.
        typer.BadParameter: NAMESRV_ADDR, or a context, has no address of a name server.
    """
    if context == "":
        raise typer.BadParameter("--context is empty: name a context, or leave the option out")
    named = {"namesrv": namesrv, "access_key": access_key, "secret_key": secret_key, "tls": tls}
    options = _Layer({name: value for name, value in named.items() if value}, lambda name: _OPTION_NAMES[name])
    environment = _environment_layer()
    if context:
        layers = [options, _context_layer(context, "--context")]
    else:
        layers = [options, environment, *_usual_context()]
    namesrv_found = _first(layers, "namesrv") or SourcedValue(DEFAULT_NAMESRV, "default")
    try:
        addresses = name_servers(namesrv_found.value)
    except typer.BadParameter as error:
        file = f"; file {contexts_file()}" if namesrv_found.source.startswith("context ") else ""
        raise typer.BadParameter(f"{namesrv_found.source}: {error.message}{file}") from None
    return ConnectionSettings(
        SourcedValue(addresses or DEFAULT_NAMESRV, namesrv_found.source),
        _first(layers, "tls") or SourcedValue("", "default"),
        _credentials(layers, None if context else environment),
        bool(namesrv or context),
    )


_OPTION_NAMES: Final = {
    "namesrv": "-n", "tls": "--tls", "access_key": "--access-key", "secret_key": "--secret-key",
}  # fmt: skip
_VARIABLE_NAMES: Final = {"namesrv": NAMESRV_VARIABLE, "tls": TLS_VARIABLE, **CREDENTIAL_VARIABLES}


def _environment_layer() -> _Layer:
    values = {name: os.environ.get(variable, "") for name, variable in _VARIABLE_NAMES.items()}
    return _Layer({name: value for name, value in values.items() if value}, lambda name: _VARIABLE_NAMES[name])


def _context_layer(name: str, source: str) -> _Layer:
    return _layer_of(load_contexts().profile(name, source), f"context {name} ({source})")


def _layer_of(profile: Profile, source: str) -> _Layer:
    values = {name: getattr(profile, name) for name in _VARIABLE_NAMES}
    return _Layer({name: value for name, value in values.items() if value}, lambda _: source)


def _usual_context() -> list[_Layer]:
    """Return the context of MAXQ_CONTEXT, else the one in use; none if there is neither."""
    if named := os.environ.get(CONTEXT_VARIABLE):
        return [_context_layer(named, CONTEXT_VARIABLE)]
    contexts = load_contexts()
    if not contexts.current:
        return []
    profile = contexts.profile(contexts.current, "maxq context use")
    return [_layer_of(profile, f"context {contexts.current} (in use)")]


def _first(layers: list[_Layer], name: str) -> SourcedValue | None:
    return next(
        (SourcedValue(layer.values[name], layer.source(name)) for layer in layers if name in layer.values), None
    )


def _credentials(layers: list[_Layer], environment: _Layer | None) -> dict[str, SourcedValue]:
    """Return the credentials of the first place that has any. The secret of an option may be in the environment, if
    that counts; those of two places are never mixed otherwise."""
    for number, layer in enumerate(layers):
        if not layer.values.keys() & {"access_key", "secret_key"}:
            continue
        own = [layer, environment] if number == 0 and environment is not None else [layer]
        found = {name: setting for name in CREDENTIAL_VARIABLES if (setting := _first(own, name)) is not None}
        if not {"access_key", "secret_key"} <= found.keys():
            raise ConfigError(_TOGETHER)
        return found
    return {}


# --- used ---


def use_connection(connection: ConnectionSettings) -> str:
    """Make all clients of this process connect so, until the command ends; returns the name servers."""
    for name, variable in CREDENTIAL_VARIABLES.items():
        set_variable(variable, connection.credentials[name].value if name in connection.credentials else "")
    set_variable(TLS_VARIABLE, connection.tls.value)
    return connection.namesrv.value


def usual_name_servers() -> str:
    """Return the name servers of a command that was given none."""
    return found_connection().namesrv.value


def connected(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a connection in place of its parameter `namesrv`, which becomes the name servers.

    A parameter that may be None is None unless the command line names name servers: for commands that can run without.
    """
    own = inspect.signature(function, eval_str=True).parameters
    may_be_none = own["namesrv"].annotation is not str

    def run(**values: Any) -> None:
        connection = found_connection(**{name: values.pop(name) for name in CONNECTION_OPTIONS})
        namesrv = use_connection(connection)
        function(namesrv=None if may_be_none and not connection.is_named else namesrv, **values)

    parameters = [parameter for name, parameter in own.items() if name != "namesrv"]
    with_signature(run, function, [*parameters, *connection_parameters()])
    return run


def connection_parameters() -> list[inspect.Parameter]:
    """Return the options of a connection as parameters of a function."""
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in CONNECTION_OPTIONS.items()
    ]


def with_signature(run: Callable[..., None], function: Callable[..., Any], found: list[inspect.Parameter]) -> None:
    """Make `run` look like `function` with these parameters; typer makes options of them."""
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in found]
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
