"""How long the turns of a server's event loop are, in processor time: what other requests wait for behind one.

    with LoopTurns() as turns:            # before the server is started: it inherits the environment
        with StandaloneProcess({}) as server:
            before = turns.read(server.pid)
            …
            print(turns.summary(before, turns.read(server.pid)))

Processor time of the loop's thread, so the figures hold on a machine that does other things as well. It needs a C
compiler.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

_ROWS = 34

#: Preloaded into the server. A turn lasts from a return of epoll_pwait, which libuv waits in, to its next call on the
#: same thread. The table is the file turns.PID: turns, nanoseconds, then a count for each power of two of microseconds.
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROWS 34

static uint64_t *table;
static int (*wait_there)(int, struct epoll_event *, int, int, const sigset_t *);
static __thread uint64_t began;

__attribute__((constructor)) static void open_table(void) {
    const char *folder = getenv("MAXQ_TURNS");
    char path[4096];
    wait_there = dlsym(RTLD_NEXT, "epoll_pwait");
    if (folder == NULL || snprintf(path, sizeof path, "%s/turns.%d", folder, (int)getpid()) >= (int)sizeof path) return;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return;
    if (ftruncate(fd, 8 * ROWS) == 0) {
        void *found = mmap(NULL, 8 * ROWS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        table = found == MAP_FAILED ? NULL : found;
    }
    close(fd);
}

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask) {
    if (table != NULL && began != 0) {
        uint64_t took = now() - began, micros = took / 1000;
        int row = micros < 2 ? 0 : 63 - __builtin_clzll(micros);
        table[0] += 1;
        table[1] += took;
        table[2 + (row > ROWS - 3 ? ROWS - 3 : row)] += 1;
    }
    int found = wait_there(fd, events, most, timeout, mask);
    began = now();
    return found;
}
"""


class LoopTurns:
    """Turns are counted in the servers that are started within."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="maxq-turns-"))
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        library = self._folder / "loop_turns.so"
        source = self._folder / "loop_turns.c"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        for name, value in (("LD_PRELOAD", str(library)), ("MAXQ_TURNS", str(self._folder))):
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        return self

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(self._folder, ignore_errors=True)

    def read(self, pid: int) -> list[int]:
        """Turns and nanoseconds so far, then turns of 2^k µs and more, below 2^(k+1)."""
        data = (self._folder / f"turns.{pid}").read_bytes()
        return [int.from_bytes(data[8 * row : 8 * row + 8], "little") for row in range(_ROWS)]

    @staticmethod
    def summary(before: list[int], after: list[int]) -> dict[str, float]:
        """Between two readings: turns, their mean (µs), how many took about 1, 2, 4, 8 ms of processor time and more,
        and the share of all that went into those of 2 ms and more (the middle of a row stands for it)."""
        turns, nanoseconds, *rows = (late - early for early, late in zip(before, after, strict=True))
        long = sum(count * 1.5 * 2**row for row, count in enumerate(rows) if row >= 11)
        return {
            "turns": turns,
            "mean_us": round(nanoseconds / 1000 / max(turns, 1), 1),
            **{f"of_{1 << at - 10}_ms": sum(rows[at:]) for at in (10, 11, 12, 13)},
            "share_of_2_ms": round(long * 1000 / max(nanoseconds, 1), 3),
        }
