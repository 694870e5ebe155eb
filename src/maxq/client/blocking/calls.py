"""The methods of the blocking producer and admin client that are made from those of the asynchronous ones (face.py).

The methods of Admin's parts are made when they are first used, because each part is a module that few programs need.
The stub `calls.pyi` is written by `python -m tests.unit.client.blocking.blocking_stubs`.
"""

import importlib
from typing import Any, Final

from maxq.client.blocking.face import Face, Part
from maxq.client.producer import producer

#: Part of Admin → its asynchronous class, in the module of maxq.client.admin that has the part's name.
ADMIN_PARTS: Final = {
    "access": "AccessAdmin",
    "brokers": "BrokerAdmin",
    "controllers": "ControllerAdmin",
    "dead_letters": "DeadLetterAdmin",
    "groups": "GroupAdmin",
    "lite_topics": "LiteTopicAdmin",
    "messages": "MessageAdmin",
    "name_servers": "NameServerAdmin",
    "offsets": "OffsetAdmin",
    "operations": "OperationsAdmin",
    "static_topics": "StaticTopicAdmin",
    "timers": "TimerAdmin",
    "topics": "TopicAdmin",
    "traces": "TraceAdmin",
    "transactions": "TransactionAdmin",
}


class ProducerCalls(
    Face[producer.Producer],
    of=producer.Producer,
    calls=(
        "send_oneway",
        "send_orderly",
        "request",
        "recall_message",
        "fetch_publish_message_queues",
    ),
):
    """Methods that the blocking Producer has from the asynchronous one; each returns when its call is done."""


def __getattr__(name: str) -> Any:
    """Make the class with the calls of a part of Admin: `TopicCalls` is made from TopicAdmin."""
    owner = f"{name.removesuffix('Calls')}Admin"
    for part, kind in ADMIN_PARTS.items():
        if kind == owner and name.endswith("Calls"):
            of = getattr(importlib.import_module(f"maxq.client.admin.{part}"), kind)
            made = type(name, (Part,), {"__doc__": of.__doc__, "__module__": __name__}, of=of)
            globals()[name] = made
            return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
