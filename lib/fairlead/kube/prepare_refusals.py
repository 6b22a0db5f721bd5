"""Why a claim is not prepared on its node, as the driver writes it into `status.devices[].conditions`: the one definition of that.

kubelet says it in an Event on the pod alone, which Fairlead does not read. Written by the driver for its own devices with a field
manager of its own, taken back when the claim is prepared; read by the controller. Whoever may write a claim's status may write
anything there: what is said counts for nothing but messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fairlead.api import names
from fairlead.kube import timestamps
from fairlead.kube.resource import ResourceClaim

CONDITION: Final = "Prepared"
REASON: Final = "Refused"
MESSAGE_MAX: Final = 600


def conditions(message: str, now_s: float) -> list[dict[str, Any]]:
    """The conditions of each device of a claim that is refused at `now_s` (epoch seconds)."""
    made = {
        "type": CONDITION,
        "status": "False",
        "reason": REASON,
        "message": message[:MESSAGE_MAX],
        "lastTransitionTime": timestamps.seconds(now_s),
    }
    return [made]


def entries(claim: ResourceClaim, *, conditions: list[dict[str, Any]], pool: str) -> list[Mapping[str, Any]]:
    """What is applied to `status.devices`: the claim's devices of our driver in this pool."""
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    return [
        {"driver": each.driver, "pool": each.pool, "device": each.device, "conditions": conditions}
        | ({"shareID": each.share_id} if each.share_id else {})
        for each in results
        if (each.driver, each.pool) == (names.DRIVER, pool)
    ]


def refusal(claim: ResourceClaim) -> str:
    """What the driver says; "" where the claim is not refused."""
    return next(
        (
            found.message[:MESSAGE_MAX]
            for each in claim.status.devices
            if each.driver == names.DRIVER
            for found in each.conditions
            if (found.type, found.status) == (CONDITION, "False")
        ),
        "",
    )
