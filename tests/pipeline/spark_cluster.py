"""A Spark standalone cluster on this machine: a master and workers as processes of their own, on free ports."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from pyspark.find_spark_home import _find_spark_home

from maxq.pipeline.spark.java import find_java, make_java_home

#: For a Java process that does little: nothing is compiled twice, collections have no threads of their own, and the
#: bytecode of Spark's classes, which is a sixth of what a short session costs, is taken as it is. Later releases of
#: Java may warn that an option will go.
QUICK_START = (
    "-XX:-PrintWarnings -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

#: Settings of a session that interprets its queries: to make and compile Java for one takes longer than to run it on a
#: few rows.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

_READY_SECONDS = 120
_STOP_SECONDS = 20
_POLL_SECONDS = 0.05
_MEMORY_OF_DAEMON = "128m"


class SparkCluster:
    """Use: `with SparkCluster(folder) as cluster: local_session(master=cluster.url)`.

    Args:
        folder: for logs and what the workers write.
        workers: each with one core.
        memory: of each worker, for its executor.
    """

    def __init__(self, folder: Path, *, workers: int = 2, memory: str = "512m") -> None:
        self._folder = folder
        self._workers = workers
        self._memory = memory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            common = ["--webui-port", "0"]
            master = self._start("master", "127.0.0.1", "org.apache.spark.deploy.master.Master", "--port", "0", *common)
            self.url = self._said(master, r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                work = self._folder / f"worker-{number}"
                arguments = ["--cores", "1", "--memory", self._memory, "--work-dir", str(work), *common, self.url]
                host = f"127.0.0.{number + 1}"  # Spark runs no speculative copy on the host of the task
                self._start(f"worker-{number}", host, "org.apache.spark.deploy.worker.Worker", *arguments)
            for number in range(self._workers):
                self._said(self._folder / f"worker-{number}.log", r"Successfully registered with master (\S+)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def worker_pids(self) -> list[int]:
        """Of the workers' processes, whose children are the executors."""
        return [process.pid for process in self._processes[1:]]

    def _start(self, name: str, host: str, main: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        environment = {
            **os.environ,
            "JAVA_HOME": str(make_java_home(find_java())),
            "SPARK_DAEMON_MEMORY": _MEMORY_OF_DAEMON,
            "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
            "SPARK_LOCAL_IP": host,
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(Path(_find_spark_home()) / "bin" / "spark-class"), main, "--host", host, *arguments]
        with log.open("wb") as file:
            self._processes.append(
                subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=environment)
            )
        return log

    def _said(self, log: Path, pattern: str) -> str:
        """Wait for a line of a log; its first group."""
        ends = time.monotonic() + _READY_SECONDS
        while True:
            text = log.read_text(errors="replace")
            if found := re.search(pattern, text):
                return found[1]
            failed = [process for process in self._processes if process.poll() is not None]
            assert not failed and time.monotonic() < ends, f"{log.name}: {text[-2000:]}"
            time.sleep(_POLL_SECONDS)
