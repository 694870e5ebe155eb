"""`maxq broker --workers N`: N brokers, one process each, watched and started again when they die.

One process is one event loop and one core; this is how a machine's cores are used. Worker i has the broker name with
`-i` behind it, its ports 10 · i above, and its own folder below the store's.

Each worker's standard input is a pipe of which we hold the other end. The values of `--set` are written to it as one
line of JSON (`--settings-from-input`): they may contain secrets, and everybody on the machine sees the arguments of a
process. After that we write nothing. Should we be killed, the kernel closes the pipe, and the workers shut down in good
order (`--end-with-input`).
"""

import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from maxq.cli.terminal.ends import ExitCode
from maxq.cli.terminal.server_lines import say
from maxq.cli.terminal.service_manager import has_service_manager, tell_service_manager, without_service_manager
from maxq.config import BrokerSettings

PORT_STEP = 10  # a broker has its port, the replication port above and the VIP port two below
_RESTART_SECONDS_MIN, _RESTART_SECONDS_MAX = 0.5, 30.0
_LIVED_SECONDS = 30.0  # a worker that lived this long is restarted at once
_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Worker:
    """Settings of one broker process that will be started."""

    number: int
    settings: Mapping[str, str]  # settings in which this worker differs from the others

    def say(self, message: str) -> None:
        """Print that this worker process of the broker is ready, or how it ended."""
        name = self.settings["brokerName"]
        text = f"maxq: worker {self.number} ({name}): {message}"
        say("worker", text, server="broker", worker=self.number, name=name, message=message)


def derive_workers(settings: BrokerSettings, count: int) -> list[Worker]:
    """Return names, ports and folders of `count` workers; `settings` are complete (config.host.broker_on)."""
    root = Path(settings.store.store_path_root_dir)
    log = Path(settings.store.store_path_commit_log)
    workers = []
    for number in range(count):
        store = root / f"worker-{number}"
        # A log that has a place of its own keeps it; otherwise it lies in the worker's store.
        commit_log = store / log.relative_to(root) if log.is_relative_to(root) else log / f"worker-{number}"
        own = {
            "brokerName": f"{settings.broker.broker_name}-{number}",
            "listenPort": str(settings.server.listen_port + PORT_STEP * number),
            "haListenPort": str(settings.store.ha_listen_port + PORT_STEP * number),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(commit_log),
        }
        if settings.auth.auth_config_path:
            own["authConfigPath"] = str(Path(settings.auth.auth_config_path) / f"worker-{number}")
        metrics_port = settings.broker.metrics_prom_exporter_port
        if number and settings.broker.metrics_exporter_type != "DISABLE" and metrics_port:
            own["metricsPromExporterPort"] = str(metrics_port + number)
        workers.append(Worker(number, own))
    return workers


def run_workers(
    settings: BrokerSettings,
    count: int,
    conf: Path | None,
    namesrv: str | None,
    given: Mapping[str, str],
    ready_file: Path | None,
) -> int:
    """Run `count` brokers until SIGINT or SIGTERM; returns the exit code. `given`: what --set says."""
    command = [sys.executable, "-m", "maxq", "broker"]
    command += ["-c", str(conf)] if conf else []
    command += ["-n", namesrv] if namesrv else []
    workers = derive_workers(settings, count)
    for worker in workers:
        own = worker.settings
        worker.say(f"port {own['listenPort']}, store {own['storePathRootDir']}, log {own['storePathCommitLog']}")
    if ready_file is not None or not has_service_manager():
        return asyncio.run(_Supervisor(workers, command, given, ready_file).run())
    # the workers' ready files tell when all of them are ready
    with tempfile.TemporaryDirectory(prefix="maxq-workers-") as folder:
        return asyncio.run(_Supervisor(workers, command, given, Path(folder) / "ready").run())


class _Supervisor:
    """Keeps the processes running; ends them all on request, or when one reports that its settings are wrong."""

    def __init__(
        self, workers: Sequence[Worker], command: Sequence[str], given: Mapping[str, str], ready_file: Path | None
    ) -> None:
        self._workers = workers
        self._command = command
        self._given = json.dumps(dict(given)).encode() + b"\n"
        self._ready_file = ready_file
        self._stop = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(self._keep(worker))
            if self._ready_file is not None:
                group.create_task(self._announce(self._ready_file))
        return self._exit_code

    async def _keep(self, worker: Worker) -> None:
        wait = _RESTART_SECONDS_MIN
        while not self._stop.is_set():
            started = time.monotonic()
            process = await self._start(worker)
            code = await self._until_it_ends(process)
            if self._stop.is_set():
                return
            if code == ExitCode.WRONG_USE:  # a wrong command line is not improved by another try
                worker.say(f"pid {process.pid} refuses its settings: all workers end")
                self._exit_code = code
                self._stop.set()
                return
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            lived = time.monotonic() - started
            wait = _RESTART_SECONDS_MIN if lived > _LIVED_SECONDS else min(wait * 2, _RESTART_SECONDS_MAX)
            worker.say(f"pid {process.pid} {how} after {lived:.0f} s; it is started again in {wait:.1f} s")
            await self._stopped_within(wait)

    async def _start(self, worker: Worker) -> asyncio.subprocess.Process:
        own = [part for key, value in worker.settings.items() for part in ("--set", f"{key}={value}")]
        if self._ready_file is not None:
            own += ["--ready-file", str(self._worker_ready_file(self._ready_file, worker))]
        # A session of its own: Ctrl-C reaches us alone, and we end the workers in good order.
        process = await asyncio.create_subprocess_exec(
            *self._command, *own, "--settings-from-input", "--end-with-input",
            stdin=asyncio.subprocess.PIPE, start_new_session=True, env=without_service_manager(),
        )  # fmt: skip
        assert process.stdin is not None, "it is a pipe"
        process.stdin.write(self._given)  # a worker that has ended does not read it, and is restarted
        return process

    async def _until_it_ends(self, process: asyncio.subprocess.Process) -> int:
        ended = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            process.terminate()
            try:
                await asyncio.wait_for(asyncio.shield(ended), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
        return await ended

    async def _stopped_within(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    def _worker_ready_file(self, ready_file: Path, worker: Worker) -> Path:
        return ready_file.with_name(f"{ready_file.name}.worker-{worker.number}")

    async def _announce(self, ready_file: Path) -> None:
        """Create the ready file once every worker has made its own."""
        ready_file.unlink(missing_ok=True)
        theirs = [self._worker_ready_file(ready_file, worker) for worker in self._workers]
        while not all(path.exists() for path in theirs):
            await self._stopped_within(0.05)
            if self._stop.is_set():
                return
        ready_file.touch()
        tell_service_manager("READY=1")
        await self._stop.wait()
        tell_service_manager("STOPPING=1")
        ready_file.unlink(missing_ok=True)
