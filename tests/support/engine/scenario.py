"""Scenarios of queues as data: queues, nodes, gangs and time in; which gangs are admitted, evicted and waiting, with reasons, out.

Exists so that tests, docs and people who wonder "what happens when …" read the same tables. It plays the rim on a `World`.
A scenario is a mapping:
    name, rule, shows     what it is called, which rule it belongs to, and in one sentence what it shows
    nodes                 {name: {gpus: 8, product: H100, mig: 0, cpu: "64", has: {memory: …}, labels: {}}}; default one node `n0` of 8 GPUs.
                          `nics: [0, 3]`: each GPU has a PCIe root of its own, and those under these roots a NIC
    flavors               {name: {product: H100 | mig: true | any: true, measure: Devices}}; default `gpu`, every whole GPU;
                          or {name: {resource: cpu, labels: {}}}, of what pods request
    queues                {name: {deserved: 4, … }} with the fields of QueueSpec; quota fields mean the default flavor, or
                          `flavors: {name: {deserved: …}}`. `budget: {hours: 100, spent: 90, rate: 16, then: stop, unit: cpu-hours, renews: 3600}`:
                          spent as of second 0, rising by `rate` an hour
    budgets               {name: pods that may go now}: PodDisruptionBudgets
    reserve_after         seconds; default 600
    steps                 each: `at` seconds; then what happens: `submit`, `withdraw`, `end`, `taint`, `lose`, `add`, `cordon`,
                          `queues`, `budgets`, `stay`; then what is wanted of one decision: `admitted`, `waiting` {gang: reason},
                          `evicted` {gang: {for, kind, pods, whole, grace}}, `reserved` and `lands` {gang: [nodes]}, `says`
                          {gang: words}, `problems` [words]; and of queues: `held`, `asked`, `fair` {queue: {flavor: amount}}
Gangs are {name: {queue, count, pods, size, gpus, priority, …}}; `count: 3` of `b` makes b0 b1 b2; `b0..b2` names them. Beside
`gpus` of a `product` or slices of a `mig` profile, `also: [{…}]` are further requests of the same claim, `first: [{…}]` choices; `nic: true` is one for a NIC
under the PCIe root of the GPU.
`heads` are members without devices, of `head_cpu` each, on nodes with the labels `head_on`; `size` counts them where it is not given.
`cpu: [8, 1]` are two members' cores, `requests: {memory: 64Gi}` what each requests beside cpu.
Evicted pods are gone at the next step, unless that says `stay: true`. Gangs admitted, evicted or waiting must all be named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.drivers import NVIDIA, part_class
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.pods import PodNeeds, milli
from fairlead.engine.types.settings import BudgetState, DisruptionBudget, FlavorQuota, FlavorSpec, QueueSpec
from fairlead.engine.types.values import amount as amount_of
from fairlead.sandbox.other_driver import as_nvidia
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, mig_gpu, slice_of, with_heads
from tests.support.engine.world import World

Json = Mapping[str, Any]
PRODUCTS = {"H100": "NVIDIA H100 80GB HBM3", "A100": "NVIDIA A100-SXM4-80GB"}
NIC, ROOT = "dra.net", "resource.kubernetes.io/pcieRoot"
# All words of a scenario, of a step and of a gang: another one is a mistake, and would else be wanted of nobody.
_SCENARIO = frozenset({"name", "shows", "nodes", "flavors", "queues", "budgets", "reserve_after", "steps"})
_HAPPENS = frozenset({"at", "stay", "submit", "withdraw", "end", "taint", "lose", "add", "cordon", "queues", "budgets"})
_WANTED = frozenset(
    {"admitted", "evicted", "waiting", "reserved", "lands", "says", "problems", "held", "asked", "fair"}
)
_GANG = frozenset(
    {"queue", "count", "pods", "size", "gpus", "product", "mig", "priority", "topology", "align", "created", "runs"}
)
_GANG |= {
    "heads",
    "head_cpu",
    "head_on",
    "nic",
    "cpu",
    "shared",
    "all",
    "admin",
    "first",
    "preempts",
    "also",
    "requests",
    "tolerate",
    "guarded",
    "grace",
    "min_runtime",
}
_EVICTED = frozenset({"for", "kind", "pods", "whole", "grace"})
_QUOTA = ("deserved", "limit", "weight", "borrowing_limit", "lending_limit")


class Scenario:
    """One run of one scenario. `check()` says what went otherwise; [] when nothing did."""

    def __init__(self, body: Json, driver: str = names.DRIVER) -> None:
        self.body = body
        self.driver = driver
        self.world = World(driver)
        self.world.reserve_after_s = float(body.get("reserve_after", 600))
        self.gangs: list[GangRequest] = []
        self.specs: dict[str, Json] = {}  # of each gang, as written
        self.devices: dict[str, list[dict[str, Any]]] = {}
        self.counters: dict[str, list[dict[str, Any]]] = {}
        self.faults: list[str] = []
        self._generation = 1
        for name, node in (body.get("nodes") or {"n0": {}}).items():
            self._add_node(name, node or {})
        self.world.flavors = tuple(_flavor(name, flavor or {}, driver) for name, flavor in self._flavors().items())
        self._set_queues(body.get("queues") or {})
        self.world.budgets = tuple(
            DisruptionBudget(namespace="ml", name=name, allowed=allowed)
            for name, allowed in (body.get("budgets") or {}).items()
        )

    def _flavors(self) -> Json:
        flavors = self.body.get("flavors")
        return {"gpu": {"any": True}} if flavors is None else flavors

    # -------------------------------------------------------------------------------------------------- the cluster

    def _add_node(self, name: str, node: Json) -> None:
        product = PRODUCTS[node.get("product", "A100" if node.get("mig") else "H100")]
        whole = node.get("gpus", 0 if node.get("mig") else 8)
        devices: list[dict[str, Any]] = [gpu(minor, product=product) for minor in range(whole)]
        counters = []
        for minor in range(len(devices), len(devices) + node.get("mig", 0)):
            parts, counter = mig_gpu(minor, product=product)
            devices += parts
            counters.append(counter)
        if self.driver == NVIDIA:
            devices = as_nvidia(devices)
        if "nics" in node:
            for minor, each in enumerate(devices):
                each["attributes"] = each["attributes"] | {ROOT: {"string": f"pci{minor}"}}
        self.devices[name], self.counters[name] = devices, counters
        self.world.add_node(
            name,
            devices,
            counters=counters,
            labels=node.get("labels"),
            allocatable={
                "cpu": str(node.get("cpu", 64)),
                **{key: str(has) for key, has in node.get("has", {}).items()},
            },
        )
        if "nics" in node:
            nics = [{"name": f"nic-{root}", "attributes": {ROOT: {"string": f"pci{root}"}}} for root in node["nics"]]
            self.world.add_slices(slice_of(name, nics, driver=NIC))
            self.world.add_class(NIC, {"selectors": [{"cel": {"expression": f'device.driver == "{NIC}"'}}]})

    def _taint(self, device: str, taint: Json | None) -> None:
        node, _, name = device.partition("/")
        for entry in self.devices[node]:
            if entry["name"] == name:
                entry["taints"] = [] if taint is None else [{"effect": "NoExecute", **taint}]
        self._generation += 1
        slices = slice_of(node, self.devices[node], counters=self.counters[node], driver=self.driver)
        for body in slices:
            body["spec"]["pool"]["generation"] = self._generation
        self.world.add_slices(slices)

    def _set_queues(self, queues: Json) -> None:
        known = {queue.name: queue for queue in self.world.queues}
        for name, queue in queues.items():
            known[name] = _queue(name, queue or {})
        self.world.queues = tuple(known.values())

    # ------------------------------------------------------------------------------------------------------ the run

    def check(self) -> list[str]:
        self.faults += [f"{fault} is no word of scenarios" for fault in _unknown(self.body)]
        for number, step in enumerate(self.body["steps"]):
            at = f"step {number} (at {step['at']} s)"
            self._happen(step)
            plan = self._decide(at)
            self.faults += [f"{at}: {fault}" for fault in _differences(step, plan)]
            self.faults += [f"{at}: {fault}" for fault in _shares(step, plan)]
            self.gangs = self.world.carry_out(plan, self.gangs)
            self._finish_members()
            again = self._decide(f"{at}, decided again on the outcome")
            if again.admissions or again.evictions:
                self.faults.append(f"{at}: deciding again on the outcome changes something: {_told(again)}")
            # The judge would give no tainted device; whoever had it before the taint is `replace`'s business.
            self.faults += [f"{at}: {fault}" for fault in self.world.faults() if "is not tolerated" not in fault]
            self.faults += [f"{at}: {fault}" for fault in self._held(step, again)]
        return self.faults

    def _happen(self, step: Json) -> None:
        world = self.world
        world.now = float(step["at"])
        if not step.get("stay"):
            self.gangs += world.gone()
        for name in _expand(step.get("end", ())):
            world.end(f"ml/{name}")
        for name in _expand(step.get("withdraw", ())):
            self.gangs = [entry for entry in self.gangs if entry.name != name]
        for device, taint in (step.get("taint") or {}).items():
            self._taint(device, taint)
        for node in step.get("lose", ()):
            world.drop_node(node)
        for node, closed in (step.get("cordon") or {}).items():
            world.cordon(node, closed)
        for name, node in (step.get("add") or {}).items():
            self._add_node(name, node or {})
        self._set_queues(step.get("queues") or {})
        for name, allowed in (step.get("budgets") or {}).items():
            world.budgets = tuple(replace(b, allowed=allowed) if b.name == name else b for b in world.budgets)
        for name, spec in (step.get("submit") or {}).items():
            for number in range(spec.get("count", 1)):
                full = f"{name}{number}" if "count" in spec else name
                self.specs[full] = spec
                self.gangs.append(
                    _gang(full, spec, self.driver, created=float(spec.get("created", step["at"] + number / 1000)))
                )

    def _decide(self, at: str) -> Plan:
        """The plan; also that it is the same to a controller that has just started, and that nothing was touched."""
        world = self.world
        before = (world.inventory.version, world.nodes.changes.cursor)
        plan = world.decide(*self.gangs)
        if (world.inventory.version, world.nodes.changes.cursor) != before:
            self.faults.append(f"{at}: the decision changed its input")
        if world.afresh().decide(*self.gangs) != plan:
            self.faults.append(f"{at}: a controller that has just started decides otherwise")
        if world.decide(*reversed(self.gangs)) != plan:
            self.faults.append(f"{at}: the order in which gangs are handed in matters")
        return plan

    def _finish_members(self) -> None:
        """What admissions do not say of running gangs: their budgets, grace and min-runtime."""
        for key, running in self.world.running.items():
            spec = self.specs[running.name]
            guards = tuple(spec.get("guarded", ()))
            self.world.running[key] = replace(
                running,
                min_runtime_s=spec.get("min_runtime"),
                checkpoint_grace_s=spec.get("grace"),
                members=tuple(replace(member, guarded_by=guards) for member in running.members),
            )

    def _held(self, step: Json, plan: Plan) -> Iterable[str]:
        for queue, flavors in (step.get("held") or {}).items():
            found = {use.flavor: use.used for entry in plan.queues if entry.name == queue for use in entry.flavors}
            for flavor, amount in flavors.items():
                if found.get(flavor, 0) != _amount(amount):
                    yield f"queue {queue} holds {found.get(flavor, 0)} of {flavor}, wanted {amount}"


def _unknown(body: Json) -> Iterable[str]:
    """Words that would be passed over. (`on`, unquoted, is no word but a truth value of YAML.)"""
    yield from (f"{word!r}" for word in body.keys() - _SCENARIO)
    for number, step in enumerate(body["steps"]):
        yield from (f"step {number}: {word!r}" for word in step.keys() - _HAPPENS - _WANTED)
        for name, spec in (step.get("submit") or {}).items():
            yield from (f"step {number}: gang {name}: {word!r}" for word in spec.keys() - _GANG)
        for name, spec in (step.get("evicted") or {}).items():
            yield from (f"step {number}: eviction of {name}: {word!r}" for word in (spec or {}).keys() - _EVICTED)


def _differences(step: Json, plan: Plan) -> Iterable[str]:
    admitted = sorted(entry.name for entry in plan.admissions)
    if admitted != sorted(_expand(step.get("admitted", ()))):
        yield f"admitted {admitted}, wanted {step.get('admitted', [])}; {_told(plan)}"
    evicted: dict[str, dict[str, Any]] = {}
    for entry in plan.evictions:
        known = evicted.setdefault(entry.name, {"pods": 0, "for": set()})
        known["pods"] += len(entry.pods)
        known["for"].add(entry.beneficiary.partition("/")[2])
        known["kind"], known["whole"], known["grace"] = entry.kind, entry.whole, entry.checkpoint_grace_s
    wanted = {name: spec or {} for key, spec in (step.get("evicted") or {}).items() for name in _expand([key])}
    if sorted(evicted) != sorted(wanted):
        yield f"evicted {sorted(evicted)}, wanted {sorted(wanted)}; {_told(plan)}"
    for name, spec in wanted.items():
        for word, value in spec.items():
            got = evicted.get(name, {}).get(word)
            if (value not in got) if word == "for" and got is not None else got != value:
                yield f"eviction of {name}: {word} is {got}, wanted {value}"
    waiting = {entry.name: entry.reason.code.value for entry in plan.waiting}
    expected = {name: code for key, code in (step.get("waiting") or {}).items() for name in _expand([key])}
    if waiting != expected:
        yield f"waiting {waiting}, wanted {expected}; {_told(plan)}"
    reserved = {entry.name: list(entry.nodes) for entry in plan.reservations}
    for name, nodes in (step.get("reserved") or {}).items():
        if reserved.get(name) != nodes:
            yield f"reserved for {name}: {reserved.get(name)}, wanted {nodes}"
    on = {entry.name: sorted({a.node for a in entry.assignments}) for entry in plan.admissions}
    for name, nodes in (step.get("lands") or {}).items():
        if on.get(name) != nodes:
            yield f"{name} runs on {on.get(name)}, wanted {nodes}"
    said = {entry.name: str(entry.reason) for entry in plan.evictions}
    said |= {entry.name: str(entry.reason) for entry in plan.waiting}
    for name, words in (step.get("says") or {}).items():
        if words not in said.get(name, ""):
            yield f"{name} is told {said.get(name)!r}, which lacks {words!r}"
    for problem in step.get("problems", ()):
        if not any(problem in str(found) for found in plan.problems):
            yield f"no problem is told with {problem!r}: {plan.problems}"


def _shares(step: Json, plan: Plan) -> Iterable[str]:
    found = {(entry.name, use.flavor): use for entry in plan.queues for use in entry.flavors}
    for word, what in (("asked", "demand"), ("fair", "fair_share")):
        for queue, flavors in (step.get(word) or {}).items():
            for flavor, amount in flavors.items():
                use = found.get((queue, flavor))
                got = 0 if use is None else getattr(use, what)
                if got != _amount(amount):
                    yield f"queue {queue}: {word} is {got} of {flavor}, wanted {amount}"


def _told(plan: Plan) -> str:
    lines = [f"{entry.name}: {entry.reason}" for entry in plan.evictions]
    lines += [f"{entry.name}: {entry.reason}" for entry in plan.waiting]
    return f"{len(plan.admissions)} admitted; " + " | ".join(lines)[:1500]


def _expand(names_: Iterable[str]) -> list[str]:
    """`b0..b3` is b0, b1, b2, b3."""
    found: list[str] = []
    for name in names_:
        span = re.fullmatch(r"(.*?)(\d+)\.\.\1(\d+)", name)
        if span is None:
            found.append(name)
        else:
            found += [f"{span[1]}{number}" for number in range(int(span[2]), int(span[3]) + 1)]
    return found


# --------------------------------------------------------------------------------------------------- what is written


def _amount(value: Any) -> Any:
    if isinstance(value, str):
        value = Fraction(value) if "/" in value else amount_of(value)
    return int(value) if value is not None and value == int(value) else value


def _quota(flavor: str, body: Json) -> FlavorQuota:
    found = {key: body[key] if key == "weight" else _amount(body[key]) for key in _QUOTA if key in body}
    return FlavorQuota(flavor=flavor, **found)


def _queue(name: str, body: Json) -> QueueSpec:
    rest = {key: value for key, value in body.items() if key not in {*_QUOTA, "flavors", "budget"}}
    if "budget" in body:
        rest["budget"] = _budget(body["budget"])
    if "flavors" in body:
        quotas = tuple(_quota(flavor, quota or {}) for flavor, quota in body["flavors"].items())
    else:
        quotas = (_quota("gpu", body),) if any(key in body for key in _QUOTA) else ()
    return QueueSpec(name=name, quotas=quotas, **rest)


def _budget(body: Json) -> BudgetState:
    limit, spent, rate = (Fraction(str(body.get(key, 0))) for key in ("hours", "spent", "rate"))
    return BudgetState(
        on_exhausted=body.get("then", "stop"),
        limit=limit,
        spent=spent,
        renews_at=float(body.get("renews", 3600)),
        exhausts_at=float((limit - spent) / rate * 3600) if rate else None,
        **({"unit": body["unit"]} if "unit" in body else {}),
    )


def _model(driver: str) -> str:
    return f'device.attributes["{driver}"].productName'


def _flavor(name: str, body: Json, driver: str) -> FlavorSpec:
    kind = f'device.attributes["{driver}"].type'
    selector = f'device.driver == "{driver}"'
    if body.get("any"):
        selector = f'{kind} == "gpu"'
    if body.get("mig"):
        selector = f'{kind} == "mig"'
    if "product" in body:
        selector = f'{_model(driver)} == "{PRODUCTS[body["product"]]}"'
    if "resource" in body:
        labels = tuple(sorted(body.get("labels", {}).items()))
        return FlavorSpec(
            name=name, device_selector="", measure="Resource", resource_name=body["resource"], node_selector=labels
        )
    return FlavorSpec(
        name=name,
        device_selector=body.get("selector", selector).replace(names.DRIVER, driver),
        measure=body.get("measure", "Devices"),
        capacity_name=body.get("capacity"),
    )


def _one(body: Json, driver: str) -> dict[str, Any]:
    """One request: GPUs, of a product perhaps, or a MIG profile."""
    more: dict[str, Any] = {}
    if body.get("tolerate"):
        more["tolerations"] = [{"key": body["tolerate"], "operator": "Exists"}]
    if body.get("admin"):
        more["adminAccess"] = True
    if "mig" in body:
        cel = f'device.attributes["{driver}"].profile == "{body["mig"]}"'
        return device_request(body.get("gpus", 1), device_class=part_class(driver), cel=cel, **more)
    cel = f'{_model(driver)} == "{PRODUCTS[body["product"]]}"' if "product" in body else ""
    return device_request(body.get("gpus", 1), device_class=driver, cel=cel, **more)


def _gang(name: str, body: Json, driver: str, *, created: float) -> GangRequest:
    spec = None
    if body.get("gpus", 1) or "mig" in body:
        wanted = _one(body, driver)
        if "first" in body:
            wanted = {
                "firstAvailable": [
                    {"name": f"s{place}", **_one(sub, driver)} for place, sub in enumerate(body["first"])
                ]
            }
        if body.get("all"):
            del wanted["count"]
            wanted["allocationMode"] = "All"
        more = [_one(more, driver) for more in body.get("also", ())]
        if body.get("nic"):
            spec = claim_spec(wanted, device_request(device_class=NIC), *more, constraints=[{"matchAttribute": ROOT}])
        else:
            spec = claim_spec(wanted, *more)
    cpus = body.get("cpu", 1)
    requests = [{"cpu": str(cpu), **body.get("requests", {})} for cpu in (cpus if isinstance(cpus, list) else [cpus])]
    made = gang(
        name,
        body.get("pods", 1),
        spec,
        pod={"containers": [{"name": "main", "resources": {"requests": requests[0]}}]},
        shared=bool(body.get("shared")),
        queue=body.get("queue"),
        priority=body.get("priority", 0),
        topology=body.get("topology"),
        align=body.get("align"),
        created=created,
        run_s=body.get("runs"),
    )
    if len(requests) > 1:
        needs = [
            PodNeeds(requests=tuple(sorted((key, milli(value)) for key, value in {**each, "pods": 1}.items())))
            for each in requests
        ]
        members = tuple(replace(one, needs=own) for one, own in zip(made.members, needs, strict=True))
        made = replace(made, members=members)
    if "heads" in body:
        made = with_heads(made, body["heads"], cpu=str(body.get("head_cpu", 1)), on=body.get("head_on", {}))
    return replace(made, size=body.get("size", made.size), preempts=body.get("preempts", True))
