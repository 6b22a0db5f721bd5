"""Whether the devices of a gang are idle, from what the driver wrote into its claims, and what its queue says follows. Pure.

Where all devices count (`devices: All`) a gang is not idle of which one is busy, not reported (MIG; GPUs of other drivers), or was
reported too long ago; where one is enough (`Any`), the one that is idle longest counts. Never idle is a gang that holds no GPU, and
one of which a pod says so (`fairlead.dev/keep-idle`). No device is idle for longer than its claim exists, and what a driver says
of the future is not believed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fairlead.api import names
from fairlead.api.drivers import DRIVERS
from fairlead.controller.gangs.claims.allocations import held_claims, results
from fairlead.controller.gangs.membership.gangs import Gang, created_s
from fairlead.engine.types.gangs import IdleSpan
from fairlead.engine.types.settings import IdlePolicy
from fairlead.kube import resource, timestamps
from fairlead.kube.device_usage import FRESH_S, DeviceUsage, usage_of

CONDITION: Final = "Idle"
AHEAD_MAX_S: Final = 300.0  # by which a node's clock may be ahead
UNTOLD_S: Final = 5.0  # between two looks at whether the Gang object says by now that the gang is idle
_THEN: Final = {
    "warn": "",
    "suspendBorrowing": "; from {at} on it is the first to go where another queue reclaims or a gang preempts",
    "evict": "; it is evicted at {at} unless one is busy before",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleNotice:
    """What a gang is told. `at`: unix seconds, when what the policy says follows."""

    devices: int
    since: float
    policy: IdlePolicy
    at: float

    def __str__(self) -> str:
        several = (
            f"one of its {self.devices} devices has"
            if self.policy.devices == "Any"
            else f"all its {self.devices} devices have"
        )
        what = "its device has" if self.devices == 1 else several
        follows = _THEN[self.policy.then].format(at=timestamps.seconds(self.at))
        measure = "idle" if self.policy.below_percent is None else f"below {self.policy.below_percent} %"
        return (
            f'{what} been {measure} since {timestamps.seconds(self.since)}{follows}; the annotation {names.KEEP_IDLE}: "true" on its '
            "pods says that they need them all the same"
        )


def exempt(gang: Gang) -> bool:
    return any(member.pod.metadata.annotations.get(names.KEEP_IDLE) == "true" for member in gang.members)


def idle_span(gang: Gang, policy: IdlePolicy, noticed: float | None, now: float) -> IdleSpan | None:
    """`noticed`: when it was told, `now`: unix seconds. None: it is not idle."""
    if exempt(gang):
        return None
    spans: list[tuple[float, float]] = []  # since when, and until when that is known
    for claim in held_claims(gang.members).values():
        for usage in _usages(claim):
            known = usage is not None and usage.sampled_at_s <= now + AHEAD_MAX_S
            since_s = idle_since(usage, policy.below_percent) if usage is not None and known else None
            if usage is not None and since_s is not None:
                spans.append((max(since_s, created_s(claim)), usage.sampled_at_s + FRESH_S))
            elif policy.devices == "All":
                return None
    if policy.devices == "Any":
        spans = sorted(span for span in spans if now < span[1])[:1]
    if not spans:
        return None
    return IdleSpan(
        since=max(since for since, _ in spans), known_until=min(until for _, until in spans), noticed=noticed
    )


def idle_since(usage: DeviceUsage, below_percent: int | None) -> float | None:
    """Since when the device is idle; None: it is not.

    Example: a device at 8 % since 09:00 that was at 0 % from 07:00 on, of a driver with `--idle-below 5 --idle-levels 1,10`: by the
    driver's threshold it is busy, below 10 % it is since 07:00, and so it is below 20 %, which the driver does not measure.
    """
    if below_percent is not None:
        return usage.below_since(below_percent)
    return usage.since_s if usage.state == "Idle" else None


def devices_of(gang: Gang) -> int:
    return sum(1 for claim in held_claims(gang.members).values() for _ in _own(claim))


def _own(claim: resource.ResourceClaim) -> Iterable[resource.DeviceRequestAllocationResult]:
    return (each for each in results(claim) if each.driver in DRIVERS and not each.admin_access)


def _usages(claim: resource.ResourceClaim) -> Iterable[DeviceUsage | None]:
    """The usage of each of our devices; None where the driver wrote nothing."""
    said = {tuple(device): usage for device, usage in usage_of(claim).items()}
    for each in _own(claim):
        yield said.get((each.driver, each.pool, each.device, each.share_id))


def notice(gang: Gang, span: IdleSpan, policy: IdlePolicy, now: float) -> IdleNotice | None:
    """What the gang is told now; None: nothing, as it is not idle for long enough, or nothing is known any more."""
    if policy.then == "nothing" or now >= span.known_until:
        return None
    if span.since + policy.for_s > now:
        return None
    at = max(span.since + policy.for_s, (now if span.noticed is None else span.noticed) + policy.grace_s)
    return IdleNotice(devices=devices_of(gang), since=span.since, policy=policy, at=at)


def looked_at_again(span: IdleSpan, policy: IdlePolicy, now: float) -> float | None:
    """When the gang's answer may change though its claims do not; None: it does not."""
    if policy.then == "nothing":
        return None
    told = span.since + policy.for_s
    times = [told, span.known_until]
    if span.noticed is not None:
        times.append(max(told, span.noticed + policy.grace_s))
    elif told <= now:
        times.append(now + UNTOLD_S)
    return min((at for at in times if at > now), default=None)


def follows(span: IdleSpan, policy: IdlePolicy, now: float) -> bool:
    """Whether what the policy says of more than a notice follows now."""
    if policy.then not in {"suspendBorrowing", "evict"} or span.noticed is None or now >= span.known_until:
        return False
    return now >= max(span.since + policy.for_s, span.noticed + policy.grace_s)
