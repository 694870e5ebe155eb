"""What survives a full collection is set aside. The collector is the process's, so these run in one of their own."""

import subprocess
import sys
from textwrap import dedent

_BEFORE = """
import gc, weakref
from maxq.cli.gc_freeze import SurvivorFreeze

class Node:
    pass

def cycle():
    one, other = Node(), Node()
    one.other, other.other = other, one
    return one
"""


def prints(text: str) -> str:
    code = dedent(_BEFORE) + dedent(text)
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_a_full_collection_does_not_look_at_what_survived_one_before() -> None:
    found = prints("""
        SurvivorFreeze().start()
        table = [Node() for _ in range(1000)]
        gc.collect()
        print(len(gc.get_objects(generation=2)), gc.get_freeze_count() > 1000)
    """)
    assert found == "0 True"


def test_a_cycle_that_becomes_garbage_later_is_found_when_all_is_looked_at_again() -> None:
    found = prints("""
        SurvivorFreeze(least=3000).start()
        held = cycle()
        seen = weakref.ref(held)
        gc.collect()
        del held
        gc.collect()
        kept = [Node() for _ in range(4000)]
        before = seen() is not None
        gc.collect()  # sets aside more than `least`
        gc.collect()
        print(before, seen() is None, gc.get_freeze_count() > 4000)
    """)
    assert found == "True True True"


def test_the_collector_is_as_it_was_after_stop() -> None:
    found = prints("""
        care = SurvivorFreeze()
        care.stop()
        care.start()
        gc.collect()
        care.stop()
        print(gc.get_freeze_count(), gc.callbacks)
    """)
    assert found == "0 []"
