"""How much memory the process has that it needs: without garbage, and without what bounded caches hold.

A cache with a maximum may fill up during a run; one without is a leak in something that reads others' bytes, so it is left as it is.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import resource
import sys
from pathlib import Path
from typing import Any

_STATM = Path("/proc/self/statm")
_LRU = type(functools.lru_cache(maxsize=1)(len))


def collect() -> None:
    for cache in instances(_LRU):
        if cache.cache_parameters()["maxsize"] is not None:
            cache.cache_clear()
    # Not imported here: atheris has to see the product's modules first.
    cel = sys.modules.get("fairlead.cel.program_cache")
    for programs in () if cel is None else instances(cel.ProgramCache):
        programs.clear()  # bounded in bytes
    gc.collect()


def instances(kind: type) -> list[Any]:
    """Those that a module or a class has by name, and all others but frozen ones, which the garbage collector does not list."""
    named = [each for module in list(sys.modules.values()) for each in list(vars(module).values())]
    members = [each for of in named if isinstance(of, type) for each in list(vars(of).values())]
    named += members
    named += [each.fget for each in members if isinstance(each, property)]
    named += [each.__func__ for each in members if isinstance(each, staticmethod | classmethod)]
    return list({id(each): each for each in (*named, *gc.get_objects()) if type(each) is kind}.values())


def blocks() -> int:
    """Of the interpreter's own allocator, which holds all small objects: exact where the process' memory is not. After `collect`."""
    return sys.getallocatedblocks()


def used_mib() -> float:
    """Of the whole process, extensions' memory included. After `collect`."""
    if not _STATM.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
