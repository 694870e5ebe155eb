"""Install a wheel into a new environment without a compiler, and use it: a server, sends, every kind of consumer.

    python -m wheels.smoke dist/*.whl
    python -m wheels.smoke --root /srv/arm64 dist/maxq-*-cp311-*_aarch64.whl

`--root` is the file system of another Linux, with a Python: one of other processors runs by qemu-user. What a wheel
depends on comes from the package index, as wheels; the path of the processes has nothing but the environment.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from wheels.headers import interpreters

SESSION = """
import shutil, sys, threading
import maxq
from maxq.api import ConsumeFromWhere, LitePullConsumer, Message, Producer, PushConsumer, SimpleConsumer

assert not any(map(shutil.which, ("cc", "gcc", "clang"))), "there is a compiler"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
with maxq.Standalone() as server:
    address = server.namesrv_address
    with Producer("smoke", address, send_msg_timeout=60_000) as producer:  # an emulated processor is slow
        assert producer.send(Message("T", b"0")).send_status.name == "SEND_OK"
        assert len(producer.send_many(Message("T", b"%d" % n) for n in range(1, 1000))) == 1000 - 1
        producer.send_batch([Message("T", b"%d" % n) for n in range(1000, 1010)])
    wanted = {b"%d" % n for n in range(1010)}
    with LitePullConsumer("lite", address, consume_from_where=FIRST) as consumer:
        consumer.subscribe("T")
        polled = set()
        while polled != wanted:
            polled |= {bytes(message.body) for message in consumer.poll(20_000)}
    pushed, done = set(), threading.Event()

    def listener(messages, context):
        pushed.update(bytes(message.body) for message in messages)
        if pushed == wanted:
            done.set()

    consumer = PushConsumer("push", address, listener, consume_from_where=FIRST)
    consumer.subscribe("T")
    with consumer:
        assert done.wait(60), len(pushed)
    with SimpleConsumer("simple", address, consume_from_where=FIRST) as consumer:
        consumer.subscribe("T")
        received = consumer.receive(wait_ms=20_000)
        consumer.ack_all(received)
        assert received
names = [name for name in sorted(sys.modules) if name.startswith("maxq.") and name.endswith("_cy")]
loaded = [sys.modules[name].__file__ for name in names]
compiled = sum(not file.endswith(".py") for file in loaded)
print(f"{compiled} of {len(loaded)} modules compiled, on Python {sys.version.split()[0]}")
"""


def main() -> None:
    """Try the wheels that the command line names."""
    parser = argparse.ArgumentParser(prog="wheels.smoke", description="Install wheels and use them.")
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--root", type=Path, help="file system in which to try them, with a Python")
    given = parser.parse_args()
    for path in given.wheels:
        print(f"{path.name}: {try_out(path, given.root)}", flush=True)


def try_out(wheel: Path, root: Path | None = None) -> str:
    """Install a wheel and use it; returns what was seen, or why it was not tried. CalledProcessError if it fails.

    Args:
        root: a file system of its own to do it in, by chroot; None: this machine.
    """
    tag = wheel.stem.split("-")[2]
    version = f"3.{tag[3:]}" if tag.startswith("cp3") else f"3.{sys.version_info.minor}"
    if root is not None:
        return _in_root(wheel.resolve(), version, root)
    if not wheel.stem.endswith(("any", platform.machine())):
        return "not tried: this machine has other processors"
    found = interpreters(version)
    if not found:
        return f"not tried: no Python {version} on this machine"
    with tempfile.TemporaryDirectory(prefix="maxq-smoke-") as folder:
        return _run([str(found[0])], wheel.resolve(), Path(folder), str(folder))


def _in_root(wheel: Path, version: str, root: Path) -> str:
    names = [f"usr/local/bin/python{version}", f"usr/bin/python{version}"]
    found = [f"/{name}" for name in names if (root / name).exists()]
    if not found:
        return f"not tried: no Python {version} in {root}"
    with tempfile.TemporaryDirectory(prefix="maxq-smoke-", dir=root / "tmp") as folder:
        shutil.copy2(wheel, folder)
        inside = f"/{Path(folder).relative_to(root)}"
        return _run(["chroot", str(root), found[0]], Path(inside) / wheel.name, Path(folder), inside)


def _run(python: list[str], wheel: Path, folder: Path, inside: str) -> str:
    """Make an environment in `folder`, which is called `inside` where Python runs, and use it."""
    (folder / "session.py").write_text(SESSION)
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environment = {**kept, "PATH": f"{inside}/venv/bin", "HOME": inside, "LANG": "C.UTF-8"}
    before = python[:-1]  # chroot, if there is one

    def run(*command: str) -> str:
        line = [*before, *command]
        line[0] = shutil.which(line[0]) or line[0]
        done = subprocess.run(
            line, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            sys.exit(
                f"wheels.smoke: {wheel.name}: {' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}"
            )
        return done.stdout.strip()

    run(python[-1], "-m", "venv", f"{inside}/venv")
    own = f"{inside}/venv/bin/python"
    run(own, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:", str(wheel))
    return run(own, f"{inside}/session.py").splitlines()[-1]


if __name__ == "__main__":
    main()
