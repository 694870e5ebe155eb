"""Build of the compiled modules: each is an ordinary Python file that also runs uncompiled.

MAXQ_REQUIRE_COMPILED=1 turns a failed build into an error; without it a machine with no compiler gets the pure form.
MAXQ_PURE=1 builds the pure form everywhere. `python -m wheels.build` compiles for other machines.
"""

import contextlib
import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

HOT_MODULES = [
    "maxq.arrow.batch_encode_cy",
    "maxq.arrow.columns_cy",
    "maxq.auth.signing_cy",
    "maxq.broker.fast_path.pull_answers_cy",
    "maxq.client.consumer.held.fetch_queue_cy",
    "maxq.client.consumer.held.held_messages_cy",
    "maxq.client.instance.pull_answers_cy",
    "maxq.client.producer.fast_sends_cy",
    "maxq.filter.comparisons_cy",
    "maxq.filter.nodes_cy",
    "maxq.filter.predicates_cy",
    "maxq.pipeline.records.places_cy",
    "maxq.protocol.frame.batches_cy",
    "maxq.protocol.frame.frame_scanner_cy",
    "maxq.protocol.frame.replies_cy",
    "maxq.protocol.frame.request_scanners_cy",
    "maxq.protocol.frame.send_scanner_cy",
    "maxq.protocol.grpc.popped_cy",
    "maxq.protocol.http2.connection_cy",
    "maxq.protocol.http2.hpack_cy",
    "maxq.protocol.message.received_cy",
    "maxq.proxy.producer.plain_sends_cy",
    "maxq.remoting.grpc.call_cy",
    "maxq.remoting.socket_io_cy",
    "maxq.runtime.metrics.metric_rows_cy",
    "maxq.store.dispatch.dispatch_cy",
    "maxq.store.dledger.entries_cy",
    "maxq.store.read.gather_cy",
    "maxq.store.read.cached_pull_reader_cy",
    "maxq.store.log.log_cy",
    "maxq.store.append.log_final_cy",
    "maxq.store.append.log_rows_cy",
    "maxq.store.append.record_copy_cy",
    "maxq.store.log.record_cy",
    "maxq.store.log.tails_cy",
    "maxq.store.tools.check_cy",
    "maxq.store.tools.text_lines_cy",
    "maxq.store.queue.unit_scan_cy",
]
BUILD = Path("build/cython")
SHARED = "maxq.cython_shared"  # what Cython would put into each of them: its memory views, half of all C
COMPILE_ARGS = ["-O3", "-g0", "-fno-strict-aliasing", "-Werror=implicit-function-declaration"]


def extension(name: str, source: str) -> Extension:
    return Extension(
        name,
        [source],
        depends=["setup.py"],
        extra_compile_args=COMPILE_ARGS,
        optional=not os.environ.get("MAXQ_REQUIRE_COMPILED"),
    )


def extensions() -> list[Extension]:
    """The modules to compile, by their Python sources."""
    modules = [extension(name, f"src/{name.replace('.', '/')}.py") for name in HOT_MODULES]
    return [extension(SHARED, f"src/{SHARED.replace('.', '/')}.c"), *modules]


def translate(wanted: list[Extension], processes: int | None) -> dict[str, list[str]]:
    """Make C of the modules below BUILD, of those that changed; returns the C files of each."""
    from Cython.Build import cythonize

    translated = cythonize(
        wanted,
        build_dir=str(BUILD),
        nthreads=processes,
        shared_utility_qualified_name=SHARED,
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "freethreading_compatible": False,
        },
    )
    return {made.name: made.sources for made in translated}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One build at a time in a tree."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        except ImportError:  # Windows, where nobody builds two at a time
            pass
        yield


class BuildExt(build_ext):
    """On all processors, one build at a time in a tree, and only what changed since the last one in place."""

    def run(self) -> None:
        with alone():
            self.parallel = os.cpu_count()
            self._translate()
            super().run()

    def _translate(self) -> None:
        """Make C of the modules; where Cython is not installed there is nothing to build."""
        try:
            import Cython.Build  # noqa: F401
        except ImportError:
            if os.environ.get("MAXQ_REQUIRE_COMPILED"):
                raise
            self.extensions = []
            return
        sources = translate(self.extensions, self.parallel)
        for ext in self.extensions:
            ext.sources = sources[ext.name]

    def build_extension(self, ext: Extension) -> None:
        built = Path(self.get_ext_fullpath(ext.name))
        in_place = Path("src", *ext.name.split(".")).with_name(built.name)
        if self.editable_mode and not newer_group([*ext.sources, *ext.depends], in_place):
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(in_place, built)
        else:
            super().build_extension(ext)


def readme(repository: str | None) -> str:
    """README.md as a package index shows it: relative links and pictures lead into the repository, if it has an
    address."""
    text = Path("README.md").read_text(encoding="utf-8")
    if repository is None:
        return text
    root = repository.rstrip("/")
    text = re.sub(r"\]\((?![a-z]+:|#)", f"]({root}/blob/main/", text)
    return re.sub(r"""\b(src|srcset)="(?![a-z]+:)""", rf'\1="{root}/raw/main/', text)


if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    is_pure = bool(os.environ.get("MAXQ_PURE"))
    setup(
        long_description=readme(project.get("urls", {}).get("Repository")),
        long_description_content_type="text/markdown",
        ext_modules=[] if is_pure else extensions(),
        cmdclass={"build_ext": BuildExt},
    )
