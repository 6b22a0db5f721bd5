"""Is an allocation valid? A check that shares no code with the allocator.

Conformance and property tests pass it the raw JSON of a case and of an allocation; it returns what is wrong, as sentences. It
works from the API's documentation, slowly and plainly; it does not search, so it cannot say whether an answer exists. Only CEL and quantities are shared (they have judges of their own).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import combinations
from typing import Any

import msgspec

from fairlead.cel import DeviceView, EvaluationError, compile_selector
from fairlead.kube.quantity import Quantity
from fairlead.kube.resource import Device

Json = Mapping[str, Any]
Id = tuple[str, str, str]


def is_made(device: Json) -> bool:
    """Whether it is there only while a claim has it."""
    return device.get("attributes", {}).get("type", {}).get("string") == "mig" and bool(device.get("consumesCounters"))


def number(value: str | int) -> Fraction:
    quantity = Quantity.of(value)
    return quantity.digits * Fraction(10) ** quantity.scale


def faults(
    *,
    nodes: Iterable[Json],
    classes: Iterable[Json],
    slices: Iterable[Json],
    answers: Iterable[tuple[Json, str, Json]],
    allocated: Iterable[Json] = (),
    consumed: Iterable[Json] = (),
    together: bool = True,
) -> list[str]:
    """Everything wrong with `answers`: (claim, node name, allocation), given what was taken before. [] is valid.

    `together` False: they were not given at one time, so `All` may lack shared devices that were full at its time.
    """
    judge = Judge(list(nodes), list(classes), list(slices), list(allocated), list(consumed))
    judge.together = together
    for claim, node, allocation in answers:
        judge.claim(claim, node, allocation)
    judge.totals()
    return judge.found


class Judge:
    def __init__(
        self, nodes: list[Json], classes: list[Json], slices: list[Json], allocated: list[Json], consumed: list[Json]
    ) -> None:
        self.found: list[str] = []
        self.together = True
        self.nodes = {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in nodes}
        self.classes = {entry["metadata"]["name"]: entry.get("spec", {}) for entry in classes}
        self.devices: dict[Id, tuple[Json, Json]] = {}
        self.totals_of: dict[tuple[str, str, str, str], Fraction] = {}
        self.unusable: set[Id] = set()
        self._pools(slices)
        self.before = {_id(entry) for entry in allocated}
        self.shared_before: dict[tuple[Id, str], Fraction] = {}
        for entry in consumed:
            for name, value in entry["capacity"].items():
                key = (_id(entry), name)
                self.shared_before[key] = self.shared_before.get(key, Fraction(0)) + number(value)
        self.drawn_before = self.before | {_id(entry) for entry in consumed}
        self.holders: dict[Id, list[str]] = {}
        self.drawn: set[Id] = set()
        self.used: dict[tuple[Id, str], Fraction] = {}
        self.share_ids: set[str] = set()

    def _pools(self, slices: list[Json]) -> None:
        pools: dict[tuple[str, str], list[Json]] = {}
        for entry in slices:
            pools.setdefault((entry["spec"]["driver"], entry["spec"]["pool"]["name"]), []).append(entry["spec"])
        for (driver, pool), specs in pools.items():
            newest = max(spec["pool"].get("generation", 0) for spec in specs)
            current = [spec for spec in specs if spec["pool"].get("generation", 0) == newest]
            names = [device["name"] for spec in current for device in spec.get("devices", ())]
            whole = all(spec["pool"]["resourceSliceCount"] == len(current) for spec in current)
            for spec in current:
                for counters in spec.get("sharedCounters", ()):
                    for name, counter in counters["counters"].items():
                        self.totals_of[driver, pool, counters["name"], name] = number(counter["value"])
                for device in spec.get("devices", ()):
                    key = (driver, pool, device["name"])
                    self.devices[key] = (device, spec)
                    if not whole or len(names) != len(set(names)):
                        self.unusable.add(key)

    # ------------------------------------------------------------------------------------------------- one claim

    def claim(self, claim: Json, node: str, allocation: Json) -> None:
        name = claim["metadata"]["name"]
        spec = claim["spec"].get("devices", {})
        results = list(allocation.get("devices", {}).get("results", ()))
        if len(results) > 32:
            self.found.append(f"{name}: {len(results)} results, 32 are allowed")
        by_request: dict[str, list[Json]] = {}
        for result in results:
            by_request.setdefault(result["request"], []).append(result)
        asked: dict[str, Json] = {}
        for request in spec.get("requests", ()):
            asked |= self._request(name, request, by_request)
        for unknown in by_request.keys() - asked.keys():
            self.found.append(f"{name}: results for {unknown}, which was not asked")
        for result in results:
            if result["request"] in asked:
                self._result(name, node, asked[result["request"]], result)
        for request, ask in asked.items():
            if ask.get("allocationMode") == "All":
                self._all(name, node, request, ask, by_request.get(request, []))
        self._no_device_twice(name, results)
        for constraint in spec.get("constraints", ()):
            self._constraint(name, constraint, results)
        self._selector(name, node, allocation)

    def _request(self, claim: str, request: Json, by_request: Mapping[str, list[Json]]) -> dict[str, Json]:
        if "exactly" in request:
            ask = request["exactly"]
            self._count(claim, request["name"], ask, by_request.get(request["name"], []))
            return {request["name"]: ask}
        chosen = [sub for sub in request["firstAvailable"] if f"{request['name']}/{sub['name']}" in by_request]
        if len(chosen) != 1:
            self.found.append(f"{claim}: {len(chosen)} alternatives of request {request['name']} were used, not one")
            return {f"{request['name']}/{sub['name']}": sub for sub in chosen}
        full = f"{request['name']}/{chosen[0]['name']}"
        self._count(claim, full, chosen[0], by_request[full])
        return {full: chosen[0]}

    def _count(self, claim: str, request: str, ask: Json, results: list[Json]) -> None:
        if ask.get("allocationMode", "ExactCount") == "ExactCount" and len(results) != ask.get("count", 1):
            self.found.append(f"{claim}: request {request} wants {ask.get('count', 1)}, got {len(results)}")

    def _result(self, claim: str, node: str, ask: Json, result: Json) -> None:
        key = _id(result)
        where = f"{claim}: {'/'.join(key)} for request {result['request']}"
        if key not in self.devices or key in self.unusable:
            self.found.append(f"{where}: not a device of a valid pool")
            return
        device, spec = self.devices[key]
        if not self.reaches(spec, device, node):
            self.found.append(f"{where}: not reachable from {node}")
        if not self.selected(ask, key):
            self.found.append(f"{where}: not selected")
        for taint in device.get("taints", ()):
            if taint["effect"] in {"NoSchedule", "NoExecute"} and not tolerated(taint, ask.get("tolerations", ())):
                self.found.append(f"{where}: taint {taint['key']} is not tolerated")
        admin = bool(ask.get("adminAccess"))
        if bool(result.get("adminAccess")) != admin:
            self.found.append(f"{where}: adminAccess is {result.get('adminAccess')}, asked {admin}")
        if not admin:
            self.holders.setdefault(key, []).append(claim)
            self.drawn.add(key)
        self._capacity(where, ask, device, key, result, admin=admin)

    def _capacity(self, where: str, ask: Json, device: Json, key: Id, result: Json, *, admin: bool) -> None:
        expected = consumption(ask, device)
        if expected is None:
            self.found.append(f"{where}: too small for the capacity asked")
            return
        if not device.get("allowMultipleAllocations"):
            if result.get("shareID") or result.get("consumedCapacity"):
                self.found.append(f"{where}: an exclusive device has no shares")
            return
        share = result.get("shareID")
        if not share or share in self.share_ids:
            self.found.append(f"{where}: share ID {share!r} is missing or used twice")
        self.share_ids.add(str(share))
        got = {name: number(value) for name, value in result.get("consumedCapacity", {}).items()}
        if got != expected:
            self.found.append(f"{where}: consumes {got}, the policy says {expected}")
        for name, value in got.items() if not admin else ():
            self.used[key, name] = self.used.get((key, name), Fraction(0)) + value

    def _all(self, claim: str, node: str, request: str, ask: Json, results: list[Json]) -> None:
        wanted: set[Id] = set()
        got = {_id(result) for result in results}
        for key, (device, spec) in self.devices.items():
            if key in self.unusable or not self.reaches(spec, device, node) or not self.selected(ask, key):
                continue
            takes = consumption(ask, device)
            if takes is None:
                continue
            if device.get("allowMultipleAllocations") and any(
                self.shared_before.get((key, name), 0) + value > number(device["capacity"][name]["value"])
                for name, value in takes.items()
            ):
                continue
            if ask.get("adminAccess") and is_made(device) and key not in got:
                continue  # it exists only while a claim has it
            if self.together or key in got or not device.get("allowMultipleAllocations"):
                wanted.add(key)
        if got != wanted or not wanted:
            self.found.append(f"{claim}: request {request} wants all of {sorted(wanted)}, got {len(results)}")

    def _no_device_twice(self, claim: str, results: list[Json]) -> None:
        exclusive = Counter(
            _id(result)
            for result in results
            if not self.devices.get(_id(result), ({}, {}))[0].get("allowMultipleAllocations")
        )
        per_request = Counter((_id(result), result["request"]) for result in results)
        self.found += [f"{claim}: {'/'.join(key)} {times} times" for key, times in exclusive.items() if times > 1]
        self.found += [
            f"{claim}: {key} {times} times in one request" for key, times in per_request.items() if times > 1
        ]

    def _constraint(self, claim: str, constraint: Json, results: list[Json]) -> None:
        names = set(constraint.get("requests", ()))
        over = [
            result
            for result in results
            if not names or result["request"] in names or result["request"].partition("/")[0] in names
        ]
        for kind in ("matchAttribute", "distinctAttribute"):
            if kind not in constraint:
                continue
            values = [self.values(_id(result), constraint[kind]) for result in over]
            if not all(values):
                self.found.append(f"{claim}: {kind} {constraint[kind]}: a device lacks it")
            elif kind == "matchAttribute" and values and not frozenset.intersection(*values):
                self.found.append(f"{claim}: matchAttribute {constraint[kind]}: {values}")
            elif kind == "distinctAttribute" and any(one & other for one, other in combinations(values, 2)):
                self.found.append(f"{claim}: distinctAttribute {constraint[kind]}: {values}")

    def values(self, key: Id, name: str) -> frozenset[tuple[str, Any]]:
        """The typed values of an attribute: several of a list, none where the device lacks it."""
        domain, _, plain = name.rpartition("/")
        attributes = self.devices.get(key, ({}, {}))[0].get("attributes", {})
        value = attributes.get(name, attributes.get(plain) if domain == key[0] else None)
        if value is None:
            return frozenset()
        (kind, one_or_many), *_ = value.items()
        many = one_or_many if isinstance(one_or_many, list) else [one_or_many]
        return frozenset((kind.removesuffix("s"), one) for one in many)

    def _selector(self, claim: str, node: str, allocation: Json) -> None:
        selector = allocation.get("nodeSelector")
        if selector is not None and not _node_matches(selector, node, self.nodes[node]):
            self.found.append(f"{claim}: its node selector does not allow {node}")
        local = any(
            self.devices[_id(result)][1].get("nodeName")
            for result in allocation.get("devices", {}).get("results", ())
            if _id(result) in self.devices
        )
        if local and (selector is None or _node_matches(selector, f"other-{node}", self.nodes[node])):
            self.found.append(f"{claim}: has devices of {node} and a node selector that allows other nodes")

    # ------------------------------------------------------------------------------------------------ all claims

    def totals(self) -> None:
        """Exclusive devices once, counters and shared capacity within their totals, over everything that is held."""
        for key, claims in self.holders.items():
            device = self.devices[key][0]
            if not device.get("allowMultipleAllocations") and (len(claims) > 1 or key in self.before):
                self.found.append(
                    f"{'/'.join(key)} is in {claims}{' and was taken before' if key in self.before else ''}"
                )
        for (key, name), value in self.used.items():
            total = number(self.devices[key][0]["capacity"][name]["value"])
            if value + self.shared_before.get((key, name), 0) > total:
                self.found.append(f"{'/'.join(key)}: {name} is overdrawn: {value} of {total}")
        drawn: dict[tuple[str, str, str, str], Fraction] = {}
        for key in self.drawn | self.drawn_before:
            for entry in self.devices.get(key, ({}, {}))[0].get("consumesCounters", ()):
                for name, counter in entry["counters"].items():
                    at = (key[0], key[1], entry["counterSet"], name)
                    drawn[at] = drawn.get(at, Fraction(0)) + number(counter["value"])
        touched = {(key[0], key[1]) for key in self.drawn}
        for at, value in drawn.items():
            if value > self.totals_of.get(at, Fraction(0)) and at[:2] in touched:
                self.found.append(f"counter {'/'.join(at)} is overdrawn: {value} of {self.totals_of.get(at)}")

    # ---------------------------------------------------------------------------------------------------- helpers

    def reaches(self, spec: Json, device: Json, node: str) -> bool:
        where = device if spec.get("perDeviceNodeSelection") else spec
        if where.get("nodeName"):
            return bool(where["nodeName"] == node)
        if where.get("allNodes"):
            return True
        return "nodeSelector" in where and _node_matches(where["nodeSelector"], node, self.nodes[node])

    def selected(self, ask: Json, key: Id) -> bool:
        view = DeviceView.of(key[0], msgspec.convert(self.devices[key][0], Device))
        selectors = [*self.classes[ask["deviceClassName"]].get("selectors", ()), *ask.get("selectors", ())]
        try:
            return all(compile_selector(selector["cel"]["expression"]).matches(view) for selector in selectors)
        except EvaluationError:
            return False


def _id(entry: Json) -> Id:
    return (entry["driver"], entry["pool"], entry["device"])


def tolerated(taint: Json, tolerations: Iterable[Json]) -> bool:
    return any(
        toleration.get("effect", "") in {"", taint["effect"]}
        and (
            (toleration.get("operator") == "Exists" and toleration.get("key", "") in {"", taint["key"]})
            or (
                toleration.get("operator", "Equal") == "Equal"
                and toleration.get("key", "") == taint["key"]
                and toleration.get("value", "") == taint.get("value", "")
            )
        )
        for toleration in tolerations
    )


def consumption(ask: Json, device: Json) -> dict[str, Fraction] | None:
    """What the request takes of each capacity; {} of an exclusive device; None when it does not fit."""
    asked = {name: number(value) for name, value in ask.get("capacity", {}).get("requests", {}).items()}
    capacity = device.get("capacity", {})
    if asked.keys() - capacity.keys():
        return None
    taken: dict[str, Fraction] = {}
    for name, entry in capacity.items():
        total, policy, wanted = number(entry["value"]), entry.get("requestPolicy", {}), asked.get(name)
        if wanted is not None and wanted > total:
            return None
        if wanted is None:
            value = number(policy["default"]) if "default" in policy else total
        elif "validValues" in policy:
            options = [number(option) for option in policy["validValues"] if number(option) >= wanted]
            if not options:
                return None
            value = min(options)
        elif "validRange" in policy:
            rules = policy["validRange"]
            value = max(wanted, number(rules.get("min", 0)))
            if "step" in rules:
                step, low = number(rules["step"]), number(rules.get("min", 0))
                steps = (value - low) / step
                value = low + step * -(-steps.numerator // steps.denominator)
            if "max" in rules and value > number(rules["max"]):
                return None
        else:
            value = wanted
        if value > total:
            return None
        taken[name] = value
    return taken if device.get("allowMultipleAllocations") else {}


def _node_matches(selector: Json, node: str, labels: Mapping[str, str]) -> bool:
    def holds(rule: Json, value: str | None) -> bool:
        match rule["operator"]:
            case "In":
                return value in rule["values"]
            case "NotIn":
                return value not in rule["values"]
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt":
                return value is not None and int(value) > int(rule["values"][0])
            case "Lt":
                return value is not None and int(value) < int(rule["values"][0])
        return False

    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(holds(rule, labels.get(rule["key"])) for rule in term.get("matchExpressions", ()))
        and all(holds(rule, node) for rule in term.get("matchFields", ()))
        for term in selector["nodeSelectorTerms"]
    )
