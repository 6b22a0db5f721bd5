"""What is frozen while a cluster is held, and by which block."""

import gc
import subprocess
import sys
import textwrap


def alone(script: str) -> str:
    """What this prints in a process of its own: the tests' own process has its heap frozen."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


def test_a_block_freezes_what_is_there_and_its_end_takes_it_back():
    assert (
        alone("""
            import gc
            from fairlead.kube.garbage import THRESHOLDS, frozen_heap
            before, threshold = gc.get_freeze_count(), gc.get_threshold()
            with frozen_heap():
                print(gc.get_freeze_count() > before + 1000, gc.get_threshold() == THRESHOLDS)
            print(gc.get_freeze_count() <= before, gc.get_threshold() == threshold)
        """)
        == "True True\nTrue True"
    )


def test_a_block_within_another_leaves_all_as_it_is():
    assert (
        alone("""
            import gc
            from fairlead.kube.garbage import frozen_heap
            with frozen_heap((9000, 9, 9)):
                frozen, kept = gc.get_freeze_count(), [[] for _ in range(1000)]
                with frozen_heap():
                    print(gc.get_freeze_count() <= frozen, gc.get_threshold())
                print(gc.get_freeze_count() > frozen - 100, gc.get_threshold())
            with frozen_heap():
                print(gc.get_freeze_count() > 1000)
        """)
        == "True (9000, 9, 9)\nTrue (9000, 9, 9)\nTrue"
    )


def test_garbage_is_found_before_anything_is_frozen():
    assert (
        alone("""
            import gc, weakref
            from fairlead.kube.garbage import frozen_heap
            gc.disable()
            class Loop: pass
            for collect in (False, True):
                loop = Loop()
                loop.me = loop
                seen = weakref.ref(loop)
                del loop
                with frozen_heap(collect=collect):
                    print(seen() is None)
                gc.collect()
        """)
        == "False\nTrue"
    )


def test_of_many_tests_the_heap_is_frozen_and_of_few_it_is_not(request):
    assert (gc.get_freeze_count() > 100_000) is (len(request.session.items) > 100)
