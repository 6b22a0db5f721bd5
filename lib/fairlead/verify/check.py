"""Is the certificate true of these facts? Every statement in it is looked up, or worked out again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from fairlead.api import certificate as form
from fairlead.api import topology
from fairlead.cel import CompileError, compile_selector, load_fault
from fairlead.cel.devices.requests import expressions
from fairlead.evidence.document import Facts, Gang
from fairlead.evidence.node_fit import clash, needs, ports, refusals, selects
from fairlead.evidence.published import Device, asks, is_admin, wants_all
from fairlead.evidence.units import Kind, kinds
from fairlead.kube import core
from fairlead.verify.cluster import Cluster
from fairlead.verify.queues import Queues
from fairlead.verify.search import Search, UnprovenError

VECTORS_MAX = 512  # combinations of units of several kinds that are looked at on one node


class RefusedError(Exception):
    """A statement is not true of these facts; the message says which, and what is true."""


def require(holds: object, where: str, true: object = "") -> None:
    if not holds:
        raise RefusedError(f"{where} is not so" + (f"; true is {true}" if true != "" else ""))


def check(certificate: form.Certificate, facts: Facts) -> None:
    """Returns where the gang cannot start, provided that what is `given` is so. Raises RefusedError or UnprovenError."""
    gangs = {gang.id: gang for gang in facts.gangs}
    if certificate.version != form.VERSION:
        raise RefusedError(
            f"version {certificate.version} of certificates: this fairlead checks version {form.VERSION}; use the one that wrote it"
        )
    for name, uid in ((certificate.gang, certificate.uid), *((each.gang, each.uid) for each in certificate.given)):
        require(name in gangs and gangs[name].uid == uid, f"gang {name} with UID {uid} waits")
    try:
        cluster = Cluster(facts, certificate.given)
    except (ValueError, ZeroDivisionError, KeyError) as error:
        raise RefusedError(f"what is given cannot be read: {error}") from None
    for each in certificate.given:
        require(each.gang != certificate.gang and each.role in {"Admitted", "Nominated", "Reserved"}, f"given {each}")
        require({s.device for s in each.devices} <= cluster.devices.keys(), f"given {each}: all devices")
        require(set(each.pods) <= {member.uid for member in gangs[each.gang].members}, f"given {each}: all pods")
        require(set(each.pods.values()) <= cluster.nodes.keys(), f"given {each}: all nodes")
    _Check(cluster, gangs[certificate.gang]).because(certificate.because)


class _Check:
    def __init__(self, cluster: Cluster, gang: Gang) -> None:
        self.cluster, self.gang, self.queues, self.kinds = cluster, gang, Queues(cluster), kinds(gang)
        claims = [claim for kind in self.kinds for claim in kind.claims]
        self.asks = [ask for claim in claims for request in claim.spec.devices.requests for ask in asks(request)]

    def because(self, said: form.Because) -> None:
        gang, facts = self.gang, self.cluster.facts
        match said:
            case form.NotProven():
                raise UnprovenError(f"it has no proof: the controller says {said.code}")
            case form.Gathering():
                true = form.Gathering(present=len(gang.members) + len(gang.placed_nodes), size=gang.size)
                require(said == true and said.present < said.size, f"{said}", true)
            case form.QueueRefuses():
                require(
                    (said.queue, said.fault) == self.queues.of(gang) and said.fault, f"{said}", self.queues.of(gang)
                )
            case form.Quota():
                asked, place = gang.quota_charge.get(said.resource), (gang.namespace, said.quota, said.resource)
                known = [(q.used, asked, q.limit) for q in facts.quotas if (q.namespace, q.name, q.resource) == place]
                require((said.used, said.asked, said.limit) in known, f"{said}", known)
                require(said.used + said.asked > said.limit, f"{said}: over the limit")
            case form.Limit():
                self._limit(said)
            case form.ClaimTaken():
                takers = {given.gang for given in self.cluster.given if said.claim in given.claims}
                shared = [claim.key for claim in gang.claims if claim.allocation is None]
                require(said.gang in takers and said.claim in shared, f"{said}", takers)
            case form.Invalid():
                require((said.claim, said.field) in set(self._faults()), f"{said}")
            case form.Behind():
                heads = [other for other in facts.gangs if other.id == said.head and other is not gang]
                rank, spec = (-gang.priority, gang.created, gang.uid), self.queues.specs.get(said.queue, {})
                require(
                    heads and (-heads[0].priority, heads[0].created, heads[0].uid) < rank, f"{said.head}: goes first"
                )
                require(self.queues.of(gang) == self.queues.of(heads[0]) == (said.queue, ""), f"both in {said.queue}")
                require(spec.get("ordering") == "StrictFIFO", f"{said.queue}: StrictFIFO")
                _Check(self.cluster, heads[0]).because(said.because)
            case form.Place():
                self._place(said)

    def _limit(self, said: form.Limit) -> None:
        queue, fault = self.queues.of(self.gang)
        require(said.queue in self.queues.path(queue) and not fault, f"Queue {said.queue} charged for the gang")
        known = said.flavor in self.queues.flavors and said.bound in {"limit", "borrowingLimit"}
        require(known, f"{said}: its flavor and bound")
        limit = self.queues.bound(said.queue, said.flavor, said.bound)
        used, charge = self.queues.used(said.queue, said.flavor), self.queues.charge(self.gang, said.flavor)
        require(
            (said.used, said.charge, said.limit) == (str(used), str(charge), str(limit)),
            f"{said}",
            (used, charge, limit),
        )
        require(limit is not None and used + charge > limit, f"{said}: over the limit")

    def _faults(self) -> Iterator[tuple[str, str]]:
        """Key of each claim, and field, of what no cluster can serve."""
        try:
            topology.levels(self.gang.topology or topology.EXAMPLE)
        except ValueError:
            yield "", "topology"
        known_keys = {claim.key for claim in self.gang.claims}
        yield from ((key, "missing") for member in self.gang.members for key in member.claims if key not in known_keys)
        for key, devices in ((c.key, c.spec.devices) for c in self.gang.claims if c.allocation is None):
            if load_fault(
                text for request in devices.requests for a in asks(request) for text in expressions(a.selectors)
            ):
                yield key, "requests"
            for number, each in enumerate(devices.constraints):
                if not each.match_attribute and not each.distinct_attribute:
                    yield key, f"constraints[{number}]"
            for number, request in enumerate(devices.requests):
                if (request.exactly is None) == (not request.first_available):
                    yield key, f"requests[{number}]"
                for ask in asks(request):
                    field = f"requests[{number}]" + ("" if request.exactly else f".{getattr(ask, 'name', '')}")
                    known = self.cluster.classes.get(ask.device_class_name)
                    selectors = [*ask.selectors, *(known.spec.selectors if known else ())]
                    if known is None:
                        yield key, f"{field}.deviceClassName"
                    if ask.allocation_mode not in {"ExactCount", "All", ""}:
                        yield key, f"{field}.allocationMode"
                    if not wants_all(ask) and not 1 <= ask.count <= 32:
                        yield key, f"{field}.count"
                    if not all(_compiles(each.cel.expression if each.cel else "") for each in selectors):
                        yield key, f"{field}.selectors"

    # -- no place

    def _place(self, said: form.Place) -> None:
        goal = tuple(kind.number for kind in self.kinds)
        require(said.units == goal, f"units {said.units}", goal)
        require(sorted(each.node for each in said.nodes) == sorted(self.cluster.nodes), "each node of the cluster once")
        most = {each.node: self._node(each) for each in said.nodes}
        domains = self._domains()
        require(
            [each.domain for each in said.domains] == sorted(domains, key=str), "the list of domains", list(domains)
        )
        searched = {each.node for each in said.nodes if any(isinstance(b, form.Devices) for b in each.because)}
        for each in said.domains:
            nodes = domains[each.domain]
            total = tuple(sum(most[name][kind] for name in nodes) for kind in range(len(goal)))
            require(each.most == total, f"domain {each.domain}: {each.most} at most", total)
            enough = all(n >= wanted for n, wanted in zip(total, goal, strict=True))
            if each.because is None and enough:
                fits = self._reachable({name: most[name] for name in nodes}, searched, goal)
                require(not fits, f"domain {each.domain}: its nodes cannot take all units")
            if each.because is not None:
                self._too_few(each.because, nodes, f"domain {each.domain}")

    def _domains(self) -> dict[str | None, list[str]]:
        """The nodes among which the whole gang must be, by domain: those that its topology allows."""
        require(("", "topology") not in set(self._faults()), "a topology that can be read")
        levels = topology.levels(self.gang.topology) if self.gang.topology else ()
        values = [self._values(level.label) for level in levels if level.mode == "required"]
        if not values:
            return {None: list(self.cluster.nodes)}
        of = {n: topology.PATH.join(v[n] for v in values) for n in self.cluster.nodes if all(n in v for v in values)}
        found = dict[str | None, list[str]]()
        for name, value in of.items():
            found.setdefault(value, []).append(name)
        taken = {of.get(name) for name in self.gang.placed_nodes if name in self.cluster.nodes}
        if taken - {None}:
            return {value: nodes for value, nodes in found.items() if {value} == taken}
        return found

    def _values(self, label: str) -> dict[str, str]:
        """Of each node, the label; where no node has it, the one value of the attribute that its devices have."""
        nodes = self.cluster.nodes
        of = {name: node.metadata.labels[label] for name, node in nodes.items() if label in node.metadata.labels}
        for name, node in nodes.items() if not of else ():
            values = {value for device in self.cluster.reached(node) for _, value in device.values.get(label, ())}
            of |= {name: str(*values)} if len(values) == 1 else {}
        return of

    def _node(self, said: form.NodeProof) -> tuple[int, ...]:
        """How many units of each kind its reasons allow."""
        node, where = self.cluster.nodes[said.node], f"node {said.node}"
        reached = self.cluster.reached(node)
        local = all(device.where.node_name or device.spec.binds_to_node for device in reached)
        most = [kind.number for kind in self.kinds]
        for each in said.because:
            match each:
                case form.Refused():
                    alone = local or each.unit >= len(most) or len(self.kinds[each.unit].members) == 1
                    require(each in self._refusals(node) and alone, f"{where}: {each}")
                    most[each.unit] = 0
                case form.Room():
                    wants = tuple(sum(needs(m.spec).get(each.resource, 0) for m in kind.members) for kind in self.kinds)
                    true = form.Room(resource=each.resource, left=self.cluster.room(node, each.resource), wants=wants)
                    alone = local or all(len(kind.members) == 1 for kind in self.kinds)
                    require(each == true and alone, f"{where}: {each}", true)
                    most = [min(m, max(each.left, 0) // w) if w else m for m, w in zip(most, wants, strict=True)]
                case form.Devices():
                    self._listed(each, reached, where)
        if any(isinstance(each, form.Devices) for each in said.because):
            for number, kind in enumerate(self.kinds):
                fits = range(1, most[number] + 1)
                most[number] = next((n - 1 for n in fits if not self._fit(said.node, [kind] * n)), most[number])
        require(said.most == tuple(most), f"{where}: {said.most} at most", most)
        return said.most

    def _refusals(self, node: core.Node) -> Iterator[form.Refused]:
        for unit, kind in enumerate(self.kinds):
            for pod, member in enumerate(kind.members):
                taken = [
                    p for p in ports(member.spec) if any(clash(p, q) for q in self.cluster.ports[node.metadata.name])
                ]
                for by, what in (*refusals(node, member.spec), *(("Port", f"{p[2]}/{p[0]}") for p in taken)):
                    yield form.Refused(unit=unit, pod=pod, by=by, what=what)
            for claim in kind.bound:
                selector = claim.allocation.node_selector if claim.allocation else None
                if selector is not None and not selects(selector, node):
                    yield form.Refused(unit=unit, pod=0, by="Claim", what=claim.key)

    def _listed(self, said: form.Devices, reached: list[Device], where: str) -> None:
        """The free devices and those ruled out are all that are reached, and each of these for a reason that holds."""
        listed = [*said.free, *(each.device for each in said.ruled_out)]
        require(
            sorted(listed) == sorted(device.id for device in reached), f"{where}: each device that it reaches, once"
        )
        for each in (*said.free, *said.ruled_out):
            device = self.cluster.devices[each if isinstance(each, tuple) else each.device]
            words = [self.cluster.filters(ask, device) for ask in self.asks]
            if isinstance(each, form.Filtered):
                true = len(each.by) == len(words) and all(by in found for by, found in zip(each.by, words, strict=True))
                require(true, f"{where}: {each}", words)
                continue
            open_to_admin = any(is_admin(ask) and not found for ask, found in zip(self.asks, words, strict=True))
            holders = [] if open_to_admin else list(self._holders(device))
            true = each in holders if not isinstance(each, tuple) else not holders and not all(words)
            require(true, f"{where}: {each}", holders or words)

    def _holders(self, device: Device) -> Iterator[form.RuledOut]:
        """Why no request can have it, whatever it asks for."""
        cluster, key = self.cluster, device.id
        for claim in (cluster.whole if device.shared else cluster.holders)[key]:
            yield form.Held(device=key, claim=claim)
        for gang in cluster.taken[key] if not device.shared else ():
            yield form.GivenAway(device=key, gang=gang)
        for group, name in cluster.overdrawn(device):
            left, wanted = cluster.left[(*key[:2], group, name)], device.draws[group, name]
            yield form.Counter(device=key, counter_set=group, counter=name, left=str(left), needs=str(wanted))

    def _too_few(self, said: form.Devices, nodes: list[str], where: str) -> None:
        reached = {device.id: device for name in nodes for device in self.cluster.reached(self.cluster.nodes[name])}
        self._listed(said, list(reached.values()), where)
        least = 0
        for kind in self.kinds:
            for request in (request for claim in kind.claims for request in claim.spec.devices.requests):
                least += kind.number * min(0 if is_admin(a) else 1 if wants_all(a) else a.count for a in asks(request))
        shared = any(reached[device].shared for device in said.free)
        require(not shared and len(said.free) < least, f"{where}: too few devices for {least} wanted")

    def _reachable(self, most: dict[str, tuple[int, ...]], searched: set[str], goal: tuple[int, ...]) -> bool:
        """Whether the nodes together may take all units; where devices were searched for, kinds are seen together."""
        front = {(0,) * len(goal)}
        for name, ends in most.items():
            vectors = list(product(*(range(end + 1) for end in ends)))
            if name in searched and len(goal) > 1 and len(vectors) <= VECTORS_MAX:
                vectors = [
                    v
                    for v in vectors
                    if self._fit(name, [k for k, n in zip(self.kinds, v, strict=True) for _ in range(n)])
                ]
            else:
                vectors = [ends]
            sums = {tuple(min(a + b, g) for a, b, g in zip(x, y, goal, strict=True)) for x in front for y in vectors}
            front = {x for x in sums if not any(x != y and all(map(int.__le__, x, y)) for y in sums)}
        return goal in front

    def _fit(self, node: str, units: list[Kind]) -> bool:
        return Search(self.cluster, node, [claim.spec for kind in units for claim in kind.claims]).found()


def _compiles(text: str) -> bool:
    try:
        compile_selector(text)
    except CompileError:
        return False
    return True
