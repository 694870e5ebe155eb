"""A program: RocketMQ's C++ client (the PyPI package `rocketmq`) does one thing in this process and prints JSON.

usage: cpp_driver.py PACKAGE_FOLDER NAMESRV send|batch|consume|orderly|pull|kinds TOPIC COUNT
"""

import json
import os
import sys
import threading

COUNT_SECONDS = 60


def main() -> None:
    folder, namesrv, what, topic, count_text = sys.argv[1:6]
    sys.path.insert(0, folder)
    from rocketmq import client  # type: ignore[import-not-found]

    count = int(count_text)
    if what == "send":
        answer = send(client, namesrv, topic, count)
    elif what == "batch":
        answer = batch(client, namesrv, topic, count)
    elif what == "kinds":
        answer = kinds(client, namesrv, topic, count)
    elif what == "pull":
        answer = pull(client, namesrv, topic)
    else:
        answer = consume(client, namesrv, topic, count, orderly=what == "orderly")
    print("@@" + json.dumps(answer), flush=True)
    os._exit(0)  # the library's threads do not always end


def send(client, namesrv, topic, count):  # type: ignore[no-untyped-def]
    producer = client.Producer(f"PG_cpp_{topic}")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    rows = []
    for number in range(count):
        message = client.Message(topic)
        message.set_keys(f"{topic}-key-{number}")
        message.set_tags("cpp")
        message.set_property("number", str(number))
        message.set_body(f"{topic}|{number}|")
        result = producer.send_sync(message)
        rows.append({"status": int(result.status), "msgId": result.msg_id, "queueOffset": result.offset})
    producer.shutdown()
    return rows


def batch(client, namesrv, topic, count):  # type: ignore[no-untyped-def]
    producer = client.Producer(f"PG_cpp_{topic}")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    messages = []
    for number in range(count):
        message = client.Message(topic)
        message.set_keys(f"{topic}-key-{number}")
        message.set_tags("cpp")
        message.set_body(f"{topic}|{number}|")
        messages.append(message)
    result = producer.send_batch(messages)
    producer.shutdown()
    return [{"status": int(result.status), "queueOffset": result.offset}]


def row(message):  # type: ignore[no-untyped-def]
    return {
        "topic": message.topic,
        "tags": message.tags.decode(),
        "keys": message.keys.decode(),
        "body": message.body.decode(),
        "msgId": message.id,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
    }


def consume(client, namesrv, topic, count, *, orderly):  # type: ignore[no-untyped-def]
    rows = []
    enough = threading.Event()

    def received(message):  # type: ignore[no-untyped-def]
        rows.append(row(message))
        if len(rows) >= count:
            enough.set()

    consumer = client.PushConsumer(f"CG_cpp_{what_group(orderly)}_{topic}", orderly=orderly)
    consumer.set_namesrv_addr(namesrv)
    consumer.set_thread_count(2)
    consumer.subscribe(topic, received)
    consumer.start()
    enough.wait(COUNT_SECONDS)
    consumer.shutdown()
    return rows


def kinds(client, namesrv, topic, count):  # type: ignore[no-untyped-def]
    """Messages in order, one-way, delayed, one that fails once, one that is not wanted; then `count` rows
    of what a consumer gets of them."""

    def message(body, tag):  # type: ignore[no-untyped-def]
        made = client.Message(topic)
        made.set_tags(tag)
        made.set_body(body)
        return made

    producer = client.Producer(f"PG_cpp_{topic}")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    for number in range(4):
        producer.send_orderly(message(f"order-{number}", "order"), 7)
    delayed = message("delayed", "delayed")
    delayed.set_delay_time_level(1)
    producer.send_sync(delayed)
    producer.send_sync(message("fails", "fails"))
    producer.send_sync(message("unwanted", "unwanted"))
    producer.send_oneway(message("oneway", "oneway"))

    rows = []
    enough = threading.Event()

    def received(_, handle):  # type: ignore[no-untyped-def]
        found = client.RecvMessage(handle)
        waited = found.store_timestamp - found.born_timestamp
        rows.append({**row(found), "times": found.reconsume_times, "waited": waited})
        if len(rows) >= count:
            enough.set()
        failed = found.tags == b"fails" and found.reconsume_times == 0
        return int(failed)  # RECONSUME_LATER; what the package's own callback makes of an exception is CONSUME_SUCCESS

    consumer = client.PushConsumer(f"CG_cpp_{topic}")
    consumer.set_namesrv_addr(namesrv)
    client.ffi_check(client.dll.Subscribe(consumer._handle, topic.encode(), b"order||delayed||fails||oneway"))
    consumer._register_callback(received)
    consumer.start()
    enough.wait(COUNT_SECONDS)
    consumer.shutdown()
    producer.shutdown()
    return rows


def what_group(orderly):  # type: ignore[no-untyped-def]
    return "orderly" if orderly else "push"


def pull(client, namesrv, topic):  # type: ignore[no-untyped-def]
    consumer = client.PullConsumer(f"CG_cpp_pull_{topic}")
    consumer.set_namesrv_addr(namesrv)
    consumer.start()
    rows = [row(message) for message in consumer.pull(topic)]
    consumer.shutdown()
    return rows


if __name__ == "__main__":
    main()
