"""False versions of a true certificate: each changes one thing, so that what it then says is not true of the facts.

A change that leaves a true statement is no tampering, and none of these is one: numbers are exact, every node and device is
listed once, and names are replaced by names that the facts themselves show to be wrong (looked up here in the raw objects,
not by the verifier). A certificate's digest is the command line's to compare.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any

from fairlead.evidence.document import Facts

Json = Any
NOBODY = "nobody/nothing"


def tampered(certificate: Json, facts: Facts, random: Random, most: int) -> Iterator[tuple[str, Json]]:
    """Up to so many, drawn: what was changed, and the whole certificate with that."""
    every = list(_changes(certificate, facts))
    for name, change in random.sample(every, min(most, len(every))):
        false = copy.deepcopy(certificate)
        change(false)
        yield name, false


def _changes(certificate: Json, facts: Facts) -> Iterator[tuple[str, Any]]:
    yield "another version", _set(["version"], 2)
    yield "another UID", _set(["uid"], "uid-of-nobody")
    others = [gang.id for gang in facts.gangs if gang.id != certificate["gang"]]
    yield "another gang", _set(["gang"], others[0] if others else NOBODY)
    for number in range(len(certificate["given"])):
        yield "given to another gang", _set(["given", number, "gang"], NOBODY)
        yield "given to itself", _set(["given", number, "gang"], certificate["gang"])
        yield "given in another role", _set(["given", number, "role"], "Wished")
    if certificate["given"] and "GivenAway" in str(certificate["because"]):
        yield "no premises", _set(["given"], [])
    yield from _because(certificate["because"], ["because"], facts)


def _because(said: Json, path: list[Any], facts: Facts) -> Iterator[tuple[str, Any]]:
    match said["kind"]:
        case "Place":
            yield from _place(said, path, facts)
        case "Behind":
            yield "another head", _set([*path, "head"], NOBODY)
            yield "another queue", _set([*path, "queue"], "nothing")
            yield from _because(said["because"], [*path, "because"], facts)
        case "Gathering" | "Quota":
            yield from _numbers(said, path)
            if said["kind"] == "Quota":
                yield "another quota", _set([*path, "quota"], "nothing")
                yield "another resource", _set([*path, "resource"], "nothing")
        case "Limit":
            for name in ("used", "charge", "limit"):
                for more in (1, -1):
                    yield f"{name} {more:+}", _set([*path, name], str(Fraction(said[name]) + more))
            yield "another flavor", _set([*path, "flavor"], "nothing")
            yield "another bound", _set([*path, "bound"], "deserved")
            for queue in _not_above(said["queue"], facts):
                yield "another queue", _set([*path, "queue"], queue)
        case "QueueRefuses":
            faults = {"Unknown", "NotLeaf", "Namespace", "None", ""} - {said["fault"]}
            yield from (("another fault", _set([*path, "fault"], fault)) for fault in sorted(faults))
            yield "another queue", _set([*path, "queue"], "nothing")
        case "Invalid":
            yield "another field", _set([*path, "field"], "requests[31].count")
            yield "another claim", _set([*path, "claim"], NOBODY)
        case "ClaimTaken":
            yield "another claim", _set([*path, "claim"], NOBODY)
            yield "another taker", _set([*path, "gang"], NOBODY)


def _place(said: Json, path: list[Any], facts: Facts) -> Iterator[tuple[str, Any]]:
    for number in range(len(said["units"])):
        for more in (1, -1):
            yield "units wanted", _add([*path, "units", number], more)
    for number, node in enumerate(said["nodes"]):
        own = [*path, "nodes", number]
        yield "a node dropped", _drop(own)
        yield "a node twice", _twice(own)
        yield "another node", _set([*own, "node"], "no-node")
        for kind in range(len(node["most"])):
            for more in (1, -1):
                yield "most of a node", _add([*own, "most", kind], more)
        if any(most < wanted for most, wanted in zip(node["most"], said["units"], strict=True)):
            yield "no reasons", _set([*own, "because"], [])
        for place, bound in enumerate(node["because"]):
            yield from _bound(bound, [*own, "because", place], node["node"], facts)
    for number, domain in enumerate(said["domains"]):
        own = [*path, "domains", number]
        yield "a domain dropped", _drop(own)
        yield "another domain", _set([*own, "domain"], "no-domain")
        for kind in range(len(domain["most"])):
            for more in (1, -1):
                yield "most of a domain", _add([*own, "most", kind], more)
        if domain["because"] is not None:
            yield from _devices(domain["because"], [*own, "because"], facts)


def _bound(said: Json, path: list[Any], node: str, facts: Facts) -> Iterator[tuple[str, Any]]:
    match said["kind"]:
        case "Refused":
            yield "another kind of unit", _set([*path, "unit"], 99)
            yield "another pod", _set([*path, "pod"], 99)
            yield "another taint", _set([*path, "what"], "no-such-thing")
            info = next(each for each in facts.nodes if each.metadata.name == node)
            if not any(condition.type == "Ready" for condition in info.status.conditions):
                yield "not ready, but it is", _set_all(path, {"by": "NotReady", "what": ""})
            if not info.spec.unschedulable:
                yield "cordoned, but it is not", _set_all(path, {"by": "Unschedulable", "what": ""})
        case "Room":
            for more in (1, -1):
                yield "left", _add([*path, "left"], more)
                for number in range(len(said["wants"])):
                    yield "wants", _add([*path, "wants", number], more)
            yield "another resource", _set([*path, "resource"], "example.com/nothing")
        case "Devices":
            yield from _devices(said, path, facts)


def _devices(said: Json, path: list[Any], facts: Facts) -> Iterator[tuple[str, Any]]:
    holders: dict[tuple[str, str, str], set[str]] = {}
    for claim in facts.claims:
        for item in claim.status.allocation.devices.results if claim.status.allocation else ():
            holders.setdefault((item.driver, item.pool, item.device), set()).add(claim.metadata.key)
    everyone = sorted({key for keys in holders.values() for key in keys})
    for number, device in enumerate(said["free"]):
        own = [*path, "free", number]
        yield "a free device dropped", _drop(own)
        yield "a free device twice", _twice(own)
        stranger = next((key for key in everyone if key not in holders.get(tuple(device), ())), NOBODY)
        held = {"kind": "Held", "device": device, "claim": stranger}
        yield "a free device held", _move(own, [*path, "ruledOut"], held)
    for number, each in enumerate(said["ruledOut"]):
        own, device = [*path, "ruledOut", number], tuple(each["device"])
        yield "a device dropped", _drop(own)
        yield "a device twice", _twice(own)
        yield "another device", _set([*own, "device"], [*device[:2], "no-device"])
        yield "a device free", _move(own, [*path, "free"], list(device))
        stranger = next((key for key in everyone if key not in holders.get(device, ())), NOBODY)
        if each["kind"] == "Held":
            yield "another claim", _set([*own, "claim"], stranger)
        else:
            held = {"kind": "Held", "device": list(device), "claim": stranger}
            yield "held, but it is not", _set(own, held)
        if each["kind"] == "GivenAway":
            yield "another gang", _set([*own, "gang"], NOBODY)
        if each["kind"] == "Counter":
            yield "another counter", _set([*own, "counter"], "no-counter")
            for name in ("left", "needs"):
                for more in (1, -1):
                    yield name, _set([*own, name], str(Fraction(each[name]) + more))
        if each["kind"] == "Filtered" and each["by"]:
            yield "another filter", _set([*own, "by", 0], "colour")
            yield "a filter less", _drop([*own, "by", 0])


def _not_above(queue: str, facts: Facts) -> Iterator[str]:
    """Queues that are neither this one nor above or below it."""
    parents = {each["metadata"]["name"]: each["spec"].get("parent") for each in facts.queues}

    def above(name: str | None) -> set[str]:
        found: set[str] = set()
        while name is not None and name in parents and name not in found:
            found.add(name)
            name = parents[name]
        return found

    yield from (name for name in parents if queue not in above(name) and name not in above(queue))


# -- changes of JSON in place ----------------------------------------------------------------------------------------


def _at(root: Json, path: list[Any]) -> Json:
    for step in path:
        root = root[step]
    return root


def _set(path: list[Any], value: Any) -> Any:
    return lambda root: _at(root, path[:-1]).__setitem__(path[-1], value)


def _set_all(path: list[Any], values: dict[str, Any]) -> Any:
    return lambda root: _at(root, path).update(values)


def _add(path: list[Any], more: int) -> Any:
    return lambda root: _at(root, path[:-1]).__setitem__(path[-1], _at(root, path) + more)


def _drop(path: list[Any]) -> Any:
    return lambda root: _at(root, path[:-1]).pop(path[-1])


def _twice(path: list[Any]) -> Any:
    return lambda root: _at(root, path[:-1]).append(copy.deepcopy(_at(root, path)))


def _move(path: list[Any], to: list[Any], value: Any) -> Any:
    def change(root: Json) -> None:
        _at(root, path[:-1]).pop(path[-1])
        _at(root, to).append(value)

    return change


def _numbers(said: Json, path: list[Any]) -> Iterator[tuple[str, Any]]:
    for name, value in said.items():
        if isinstance(value, int):
            for more in (1, -1):
                yield f"{name} {more:+}", _add([*path, name], more)
