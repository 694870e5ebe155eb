"""Throw damaged input at every parser for a while.

    python -m fuzz.run                          # 60 s over all targets, a new seed
    python -m fuzz.run --seconds 3600 --seed 1  # longer, repeatable
    python -m fuzz.run --target json --input 7b24726566

An input may give a value or the target's own errors. Anything else, an input that takes longer than a second, or
memory that keeps growing is reported, the bytes that did it are left in fuzz-TARGET.bin, and the exit code is 1.
"""

import argparse
import random
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

from fuzz.mutate import mutate
from fuzz.targets import TARGETS, Target

SLOW_SECONDS = 1.0
GROWTH_BYTES = 8 * 1024 * 1024
CORPUS_SIZE = 400


class Finding(Exception):
    """What a target must not do."""


def check(target: Target, data: bytes) -> bool:
    """Run one input; True if the parser took it. Raises Finding."""
    started = time.process_time()  # a busy machine is no finding
    try:
        accepted = target.run(data) is not False
    except target.allowed:
        accepted = False
    except Exception as error:
        raise Finding(f"{type(error).__name__}: {error}") from error
    took = time.process_time() - started
    if took > SLOW_SECONDS:
        raise Finding(f"took {took:.1f} s")
    return accepted


def fuzz(target: Target, rng: random.Random, *, seconds: float, inputs: int | None = None) -> int:
    """Damage inputs until the time or the number of inputs is up; returns how many ran. Raises Finding."""
    seeds = target.seeds()
    for seed in seeds:
        if not check(target, seed):
            raise Finding(f"a well-formed input is refused: {seed.hex()}")
    corpus = list(seeds)
    count = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and (inputs is None or count < inputs):
        data = mutate(rng, rng.choice(seeds if rng.random() < 0.5 else corpus), corpus)[:100_000]
        try:
            accepted = check(target, data)
        except Finding as finding:
            path = Path(f"fuzz-{target.name}.bin")
            path.write_bytes(data)
            raise Finding(f"{finding}\n  --target {target.name} --input @{path}") from finding.__cause__
        count += 1
        if accepted and rng.random() < 0.1:
            corpus.append(data)
            if len(corpus) > CORPUS_SIZE:
                del corpus[rng.randrange(len(corpus))]
    return count


def check_growth(target: Target, rng: random.Random, count: int = 300) -> None:
    """The same `count` inputs twice must not leave more memory behind the second time."""
    seeds = target.seeds()
    inputs = [mutate(rng, rng.choice(seeds), seeds)[:20_000] for _ in range(count)]
    sizes = []
    tracemalloc.start()
    for _ in range(3):
        for data in inputs:
            check(target, data)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    if sizes[2] - sizes[1] > GROWTH_BYTES // 10 or sizes[2] > GROWTH_BYTES:
        raise Finding(f"memory grows: {sizes} bytes after equal rounds")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="altogether, shared by the targets")
    parser.add_argument("--seed", type=int, default=None, help="of the damage; a new one by default, and printed")
    parser.add_argument("--target", choices=[target.name for target in TARGETS], help="one parser only")
    parser.add_argument("--input", help="run these bytes (hexadecimal, or @file) once")
    options = parser.parse_args(arguments)
    targets = [target for target in TARGETS if options.target in (None, target.name)]
    if options.input is not None:
        data = Path(options.input[1:]).read_bytes() if options.input[:1] == "@" else bytes.fromhex(options.input)
        for target in targets:
            print(f"{target.name}: {'accepted' if check(target, data) else 'refused'}")
        return 0
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    failed = False
    for target in targets:
        rng = random.Random(f"{seed} {target.name}")
        try:
            count = fuzz(target, rng, seconds=options.seconds / len(targets))
            check_growth(target, rng)
            print(f"{target.name}: {count} inputs")
        except Finding as finding:
            print(f"{target.name}: {finding}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
