"""Mistakes of a user's program. Type checkers find each: `make types` complains of an ignored error that is none."""

from maxq import aio, api

api.Producer("p", "a:1", send_msg_timeot=1)  # type: ignore[call-arg]
aio.Producer("p", "a:1", send_msg_timeout="1")  # type: ignore[arg-type]
api.PushConsumer("p", "a:1", lambda messages, context: None, auto_commit=True)  # type: ignore[call-arg]
api.async_lite_pull_consumer("p", "a:1", auto_comit=True)  # type: ignore[call-arg]
with api.Producer("p", "a:1") as producer:
    producer.send("text")  # type: ignore[arg-type]
