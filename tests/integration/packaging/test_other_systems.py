"""The client on Windows and macOS, as far as Linux can show it: in pure form, in a process that lacks the modules,
calls and constants that Python has not there, and that says it is such a system. Sockets and loops stay Linux's."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from maxq.testing.server_process import StandaloneProcess

SOURCES = Path(__file__).parents[3] / "src"
#: What Python has on Linux alone; on Windows what it has on no POSIX system is missing as well.
NOT_ON_MACOS = {
    "os": "eventfd fdatasync memfd_create posix_fadvise posix_fallocate preadv pwritev sched_getaffinity",
    "select": "epoll",
    "socket": "SO_BINDTODEVICE TCP_QUICKACK",
    "mmap": "MADV_HUGEPAGE MADV_REMOVE MADV_POPULATE_READ",
}
NOT_ON_WINDOWS = {
    "os": "O_CLOEXEC O_DIRECTORY O_NONBLOCK chroot fchmod fork forkpty fstatvfs getgid getuid killpg lockf mkfifo nice "
    "pread pwrite readv register_at_fork sendfile setsid statvfs sysconf uname wait writev",
    "select": "poll",
    "socket": "AF_UNIX CMSG_SPACE MSG_DONTWAIT MSG_NOSIGNAL SCM_RIGHTS SO_REUSEPORT sethostname",
    "mmap": "MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED PROT_READ PROT_WRITE MADV_RANDOM MADV_SEQUENTIAL",
    "signal": "SIGHUP SIGKILL SIGQUIT SIGUSR1 SIGUSR2 pthread_kill set_wakeup_fd_",
}
NO_MODULES = {"darwin": "uvloop", "win32": "uvloop fcntl resource termios pwd grp"}
SYSTEM = """
import asyncio, ctypes, fcntl, importlib, mmap, os, pathlib, select, signal, socket, sys, types, uuid
import email.message, hashlib, inspect, json, logging, random, shutil, ssl, subprocess, tempfile, typing, zlib
platform, missing, without = sys.argv[2], eval(sys.argv[3]), sys.argv[4].split()
lockf = fcntl.lockf
for name in without:
    sys.modules[name] = None
for module, names in missing:
    for name in names.split():
        if hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)
pair, family = socket.socketpair, 1  # the loop's own pair of sockets, which are of a family that Windows lacks
socket.socketpair = lambda: pair(family)
sys.platform = platform
if platform == "win32":  # what locks a file there
    flags = fcntl.LOCK_EX | fcntl.LOCK_NB
    sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=1, locking=lambda fd, how, count: lockf(fd, flags, count))
"""
SESSION = """
import threading
from maxq.api import (Admin, ConsumeFromWhere, LitePullConsumer, LocalTransactionState, Message, MessageModel, Producer,
    PushConsumer, SimpleConsumer, TransactionProducer)
import maxq.client.producer.fast_sends_cy as hot
assert hot.__file__.endswith(".py"), hot.__file__
address, first = sys.argv[1], ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
with Producer("p", address) as producer:
    assert producer.send(Message("T", b"0")).send_status.name == "SEND_OK"
    producer.send_many(Message("T", b"%d" % n) for n in range(1, 300))
    producer.send_batch([Message("T", b"%d" % n) for n in range(300, 310)])
    producer.send(Message("T", b"310" + bytes(10_000)))  # compressed
class Payments:
    def execute_local_transaction(self, message, arg):
        return LocalTransactionState.COMMIT_MESSAGE
    def check_local_transaction(self, message):
        return LocalTransactionState.COMMIT_MESSAGE
with TransactionProducer("t", address, Payments()) as producer:
    producer.send_message_in_transaction(Message("T", b"311"))
wanted = {b"%d" % n for n in range(312)}
def text(message):
    return bytes(message.body).rstrip(bytes(1))
with LitePullConsumer("lite", address, consume_from_where=first) as consumer:
    consumer.subscribe("T")
    polled = set()
    while polled != wanted:
        polled |= {text(message) for message in consumer.poll(20_000)}
for model in MessageModel:
    pushed, done = set(), threading.Event()
    def listener(messages, context):
        pushed.update(map(text, messages))
        if pushed == wanted:
            done.set()
    consumer = PushConsumer("push" + model.name, address, listener, consume_from_where=first, message_model=model,
        instance_name="one")
    consumer.subscribe("T")
    with consumer:
        assert done.wait(60), (model, len(pushed))
assert list(pathlib.Path.home().rglob("offsets.json")), "the broadcasting consumer kept its offsets"
with SimpleConsumer("simple", address, consume_from_where=first) as consumer:
    consumer.subscribe("T")
    received = consumer.receive(wait_ms=20_000)
    consumer.ack_all(received)
    assert received
with Admin(address) as admin:
    assert admin.topics.route("T").queue_datas
print("everything came on", sys.platform)
"""


@pytest.fixture(scope="module")
def pure_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without its compiled modules."""
    folder = tmp_path_factory.mktemp("pure")
    shutil.copytree(SOURCES / "maxq", folder / "maxq", ignore=shutil.ignore_patterns("*.so", "__pycache__", "pipeline"))
    return folder


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_every_client_works_where_python_has_less(system: str, pure_sources: Path, tmp_path: Path) -> None:
    missing = [*NOT_ON_MACOS.items(), *(NOT_ON_WINDOWS.items() if system == "win32" else ())]
    environment = {**os.environ, "PYTHONPATH": str(pure_sources), "HOME": str(tmp_path)}
    with StandaloneProcess() as server:
        command = [sys.executable, "-c", SYSTEM + SESSION, server.namesrv_address, system, repr(missing)]
        done = subprocess.run(
            [*command, NO_MODULES[system]], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
    assert (done.stdout.strip(), done.returncode) == (f"everything came on {system}", 0), done.stderr[-3000:]
