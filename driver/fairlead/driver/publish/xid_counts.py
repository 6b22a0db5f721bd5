"""How often each GPU reported each Xid since this process started.

Bounded: beyond `CODES_MAX` different codes of one GPU, further ones count together as "other".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.driver.backend.types import Xid

CODES_MAX = 32
OTHER = "other"


class XidCounts:
    """`by_gpu` has counts by GPU UUID and code, `last` the last code by GPU UUID. Both are replaced, never changed."""

    def __init__(self) -> None:
        self.by_gpu: Mapping[str, Mapping[str, int]] = {}
        self.last: Mapping[str, int] = {}

    def add(self, events: Iterable[Xid]) -> None:
        counts = {uuid: dict(codes) for uuid, codes in self.by_gpu.items()}
        last = dict(self.last)
        for event in events:
            codes = counts.setdefault(event.uuid, {})
            code = str(event.code)
            if code not in codes and len(codes.keys() - {OTHER}) >= CODES_MAX:
                code = OTHER
            codes[code] = codes.get(code, 0) + 1
            last[event.uuid] = event.code
        self.by_gpu, self.last = counts, last
