"""The devices of a gang: how many it holds and how many of them are idle, and how busy each was over its life; pure.

What happened is the ledger's, in stretches of one bucket; what it does not have yet, or where there is none, is what claims say: from their
allocation on, and how busy their driver found each device last. A stretch whose samples say nothing is of unknown use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fairlead.api.drivers import DRIVERS
from fairlead.api.texts import natural
from fairlead.controller.gangs.claims.allocations import allocated_node, results
from fairlead.controller.gangs.held.placement import held_models
from fairlead.history.ledger.entries import HELD
from fairlead.history.ledger.entries import Stretch as Kept
from fairlead.kube.device_usage import DeviceId, usage_of
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.timestamps import SECOND_US
from fairlead.ui.model.facts import Facts, Holder, Usage
from fairlead.ui.model.holders import holders, lately

SHOWN_MAX = 64  # devices of a gang
State = Literal["used", "idle", "starting"]


class Held(NamedTuple):
    """`idle`: how many of the devices are; None: their drivers said of none how busy it is. `models`: the devices by model, such as
    `16 × NVIDIA H100 80GB HBM3`; () where devices are not read.
    """

    devices: int
    idle: int | None
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Unix seconds. `busy`: the mean utilisation, 0 to 1; None: not known."""

    start: float
    end: float
    state: State
    busy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A device while the gang held it, in order of time."""

    node: str
    device: str
    stretches: tuple[Stretch, ...]

    @property
    def held_s(self) -> float:
        return sum(each.end - each.start for each in self.stretches)

    @property
    def idle_s(self) -> float:
        return sum(each.end - each.start for each in self.stretches if each.state == "idle")

    @property
    def busy(self) -> float | None:
        """The mean utilisation of the time in which it is known, 0 to 1; None: of no time."""
        known = [(each.end - each.start, each.busy) for each in self.stretches if each.busy is not None]
        seconds = sum(lasts for lasts, _ in known)
        return sum(lasts * busy for lasts, busy in known) / seconds if seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """`since` to `until`: unix seconds. `from_ledger`: the ledger has some of it. `more`: devices that are not listed."""

    since: float
    until: float
    from_ledger: bool
    devices: tuple[Life, ...]
    more: int

    @property
    def known(self) -> bool:
        """Whether of any device it is known how busy it was."""
        return any(each.busy is not None or each.idle_s for each in self.devices)


def held(facts: Facts, gangs: Collection[str]) -> Mapping[str, Held]:
    """Of those of these gangs (namespace/name) that hold devices."""
    found: dict[str, Held] = {}
    for gang, claims in _claims(facts, gangs).items():
        usage, devices, known, idle = _usage(facts, [claim for claim, _ in claims]), 0, 0, 0
        for claim, _ in claims:
            for device in _devices(claim):
                devices += 1
                said = usage.get(device)
                if said is not None and (said.percent is not None or said.idle_since is not None):
                    known += 1
                    idle += said.idle_since is not None
        found[gang] = Held(devices, idle if known else None, _models(facts, [claim for claim, _ in claims]))
    return found


def _models(facts: Facts, claims: Sequence[ResourceClaim]) -> tuple[str, ...]:
    found = None if facts.hardware is None else held_models(claims, facts.hardware.inventory, "any")
    return () if found is None else tuple(f"{count} × {model}" for model, count in found.held)


def lives(facts: Facts, gang: str, kept: Sequence[Kept] = ()) -> Lives | None:
    """`kept`: the ledger's, of this gang. None: it holds no device, and the ledger knows of none that it held."""
    found: dict[tuple[str, str], list[Stretch]] = {}
    for each in kept:
        if each.bucket in HELD:
            found.setdefault((each.node, each.device), []).append(_of_ledger(each))
    for place, stretches in _now(facts, gang):
        before = found.setdefault(place, [])
        until = max((each.end for each in before), default=0.0)
        before += [_later(each, until) for each in stretches if each.end > until]
    if not found:
        return None
    listed = sorted(found.items(), key=lambda entry: (natural(entry[0][0]), natural(entry[0][1])))
    devices = tuple(
        Life(node=node, device=device, stretches=tuple(stretches)) for (node, device), stretches in listed[:SHOWN_MAX]
    )
    every = [each for stretches in found.values() for each in stretches]
    return Lives(
        since=min(each.start for each in every),
        until=max(each.end for each in every),
        from_ledger=bool(kept),
        devices=devices,
        more=len(listed) - len(devices),
    )


def _of_ledger(kept: Kept) -> Stretch:
    state: State = "idle" if kept.bucket == "idle" else "starting" if kept.bucket == "starting" else "used"
    return Stretch(
        start=kept.start_us / SECOND_US,
        end=kept.end_us / SECOND_US,
        state=state,
        busy=kept.busy_us / kept.sampled_us if kept.sampled_us else None,
    )


def _later(each: Stretch, since: float) -> Stretch:
    """The part of it after that time."""
    return Stretch(start=max(since, each.start), end=each.end, state=each.state, busy=each.busy)


def _now(facts: Facts, gang: str) -> Iterator[tuple[tuple[str, str], list[Stretch]]]:
    """What claims say of each device, by node and device."""
    claims = _claims(facts, {gang}).get(gang, [])
    usage = _usage(facts, [claim for claim, _ in claims])
    for claim, holder in claims:
        since = min(facts.at, facts.at if holder.since is None else holder.since)
        for device in _devices(claim):
            said = usage.get(device, Usage())
            busy = None if said.percent is None else said.percent / 100
            idle_since = None if said.idle_since is None else min(facts.at, max(since, said.idle_since))
            state: State = "starting" if holder.starting else "used"
            until = facts.at if idle_since is None else idle_since
            # What the driver wrote of a device that is idle is of its idle time.
            parts = [(since, until, state, busy if idle_since is None else None)]
            if idle_since is not None:
                parts.append((idle_since, facts.at, "idle", busy))
            place = (allocated_node(claim) or device.pool, device.device)
            yield place, [Stretch(start=a, end=b, state=is_, busy=load) for a, b, is_, load in parts if b > a]


def _claims(facts: Facts, gangs: Collection[str]) -> dict[str, list[tuple[ResourceClaim, Holder]]]:
    """What these gangs hold."""
    hardware = facts.hardware
    known = hardware.holders if hardware is not None else holders(facts.claims, facts.pods, facts.gangs)
    found: dict[str, list[tuple[ResourceClaim, Holder]]] = {}
    for claim in facts.claims:
        holder = known.get(claim.metadata.uid)
        if holder is not None and holder.gang in gangs:
            found.setdefault(holder.gang, []).append((claim, holder))
    return found


def _devices(claim: ResourceClaim) -> list[DeviceId]:
    return [
        DeviceId(each.driver, each.pool, each.device, each.share_id)
        for each in results(claim)
        if each.driver in DRIVERS and not each.admin_access
    ]


def _usage(facts: Facts, claims: Iterable[ResourceClaim]) -> Mapping[DeviceId, Usage]:
    if facts.hardware is not None:
        return facts.hardware.usage
    return lately(((claim.metadata.uid, usage_of(claim)) for claim in claims), now=facts.at)
