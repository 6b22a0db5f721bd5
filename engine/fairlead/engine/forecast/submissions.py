"""What is submitted in a simulated future: gangs to come, and what running gangs request again where they are evicted.

Each hour of the future is like an hour of the past, drawn anew for each sample: without it a forecast is too early wherever later gangs go
first: those of higher priority, and those of queues that use less than their share. An hour that is the same of the day is drawn where the
past has one, else any hour. Times within the hour stay as they were.
A running gang whose request was not seen requests as many devices of the same kinds as it holds: an estimate, for of its claims' own
selectors and constraints nothing is known here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from fairlead.api.drivers import attributes_of, classes_of, part_class
from fairlead.engine.forecast.run_times import Draws
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.models import is_part, text
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PendingMember, RunningGang
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.values import PodRef
from fairlead.kube import resource

HOUR_S = 3600.0
DAY_S = 86_400.0


class Arrivals:
    """`past`: gangs as they were first requested, by `created`; `since`: from when on all of them are known, unix seconds."""

    def __init__(self, past: Iterable[GangRequest], *, since: float, now: float) -> None:
        self._past = sorted((gang for gang in past if since <= gang.created <= now), key=lambda each: each.created)
        self._at = [gang.created for gang in self._past]
        self._since = since
        self._now = now

    def __bool__(self) -> bool:
        return bool(self._past) and self._now - self._since >= HOUR_S

    def drawn(self, draws: Draws) -> Iterator[GangRequest]:
        """In order of time, without end where there is a past; none where there is not an hour of it."""
        for at, number, gang in self._drawn(draws):
            yield _renamed(gang, number, at)

    def times(self, draws: Draws) -> Iterator[tuple[float, GangRequest]]:
        """When they come, and the gangs of the past that they are like: a tenth of the cost, for what needs no names."""
        return ((at, gang) for at, _, gang in self._drawn(draws))

    def _drawn(self, draws: Draws) -> Iterator[tuple[float, str, GangRequest]]:
        if not self or draws.middle:
            return
        hour = 0
        while True:
            begin = self._now + hour * HOUR_S
            source = self._source(begin, draws.uniform("arrivals", hour))
            first, last = bisect_left(self._at, source), bisect_left(self._at, source + HOUR_S)
            for number in range(first, last):
                gang = self._past[number]
                yield begin + gang.created - source, f"{hour}-{number - first}", gang
            hour += 1

    def _source(self, begin: float, uniform: float) -> float:
        """Where in the past the hour is taken from."""
        days = int((begin - self._since) // DAY_S)
        first_day = max(1, -int(-(begin + HOUR_S - self._now) // DAY_S))
        if days >= first_day:
            day = first_day + int(uniform * (days - first_day + 1))
            return begin - day * DAY_S
        return self._since + uniform * (self._now - HOUR_S - self._since)


@dataclass(frozen=True, slots=True)
class Submissions:
    """`again`: by id, what running gangs would request if they were evicted. `new`: gangs to come."""

    again: Mapping[str, GangRequest] = field(default_factory=dict)
    new: Arrivals | None = None


def _renamed(gang: GangRequest, number: str, at: float) -> GangRequest:
    """Another of its kind: of the same name but for a number, so that its run time is drawn like its own."""
    suffix = f"~{number}"
    name = f"{gang.name}{suffix}"
    return replace(
        gang,
        name=name,
        uid=f"{gang.uid}{suffix}",
        created=at,
        members=tuple(
            replace(
                member,
                pod=PodRef(member.pod.namespace, f"{member.pod.name}{suffix}", f"{member.pod.uid}{suffix}"),
                claims=tuple(f"{key}{suffix}" for key in member.claims),
            )
            for member in gang.members
        ),
        claims=tuple(
            replace(claim, key=f"{claim.key}{suffix}", name=f"{claim.name}{suffix}", allocation=None)
            for claim in gang.claims
        ),
        placed_nodes=(),
        placed_claims=(),
        placed_members=(),
        kept=(),
        preemptor=False,
        replaces=False,
    )


_NEEDS = PodNeeds(requests=(("pods", 1000),))


def resubmitted(gang: RunningGang, snapshot: Snapshot) -> GangRequest | None:
    """None where its pods, its devices or their class are not known. To be called while it holds its devices."""
    specs = {uid: _spec(uid, snapshot) for uid in gang.claims}
    members = [member for member in gang.members if not member.leaving]
    if not members or any(specs.get(uid) is None for member in members for uid in member.claims):
        return None
    claims = {}
    for uid, spec in specs.items():
        claim = snapshot.inventory.claim(uid)
        if spec is not None and claim is not None:
            claims[uid] = ClaimRequest(key=uid, namespace=claim.namespace, name=claim.name, spec=spec)
    return GangRequest(
        namespace=gang.namespace,
        name=gang.name,
        uid=gang.uid,
        size=min(gang.size, len(members)),
        members=tuple(
            PendingMember(pod=member.pod, needs=_needs(member.pod.uid, snapshot), claims=member.claims)
            for member in members
        ),
        claims=tuple(claims.values()),
        queue=gang.queue,
        namespace_labels=gang.namespace_labels,
        priority=gang.priority,
        created=gang.created,
        endless=gang.endless,
        hold=gang.hold,
    )


def _needs(uid: str, snapshot: Snapshot) -> PodNeeds:
    known = snapshot.nodes.pod(uid)
    if known is None:
        return _NEEDS
    needs = known[1]
    # A pod that was released is pinned to its node: that is not asked for again.
    return PodNeeds(requests=needs.requests, node_selector=needs.node_selector, tolerations=needs.tolerations)


def _spec(uid: str, snapshot: Snapshot) -> resource.ResourceClaimSpec | None:
    claim = snapshot.inventory.claim(uid)
    if claim is None:
        return None
    counts: dict[tuple[str, str], int] = {}
    for item in claim.devices:
        device = snapshot.inventory.device(item.ref)
        kind = None if device is None else _kind(device, snapshot)
        if kind is None or item.admin or not item.whole:
            return None
        counts[kind] = counts.get(kind, 0) + 1
    return resource.ResourceClaimSpec(
        devices=resource.DeviceClaim(
            requests=tuple(
                resource.DeviceRequest(name=f"r{number}", exactly=_exactly(*kind, count))
                for number, (kind, count) in enumerate(sorted(counts.items()))
            )
        )
    )


def _kind(device: Device, snapshot: Snapshot) -> tuple[str, str] | None:
    driver = device.pool.driver
    known, part = attributes_of(driver), is_part(device)
    name = part_class(driver) if part else classes_of(driver)[0]
    if name not in snapshot.classes:
        return None
    wanted = {attribute: text(device, (attribute,)) for attribute in known.product}
    if known.whole:  # the class holds whole GPUs and parts alike
        wanted[known.kind] = text(device, (known.kind,))
    if part and known.profile:
        wanted[known.profile] = text(device, (known.profile,))
    selector = " && ".join(
        f'device.attributes["{driver}"].{attribute} == "{value}"' for attribute, value in wanted.items() if value
    )
    return name, selector


def _exactly(device_class: str, selector: str, count: int) -> resource.ExactDeviceRequest:
    selectors = (resource.DeviceSelector(cel=resource.CELDeviceSelector(expression=selector)),) if selector else ()
    return resource.ExactDeviceRequest(device_class_name=device_class, count=count, selectors=selectors)
