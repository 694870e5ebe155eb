"""Build of the compiled modules: each is an ordinary Python file that also runs uncompiled.

MAXQ_REQUIRE_COMPILED=1 turns a failed build into an error; without it a machine with no compiler gets the pure form.
"""

import os

from setuptools import Extension, setup

HOT_MODULES = [
    "maxq.auth.signing_cy",
    "maxq.filter.comparisons_cy",
    "maxq.filter.nodes_cy",
    "maxq.filter.predicates_cy",
    "maxq.pipeline.records.arrow_cy",
    "maxq.pipeline.sink.batch_encode_cy",
    "maxq.protocol.frame_scanner_cy",
    "maxq.protocol.replies_cy",
    "maxq.protocol.request_scanners_cy",
    "maxq.protocol.send_scanner_cy",
    "maxq.remoting.socket_io_cy",
    "maxq.runtime.metric_rows_cy",
    "maxq.store.dispatch_cy",
    "maxq.store.dledger.entries_cy",
    "maxq.store.gather_cy",
    "maxq.store.log_cy",
    "maxq.store.log_final_cy",
    "maxq.store.log_rows_cy",
    "maxq.store.record_copy_cy",
    "maxq.store.record_cy",
    "maxq.store.tails_cy",
    "maxq.store.unit_scan_cy",
]


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        if os.environ.get("MAXQ_REQUIRE_COMPILED"):
            raise
        return []
    found = [
        Extension(
            name,
            [f"src/{name.replace('.', '/')}.py"],
            extra_compile_args=["-O3", "-fno-strict-aliasing"],
            optional=not os.environ.get("MAXQ_REQUIRE_COMPILED"),
        )
        for name in HOT_MODULES
    ]
    return cythonize(
        found,
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "freethreading_compatible": False,
        },
    )


setup(ext_modules=extensions())
