"""How the cluster looks to the requests that usually come: for each node, what a placement there would spoil.

Exists to bring together the mix (`workload`), the nodes with their devices, and the measure (`placement_lens`). It ranks what
is possible; it never says what is. Of a node it looks at devices without counters of their own (partitions have an order of
their own in `placement_prefer`) and at CPU; requests for several kinds of device at once, or by several pods, are not ranked.
Where the mix is of one kind only, or has no request for devices, every placement spoils the same: there is no outlook, and
placement packs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.placement.leftover import LeftoverValue, Rooms, UsualRequest
from fairlead.engine.placement.prices import WHOLE
from fairlead.engine.types.amounts import qualified

if TYPE_CHECKING:
    from fairlead.engine.allocator.candidates import Candidates
    from fairlead.engine.allocator.requests import CompiledRequest, Compiler
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.inventory import NodeDevices
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.node_info import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.shapes import UnitShape
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.engine.types.workload import Workload
    from fairlead.kube import resource

CPU = "cpu"
FORMS_MIN = 2  # fewer are no mix
SHARES_MAX = 512  # requests remembered per node
Profile = tuple[int, ...]  # thousandths of a device that each usual request takes on a node; 0: it can't run there


class FragmentationScore:
    """One mix on the cluster as it is. Made anew when either changes; read by one placer, whose ledger it looks at."""

    def __init__(self, asks: list[tuple[CompiledRequest, int, float]], sites: NodeSnapshot, ledger: Ledger) -> None:
        """`asks`: what is asked, the CPU with it, and its part of the mix."""
        self._asks = asks
        self._sites = sites
        self._ledger = ledger
        self._profiles: dict[CandidateNode, tuple[NodeDevices, Profile, int]] = {}  # and its devices that count
        self._shares: dict[CandidateNode, tuple[NodeDevices, dict[CompiledRequest, int]]] = {}
        self._states: dict[CandidateNode, tuple[int, Rooms, int]] = {}
        self._parts: list[float] = []
        self._lenses: dict[Profile, LeftoverValue] = {}
        self.renew()

    @classmethod
    def of(
        cls, workload: Workload | None, compiler: Compiler, sites: NodeSnapshot, ledger: Ledger
    ) -> FragmentationScore | None:
        if workload is None:
            return None
        kinds: dict[tuple[object, int, int], tuple[CompiledRequest, int, int]] = {}
        for demand in workload.demands:
            ask = _single_ask(demand.spec, compiler)
            if ask is not None:
                cpu = _cpu(demand.needs)
                key = (ask.filter, ask.count, cpu)
                known = kinds.get(key, (ask, cpu, 0))
                kinds[key] = (known[0], cpu, known[2] + demand.count)
        total = sum(count for _, _, count in kinds.values())
        if len(kinds) < FORMS_MIN:
            return None
        return cls([(ask, cpu, count / total) for ask, cpu, count in kinds.values()], sites, ledger)

    def cost(self, shape: UnitShape, site: CandidateNode) -> tuple[int, int]:
        """(waste, loss) of one unit of this shape there; low is better. The unit seems to fit."""
        found = self._look(shape, site)
        return (0, 0) if found is None else found[:2]

    def room(self, shape: UnitShape, site: CandidateNode) -> int:
        """How much room the shared device should have that the unit is given, in thousandths; 0: any."""
        found = self._look(shape, site)
        return 0 if found is None else found[2]

    def left(self, device: Device) -> int:
        """Thousandths that the device has left: of a shared one, of the capacity that is scarcest on it."""
        ledger = self._ledger
        if not ledger.free(device):
            return 0
        if not device.shared:
            return WHOLE
        mine = ledger.used.get(device)
        theirs = device.use.consumed if device.use is not None and not ledger.empty else None
        if not mine and not theirs:
            return WHOLE
        least = WHOLE
        for name, total in device.kind.totals.items():
            used = (mine.get(name, 0) if mine else 0) + (theirs.get(name, 0) if theirs else 0)
            if used and total:
                least = min(least, int((total - used) * WHOLE // total))
        return max(least, 0)

    # ------------------------------------------------------------------------------------------------------ one node

    def _look(self, shape: UnitShape, site: CandidateNode) -> tuple[int, int, int] | None:
        lens = self._lenses.get(self._profile(site)[0])
        if lens is None or len(shape.needs) != 1:
            return None
        count = share = 0
        if shape.claims:
            if not shape.plain:
                return None
            ask = shape.claims[0].alternatives[0][0]
            count, share = ask.count, self._share(site, ask)
            if not share:
                return None
        rooms, cpu = self._state(site)
        if count and sum([room >= share for room in rooms]) < count:
            return None
        return lens.cost(rooms, cpu, count=count, share=share, wants_cpu=_cpu(shape.needs[0]))

    def _state(self, site: CandidateNode) -> tuple[Rooms, int]:
        known = self._states.get(site)
        if known is not None and known[0] == site.changes:
            return known[1], known[2]
        rooms = tuple(sorted([self.left(device) for device in _lanes(site)]))
        node = site.node
        load = self._ledger.loads.get(node)
        cpu = node.allocatable.get(CPU, 0) - (0 if self._ledger.empty else node.used.get(CPU, 0))
        cpu -= load.get(CPU, 0) if load else 0
        self._states[site] = (site.changes, rooms, cpu)
        return rooms, cpu

    def _profile(self, site: CandidateNode) -> tuple[Profile, int]:
        found = self._profiles.get(site)
        if found is None or found[0] is not site.devices:
            profile = tuple([self._share(site, ask) for ask, _, _ in self._asks])
            found = self._profiles[site] = (site.devices, profile, len(_lanes(site)))
        return found[1], found[2]

    def _share(self, site: CandidateNode, ask: CompiledRequest) -> int:
        """Thousandths of a device that the request takes there; 0 where it can't run. Devices of a node are taken as alike."""
        known = self._shares.get(site)
        if known is None or known[0] is not site.devices or len(known[1]) >= SHARES_MAX:
            known = self._shares[site] = (site.devices, {})
        share = known[1].get(ask)
        if share is None:
            share = known[1][ask] = _share(self._sites.candidates(site, ask))
        return share

    # -------------------------------------------------------------------------------------------------- the cluster

    def renew(self) -> bool:
        """Look at the nodes again, as they came, went or changed; true when that changes how any is judged.

        Makes a lens for each kind of node. Requests that few nodes serve weigh more.
        """
        kinds: dict[tuple[Profile, int, int], int] = {}
        if len(self._profiles) > 2 * len(self._sites.all):
            for memory in (self._profiles, self._shares, self._states):
                memory.clear()
        for site in self._sites.all:
            key = (*self._profile(site), site.node.allocatable.get(CPU, 0))
            kinds[key] = kinds.get(key, 0) + 1
        capacity = [0] * len(self._asks)
        devices = 0
        forms: dict[Profile, tuple[UsualRequest, ...]] = {}
        for (profile, lanes, cpu), number in kinds.items():
            devices += number * lanes
            if profile not in forms:
                forms[profile] = tuple(
                    UsualRequest(ask.count, share, wants_cpu, part)
                    for (ask, wants_cpu, part), share in zip(self._asks, profile, strict=True)
                )
            for place, form in enumerate(forms[profile]):
                if form.share:
                    capacity[place] += number * form.size * form.copies((WHOLE,) * lanes, cpu)
        # Two digits are enough, and spare a look at every node whenever one comes or goes.
        parts = [float(f"{max(amount / (devices * WHOLE), 0.001):.1e}") if devices else 1.0 for amount in capacity]
        if parts == self._parts and forms.keys() <= self._lenses.keys():
            return False
        self._parts = parts
        self._lenses = {}
        for profile, seen in forms.items():
            able = [(form, part) for form, part in zip(seen, parts, strict=True) if form.share]
            if able:
                weights = [form.frequency / (form.size / WHOLE) ** 0.5 / part / WHOLE for form, part in able]
                self._lenses[profile] = LeftoverValue(tuple(form for form, _ in able), weights)
        return True


def _lanes(site: CandidateNode) -> list[Device]:
    return [device for device in site.devices.devices if not device.draws]


def _share(found: Candidates) -> int:
    for device in found.devices:
        if device.draws:
            continue
        if not device.shared:
            return WHOLE
        totals, driver = device.kind.totals, device.pool.driver
        parts = [
            -(-value * WHOLE // totals[full])
            for name, value in found.consumption[device]
            if totals.get(full := qualified(name, driver))
        ]
        return max(1, min(WHOLE, int(max(parts, default=WHOLE))))
    return 0


def _cpu(needs: PodNeeds) -> int:
    for name, value in needs.requests:
        if name == CPU:
            return value
    return 0


def _single_ask(spec: resource.ResourceClaimSpec, compiler: Compiler) -> CompiledRequest | None:
    try:
        claim = compiler.compile_spec(spec)
    except InvalidClaimError:
        return None
    return claim.alternatives[0][0] if claim.plain else None
