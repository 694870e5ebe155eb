"""What `help()` says of the clients."""

import inspect
import pydoc

import pytest

from maxq import aio, api
from tests.unit.client.test_typed_program import CLIENTS, methods


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("module", [api, aio], ids=["api", "aio"])
def test_help_explains_every_call_and_names_the_settings(module: object, client: str) -> None:
    kind = getattr(module, client)
    text = pydoc.plain(pydoc.render_doc(kind))
    assert "Args:" in kind.__doc__ and "settings: see maxq.client.settings." in kind.__doc__
    assert "**settings: 'Unpack[" in text and "Initialize self" in text
    names = [name for name in methods(client) if hasattr(kind, name)]
    said = {name: inspect.getdoc(getattr(kind, name)) or "" for name in names}
    assert [name for name, doc in said.items() if "." not in doc or not doc[:1].isupper()] == []


@pytest.mark.parametrize(
    "kind", [api.Message, api.MessageExt, api.SendResult, api.TransactionSendResult, api.ConsumeContext]
)
def test_help_explains_values(kind: type) -> None:
    assert inspect.getdoc(kind)
    own = [name for name, value in vars(kind).items() if isinstance(value, property) and not name.startswith("_")]
    assert [name for name in own if not inspect.getdoc(vars(kind)[name])] == []


def test_help_of_settings_lists_each_with_its_default() -> None:
    text = pydoc.plain(pydoc.render_doc(api.Producer.__init__.__globals__["ProducerSettings"]))
    assert "send_msg_timeout (3_000): ms for one send, its retries included." in text
