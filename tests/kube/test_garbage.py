"""What is frozen while a cluster is held, and by which block."""

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
