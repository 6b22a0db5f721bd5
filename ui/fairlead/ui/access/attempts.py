"""How often tokens may be tried: an address has `BURST` failures, and one more every `AGAIN_S`; all together have `ALL_BURST`. Pure.

An attempt counts when it begins, and not any more when it succeeds; so many at once count, too. IPv6 addresses count by their /64, which is
what one host has. Behind a proxy that hides addresses, all viewers have that of the proxy. At most `ADDRESSES_MAX` addresses are
remembered; one that is forgotten has what all together have left.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

from fairlead.kube.limits import Clock

BURST = 30
AGAIN_S = 2.0
ALL_BURST = 200
ALL_AGAIN_S = 0.1
ADDRESSES_MAX = 10_000


@dataclass
class _Bucket:
    left: float
    at: float

    def fill(self, now: float, *, most: int, again_s: float) -> None:
        self.left = min(most, self.left + (now - self.at) / again_s)
        self.at = now


class Attempts:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._all = _Bucket(ALL_BURST, clock())
        self._kept: OrderedDict[str, _Bucket] = OrderedDict()

    def begin(self, address: str) -> float:
        """Seconds to wait; 0: the attempt may be made, and counts as failed until `succeeded`."""
        now = self._clock()
        bucket = self._of(address, now)
        bucket.fill(now, most=BURST, again_s=AGAIN_S)
        self._all.fill(now, most=ALL_BURST, again_s=ALL_AGAIN_S)
        if bucket.left < 1:
            return (1 - bucket.left) * AGAIN_S
        if self._all.left < 1:
            return (1 - self._all.left) * ALL_AGAIN_S
        bucket.left -= 1
        self._all.left -= 1
        return 0.0

    def succeeded(self, address: str) -> None:
        bucket = self._of(address, self._clock())
        bucket.left = min(BURST, bucket.left + 1)
        self._all.left = min(ALL_BURST, self._all.left + 1)

    def _of(self, address: str, now: float) -> _Bucket:
        key = network(address)
        bucket = self._kept.get(key)
        if bucket is None:
            bucket = self._kept[key] = _Bucket(BURST, now)
            while len(self._kept) > ADDRESSES_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return bucket


def network(address: str) -> str:
    """What counts as one: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
