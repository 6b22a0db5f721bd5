"""The devices that a gang's members ask for, by the classes that their claims name; pure.

Of `firstAvailable` the first alternative counts, as it is tried first; "all" stands where a request takes all devices of a node. A claim that
several members use counts once, and admin access, which holds nothing, not at all.
Example: 12 members with a claim of two GPUs each: `24 × gpu.nvidia.com`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fairlead.cel.devices.requests import first_asked
from fairlead.controller.gangs.membership.members import Member

KINDS_MAX = 16


def asked(members: Iterable[Member]) -> list[str]:
    """By name of the class."""
    specs = {claim.key: claim.spec for member in members for claim in member.claims}
    counts, every = Counter[str](), set[str]()
    for spec in specs.values():
        for each in spec.devices.requests:
            request = first_asked(each)
            if request is None:
                continue
            if request.allocation_mode == "All":
                every.add(request.device_class_name)
            counts[request.device_class_name] += request.count
    texts = [f"{'all' if kind in every else count} × {kind}" for kind, count in sorted(counts.items())]
    return texts[:KINDS_MAX]
