#!/usr/bin/env python3
"""ConsumeQueue and IndexFile files from a log, by Spark on the cores of this machine: bytes of log a second.

    python benches/rebuild.py make /tmp/store --gib 4      # messages of 1 KiB: 4 queues, each a tag and two keys
    python benches/rebuild.py run /tmp/store --repeat 3    # in one session; the later runs count
    python benches/rebuild.py pieces /tmp/store            # without Spark: what dispatching a piece costs a core

`run` writes a folder of its own beside the store, everything synced, and removes it.
"""

import argparse
import json
import shutil
import time
from pathlib import Path, PurePath

from maxq.config.message_store_config import MessageStoreConfig
from maxq.pipeline.jobs.rebuild.log_dispatch import DispatchSettings, dispatch_piece
from maxq.pipeline.store.log_pieces import log_pieces
from maxq.pipeline.store.store_folder import open_store
from maxq.protocol.message.message import Message, encode_batch
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageStatus

BATCH = 64
DELAYS = (1000,)


def make(root: Path, gib: float) -> None:
    """A store that was closed cleanly."""
    config = MessageStoreConfig(store_path_root_dir=str(root), max_message_size=1 << 20)
    store = MessageStore(config, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity())
    store.load()
    number = 0
    while store.commit_log.max_offset < gib * (1 << 30):
        batch = []
        for number in range(number, number + BATCH):  # noqa: B020
            message = Message("Bench", str(number).encode().ljust(1024, b"x"))
            message.tags, message.keys = f"Tag{number % 8}", str(number)
            message.properties["UNIQ_KEY"] = f"7F0000010000{number:020X}"
            batch.append(message)
        number += 1
        body = encode_batch(batch)
        result = store.put_batch(MessageExtBrokerInner("Bench", number // BATCH % 4, body))
        assert result.status is PutMessageStatus.PUT_OK, result
    store.close()


def pieces(root: Path) -> None:
    files = open_store(str(root))
    found = log_pieces(files)
    settings = DispatchSettings(DELAYS)
    for piece in found[:4]:
        began = time.perf_counter()
        result = dispatch_piece(SystemDisk(), piece, settings)
        seconds = time.perf_counter() - began
        rate = (piece.end - piece.start) / seconds / 1e9
        print(json.dumps({"records": result.records, "entries": result.entry_count, "GB/s": round(rate, 2)}))


def run(root: Path, repeat: int) -> None:
    from maxq.pipeline.jobs.rebuild.job import RebuildOptions, rebuild
    from maxq.pipeline.session import local_session

    spark = local_session("bench")
    target = root.with_name(root.name + ".rebuilt")
    for _ in range(repeat):
        shutil.rmtree(target, ignore_errors=True)
        began = time.perf_counter()
        report = rebuild(spark, open_store(str(root)), RebuildOptions(output=PurePath(target)))
        seconds = time.perf_counter() - began
        size = report.log_end - report.log_start
        print(json.dumps({**report.to_json(), "seconds": round(seconds, 2), "GB/s": round(size / seconds / 1e9, 2)}))
    shutil.rmtree(target, ignore_errors=True)
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "run", "pieces"))
    parser.add_argument("store", type=Path)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.what == "make":
        make(arguments.store, arguments.gib)
    elif arguments.what == "run":
        run(arguments.store, arguments.repeat)
    else:
        pieces(arguments.store)


if __name__ == "__main__":
    main()
