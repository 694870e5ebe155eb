"""Build of the compiled modules: each is an ordinary Python file that also runs uncompiled.

MAXQ_REQUIRE_COMPILED=1 turns a failed build into an error; without it a machine with no compiler gets the pure form.
"""

import os

from setuptools import Extension, setup

HOT_MODULES = [
    "maxq.filter.predicates_cy",
    "maxq.protocol.frames_cy",
    "maxq.store.record_cy",
    "maxq.store.log_cy",
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
