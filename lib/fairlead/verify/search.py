"""Exhaustive search for devices of one node for several claims at once: so plain that its "no" can be trusted.

It allows more than the API does where that is simpler (beside other claims `All` may leave out shared devices; admin access takes
nothing), never less: what it does not find does not exist. Devices that are alike for all requests are tried once per position.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from fairlead.evidence.published import Ask, Device, asks, consumption, is_admin, wants_all
from fairlead.kube import resource
from fairlead.verify.cluster import Cluster

STEPS_MAX = 100_000
RESULTS_MAX = 32
Pick = tuple[int, set[str], Device, dict[str, Fraction], bool]  # claim, names of the request, what it consumes, admin


class UnprovenError(Exception):
    """There is no proof here, or none that can be followed to its end."""


class Search:
    def __init__(self, cluster: Cluster, node: str, specs: Sequence[resource.ResourceClaimSpec]) -> None:
        self.cluster, self.specs, self.steps, self.picks = cluster, specs, 0, list[Pick]()
        self.devices = cluster.reached(cluster.nodes[node])
        self.whole = not any(device.reached_from(cluster.nodes[node]) for device in cluster.broken)
        self.slots = [(claim, request) for claim, spec in enumerate(specs) for request in spec.devices.requests]
        self.options = [[(ask, *self._candidates(ask)) for ask in asks(request)] for _, request in self.slots]
        watched = {c.match_attribute or c.distinct_attribute or "" for spec in specs for c in spec.devices.constraints}
        serving = [{device.id for device in option[2]} for options in self.options for option in options]
        self.alike = {
            device.id: (
                [device.id in each for each in serving],
                [device.values.get(name) for name in sorted(watched)],
                (device.id[:2], device.draws) if device.draws else None,
                device.id if device.shared else cluster.in_use(device),
            )
            for device in self.devices
        }

    def _candidates(self, ask: Ask) -> tuple[int, list[Device]]:
        """How many are wanted, and of which; more than there are where it cannot be served."""
        words = {device.id: self.cluster.filters(ask, device) for device in self.devices}
        free = [d for d in self.devices if not words[d.id]]
        if not is_admin(ask):
            free = [device for device in free if not self.cluster.held(device) and not self.cluster.overdrawn(device)]
        if not wants_all(ask):
            return ask.count, free
        alone = len(self.specs) == 1  # else shared devices are wanted only as far as other claims leave room
        matching = [d for d in self.devices if not words[d.id] & {"class", "selector", "capacity", "full"}]
        every = [device for device in matching if alone or not device.shared]
        if not self.whole or any(device not in free for device in every):
            return 1, []
        return (len(every), every) if every else (1, free)

    def found(self, slot: int = 0) -> bool:
        if slot == len(self.slots):
            return True
        return any(self._pick(slot, option, 0, option[1]) for option in self.options[slot])

    def _pick(self, slot: int, option: tuple[Ask, int, list[Device]], start: int, left: int) -> bool:
        if not left:
            return self.found(slot + 1)
        (claim, request), (ask, _, devices) = self.slots[slot], option
        names = {request.name} if request.exactly else {request.name, f"{request.name}/{getattr(ask, 'name', '')}"}
        tried: list[object] = []
        for place in range(start, len(devices) - left + 1):
            device = devices[place]
            pick = (claim, names, device, consumption(ask, device) or {}, is_admin(ask))
            if self.alike[device.id] in tried or not self._fits(pick):
                continue
            tried.append(self.alike[device.id])
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise UnprovenError("the search for devices of a node did not end")
            self.picks.append(pick)
            if self._pick(slot, option, place + 1, left - 1):
                return True
            self.picks.pop()
        return False

    def _fits(self, pick: Pick) -> bool:
        claim, _, device, takes, admin = pick
        same = [each for each in self.picks if each[2] is device]
        if not device.shared and any(each[0] == claim or not (admin or each[4]) for each in same):
            return False
        if sum(each[0] == claim for each in self.picks) >= RESULTS_MAX or not self._agrees(pick):
            return False
        mine = {each[2].id: each[2] for each in (*self.picks, pick) if not each[4] and not self.cluster.in_use(each[2])}
        drawing = [each for each in mine.values() if each.id[:2] == device.id[:2]]
        drawn = {key: sum(each.draws.get(key, Fraction(0)) for each in drawing) for key in device.draws}
        used = {name: sum(each[3].get(name, Fraction(0)) for each in same if not each[4]) for name in takes}
        return admin or (
            all(value <= self.cluster.left[(*device.id[:2], *key)] for key, value in drawn.items())
            and all(used[name] + value <= self.cluster.free_capacity(device, name) for name, value in takes.items())
        )

    def _agrees(self, pick: Pick) -> bool:
        """Whether the constraints of its claim still hold."""
        mine = [each for each in (*self.picks, pick) if each[0] == pick[0]]
        for each in self.specs[pick[0]].devices.constraints:
            covered = [item[2] for item in mine if not each.requests or item[1] & set(each.requests)]
            for name, distinct in ((each.match_attribute, False), (each.distinct_attribute, True)):
                values = [device.values.get(name, frozenset()) for device in covered] if name else []
                if not all(values) or (values and not distinct and not frozenset.intersection(*values)):
                    return False
                if distinct and len(frozenset[object]().union(*values)) < sum(map(len, values)):
                    return False
        return True
