#!/usr/bin/env python3
"""What a broker takes of a processor when little is asked of it: idle with many connections, and at fixed rates.

    python benches/steady_load.py [--of java,maxq] [--conns 1000] [--rates 1000,15000] [--secs 20] [--json FILE]

Prints one JSON object a server and row. `idle_percent`: of one core, with so many connections that ask for nothing, and
nobody else. At a rate messages of 1 KiB come from eight connections, whatever the answers.
"""

import argparse
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' way to the jars is ours

from tests.interop.processes.peers import ROCKETMQ_VERSION, rocketmq_jars

from benches.compare_java import JAVA_WARM_UP_SECONDS, JavaServer
from benches.load.measure import cpu_seconds_of, measure
from benches.load.request import Target
from benches.load.worker import Plan
from benches.results_file import write_results
from maxq.testing.server_process import StandaloneProcess

SETTLE_SECONDS = 5.0


def idle(server: JavaServer | StandaloneProcess, conns: int, secs: float) -> dict[str, Any]:
    """CPU of the broker while `conns` connections are open."""
    address = Target.at(server.broker_address).address
    held = [socket.create_connection(address, timeout=20) for _ in range(conns)]
    try:
        time.sleep(SETTLE_SECONDS)
        before, began = cpu_seconds_of([server.pid]), time.monotonic()
        time.sleep(secs)
        used = cpu_seconds_of([server.pid]) - before
        return {"conns": conns, "idle_percent": round(100 * used / (time.monotonic() - began), 2)}
    finally:
        for connection in held:
            connection.close()


def at_rate(server: JavaServer | StandaloneProcess, rate: float, secs: float) -> dict[str, Any]:
    """CPU a message, and latency, at `rate` messages a second."""
    plan = Plan(mode="send", target=Target.at(server.broker_address), conns=8, inflight=64, rate=rate, secs=secs)
    result = measure(plan, [server.pid])
    wanted = ("sent_per_s", "server_cpu_us_per_msg", "send_us", "errors")
    return {"rate": rate} | {name: result[name] for name in wanted}


def main() -> None:
    """Every row of every server, one server after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--of", default="java,maxq", help="servers, in this order")
    parser.add_argument("--conns", type=int, default=1000)
    parser.add_argument("--rates", default="1000,15000", help="messages a second")
    parser.add_argument("--secs", type=float, default=20.0, help="measured seconds of each row")
    parser.add_argument("--json", type=Path, help="write the figures, machine and day here")
    options = parser.parse_args()
    rows = []
    for kind in options.of.split(","):
        with JavaServer(rocketmq_jars(), {}) if kind == "java" else StandaloneProcess() as server:
            if kind == "java":
                target = Target.at(server.broker_address)
                measure(Plan(mode="send", target=target, secs=0.1, warm=JAVA_WARM_UP_SECONDS), [])
            found = [idle(server, options.conns, options.secs)]
            found += [at_rate(server, float(rate), options.secs) for rate in options.rates.split(",")]
        rows += [{"server": kind} | row for row in found]
        for row in rows[-len(found) :]:
            print(json.dumps(row), flush=True)
    if options.json:
        write_results(options.json, "python benches/steady_load.py", {"rocketmq": ROCKETMQ_VERSION, "rows": rows})


if __name__ == "__main__":
    main()
