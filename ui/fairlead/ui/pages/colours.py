"""Which colour each queue has, as a class of the style sheet; pure.

A queue's colour follows its name: a hash orders the palette for it, and it takes the first colour of that order which no older queue has, or
the one that the fewest have. So no queue changes its colour when others start or stop using devices, nor when one is created; when one is
deleted, only a younger queue that stood back from its colour can change. A queue with queues below it holds no devices and takes no colour
from another.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

from fairlead.kube.resources import Raw

COLOURS = 10  # q0 to q9
NONE = "qn"  # no queue, or none that is known


def palette(queues: Iterable[Raw], held: Iterable[str] = ()) -> Mapping[str, str]:
    """The class by queue, and `NONE` for "". `held`: names of queues that hold devices; some may not be among the queues that are read."""
    queues = tuple(queues)
    parents = {(raw.get("spec") or {}).get("parent") for raw in queues}
    by_age = sorted(queues, key=lambda raw: (raw["metadata"].get("creationTimestamp") or "", raw["metadata"]["name"]))
    names = dict.fromkeys(raw["metadata"]["name"] for raw in by_age)
    names |= dict.fromkeys(sorted(set(held) - {""}))
    taken: Counter[int] = Counter()
    found = {"": NONE}
    for name in names:
        order = _order(name)
        colour = order[0] if name in parents else min(order, key=taken.__getitem__)
        if name not in parents:
            taken[colour] += 1
        found[name] = f"q{colour}"
    return found


def _order(name: str) -> list[int]:
    """The palette in the order in which a queue of that name wants it."""
    return sorted(range(COLOURS), key=lambda at: hashlib.sha256(f"{at} {name}".encode("utf-8", "replace")).digest())
