"""Ctrl-C while a command on Spark starts: Java is ended, too, and the command has exit code 130; no stacks."""

import os
import subprocess
import sys

import pytest

from tests.short_form import long_form

PATIENCE_SECONDS = 120

#: Ctrl-C as soon as Java was started, before and behind the making of a session, when its context is there already, and
#: while the session gets our rule.
#: Java's process id is on standard output.
_PRESSED = """
import os, signal, sys
from pyspark import java_gateway
from pyspark.sql import SparkSession
from maxq.cli.app import run
press = lambda: os.kill(os.getpid(), signal.SIGINT)
start, make, where = java_gateway.Popen, SparkSession.__init__, sys.argv[1]
def started(*arguments, **named):
    process = start(*arguments, **named)
    print(process.pid, flush=True)
    if where == "java":
        press()
    return process
def made(*arguments, **named):
    if where == "session":
        press()
    make(*arguments, **named)
    if where != "rule":
        press()
def files(package):
    if where == "rule":
        press()
    return found(package)
from maxq.pipeline import session
found, session.resources.files = session.resources.files, files
java_gateway.Popen, SparkSession.__init__ = started, made
sys.exit(run(["sql", "SELECT 1", "--master", "local[1]", "-n", "127.0.0.1:1"]))
"""


@pytest.mark.parametrize("where", ["session", *long_form(["java", "behind", "rule"])])
def test_while_spark_starts_java_is_ended(where: str) -> None:
    command = [sys.executable, "-c", _PRESSED, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (done.returncode, done.stderr) == (130, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
