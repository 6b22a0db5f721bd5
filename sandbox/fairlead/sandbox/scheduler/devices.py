"""Stock allocation of devices on one node: first fit, request by request, as kube-scheduler does for one pod.

Used for claims that no admission policy keeps for Fairlead. It shares no code with Fairlead's allocator, on purpose: it is
what Fairlead has to live beside. Complete for exact counts, All, firstAvailable, selectors, matchAttribute and
distinctAttribute, taints, counters and admin access. Allocates no device that allows multiple allocations, and does not
wait for binding conditions. Which devices a CEL expression selects is cached per expression and slice version (`Selection`).
Invariants: no counter is overdrawn and no device of `allocated` is used; same input, same answer.
Source: k8s.io/dynamic-resource-allocation/structured, 1.36 (semantics of `Allocate` on one node).
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from fairlead.cel import CompileError, DeviceView, EvaluationError, compile_selector
from fairlead.kube.quantity import Quantity
from fairlead.kube.resource import Device
from fairlead.sandbox.node_fit import untolerated
from fairlead.sandbox.objects import Obj, name_of, spec_of, uid_of
from fairlead.sandbox.scheduler import pools
from fairlead.sandbox.scheduler.pools import Candidate, DeviceKey, Pool

STEPS_MAX: Final = 200_000
RESULTS_MAX: Final = 32

# Does the CEL expression select the device? Raises AllocationError when it cannot be evaluated.
Selects = Callable[[str, Candidate], bool]


class AllocationError(Exception):
    """The pod cannot be scheduled at all until something changes: a selector fails, a class is missing."""


@dataclass(frozen=True, kw_only=True)
class _Request:
    """One request (or alternative of a request) of one claim, with its DeviceClass resolved."""

    claim: int
    label: str  # "main" or "main/sub"
    main: str
    expressions: tuple[str, ...]
    count: int
    every: bool
    admin: bool
    tolerations: tuple[Mapping[str, Any], ...]
    device_class: Obj


@dataclass(kw_only=True)
class _Search:
    pools: Sequence[Pool]
    allocated: Collection[DeviceKey]
    selects: Selects
    constraints: list[list[_Constraint]]
    free: dict[tuple[str, str, str, str], Quantity]
    chosen: list[tuple[_Request, Candidate]] = field(default_factory=list)
    held: set[DeviceKey] = field(default_factory=set)
    steps: int = 0

    def run(self, requests: Sequence[Sequence[_Request]]) -> bool:
        """Satisfy all requests; each is a sequence of alternatives in order of preference."""
        if not requests:
            return True
        return any(self._satisfy(request, requests[1:]) for request in requests[0])

    def _satisfy(self, request: _Request, rest: Sequence[Sequence[_Request]]) -> bool:
        matching = [each for pool in self.pools for each in pool.candidates if self._selected(request, each)]
        if request.every:
            if not matching or len(matching) > RESULTS_MAX or any(not pool.complete for pool in self.pools):
                return False
            return self._pick(request, matching, len(matching), rest, exact=True)
        usable = [each for each in matching if request.admin or each.key not in self.allocated]
        return self._pick(request, usable, request.count, rest, exact=False)

    def _pick(
        self,
        request: _Request,
        from_: Sequence[Candidate],
        left: int,
        rest: Sequence[Sequence[_Request]],
        *,
        exact: bool,
    ) -> bool:
        """Combinations, not permutations: a device that was passed over for this request is not tried for it again."""
        if left == 0:
            return self.run(rest)
        last = 1 if exact else len(from_) - left + 1
        for place in range(max(0, last)):
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise AllocationError(f"timed out trying to allocate devices: gave up after {STEPS_MAX} steps")
            candidate = from_[place]
            if not self._choose(request, candidate):
                continue
            if self._pick(request, from_[place + 1 :], left - 1, rest, exact=exact):
                return True
            self._undo(request, candidate)
        return False

    def _selected(self, request: _Request, candidate: Candidate) -> bool:
        return not candidate.shared and all(self.selects(each, candidate) for each in request.expressions)

    def _choose(self, request: _Request, candidate: Candidate) -> bool:
        if candidate.key in self.held or (not request.admin and candidate.key in self.allocated):
            return False
        if any(untolerated(candidate.device.get("taints") or (), request.tolerations)):
            return False
        if not request.admin and any(self.free.get(key, _ZERO) < used for key, used in candidate.consumes):
            return False
        accepted: list[_Constraint] = []
        for constraint in self.constraints[request.claim]:
            if not constraint.add(request, candidate):
                for each in accepted:
                    each.remove(request, candidate)
                return False
            accepted.append(constraint)
        if not request.admin:
            for key, used in candidate.consumes:
                self.free[key] -= used
        self.held.add(candidate.key)
        self.chosen.append((request, candidate))
        return True

    def _undo(self, request: _Request, candidate: Candidate) -> None:
        self.chosen.pop()
        self.held.discard(candidate.key)
        if not request.admin:
            for key, used in candidate.consumes:
                self.free[key] += used
        for constraint in self.constraints[request.claim]:
            constraint.remove(request, candidate)


_ZERO: Final = Quantity.of(0)


@dataclass(kw_only=True)
class _Constraint:
    """matchAttribute (all values equal) or distinctAttribute (all values different) over some requests of a claim."""

    attribute: str
    distinct: bool
    requests: frozenset[str]
    values: list[Any] = field(default_factory=list)

    def _covers(self, request: _Request) -> bool:
        return not self.requests or request.main in self.requests or request.label in self.requests

    def add(self, request: _Request, candidate: Candidate) -> bool:
        if not self._covers(request):
            return True
        value = candidate.attribute(self.attribute)
        if value is None or (self.values and (value in self.values) == self.distinct):
            return False
        self.values.append(value)
        return True

    def remove(self, request: _Request, candidate: Candidate) -> None:
        if self._covers(request):
            self.values.remove(candidate.attribute(self.attribute))


def allocate(
    claims: Sequence[Obj],
    *,
    node: Obj,
    slices: Iterable[Obj],
    device_class: Callable[[str], Obj | None],
    allocated: Collection[DeviceKey],
    selects: Selects,
    incomplete: bool = False,
) -> tuple[list[Obj], int] | None:
    """One `status.allocation` per claim for this node and the preference score of their alternatives, or None.

    `incomplete`: exact counts take devices of pools of which slices are missing, too.
    Raises AllocationError when the pod as a whole cannot be tried.
    """
    gathered = pools.gather(slices, node, incomplete=incomplete)
    requests = [each for place, claim in enumerate(claims) for each in _requests(place, claim, device_class)]
    search = _Search(
        pools=gathered,
        allocated=allocated,
        selects=selects,
        constraints=[list(_constraints(claim)) for claim in claims],
        free=pools.free_counters(gathered, allocated),
    )
    if not search.run(requests):
        return None
    ranks = {
        id(request): rank
        for alternatives in requests
        for rank, request in enumerate(alternatives)
        if len(alternatives) > 1
    }
    preference = sum(8 - ranks[key] for key in {id(request) for request, _ in search.chosen} if key in ranks)
    return [_allocation(place, claim, search.chosen, node) for place, claim in enumerate(claims)], preference


def _requests(place: int, claim: Obj, device_class: Callable[[str], Obj | None]) -> Iterator[list[_Request]]:
    for request in (spec_of(claim).get("devices") or {}).get("requests") or ():
        main = str(request["name"])
        if request.get("exactly") is not None:
            yield [_request_of(place, claim, main, main, request["exactly"], device_class)]
        else:
            yield [
                _request_of(place, claim, main, f"{main}/{each['name']}", each, device_class)
                for each in request.get("firstAvailable") or ()
            ]


def _request_of(
    place: int, claim: Obj, main: str, label: str, wanted: Mapping[str, Any], device_class: Callable[[str], Obj | None]
) -> _Request:
    class_name = str(wanted.get("deviceClassName"))
    found = device_class(class_name)
    if found is None:
        raise AllocationError(f"claim {name_of(claim)}, request {label}: device class {class_name} does not exist")
    selectors = [*(spec_of(found).get("selectors") or ()), *(wanted.get("selectors") or ())]
    return _Request(
        claim=place,
        label=label,
        main=main,
        expressions=tuple(str(each["cel"]["expression"]) for each in selectors if each.get("cel")),
        count=int(wanted.get("count") or 1),
        every=wanted.get("allocationMode") == "All",
        admin=bool(wanted.get("adminAccess")),
        tolerations=tuple(wanted.get("tolerations") or ()),
        device_class=found,
    )


def _constraints(claim: Obj) -> Iterator[_Constraint]:
    for each in (spec_of(claim).get("devices") or {}).get("constraints") or ():
        requests = frozenset(each.get("requests") or ())
        if each.get("matchAttribute"):
            yield _Constraint(attribute=each["matchAttribute"], distinct=False, requests=requests)
        if each.get("distinctAttribute"):
            yield _Constraint(attribute=each["distinctAttribute"], distinct=True, requests=requests)


def _allocation(place: int, claim: Obj, chosen: Sequence[tuple[_Request, Candidate]], node: Obj) -> Obj:
    own = [(request, candidate) for request, candidate in chosen if request.claim == place]
    results = [_result(request, candidate) for request, candidate in own]
    config: list[Obj] = []
    for request in {id(request): request for request, _ in own}.values():
        config += [
            {"source": "FromClass", "requests": [request.label], **each}
            for each in spec_of(request.device_class).get("config") or ()
        ]
    config += [{"source": "FromClaim", **each} for each in (spec_of(claim).get("devices") or {}).get("config") or ()]
    devices: Obj = {"results": results}
    if config:
        devices["config"] = config
    allocation: Obj = {"devices": devices}
    selector = pools.node_selector([candidate for _, candidate in own], name_of(node))
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _result(request: _Request, candidate: Candidate) -> Obj:
    driver, pool, device = candidate.key
    result: Obj = {"request": request.label, "driver": driver, "pool": pool, "device": device}
    if request.admin:
        result["adminAccess"] = True
    if request.tolerations:
        result["tolerations"] = [dict(each) for each in request.tolerations]
    for field_ in ("bindingConditions", "bindingFailureConditions"):
        if candidate.device.get(field_):
            result[field_] = list(candidate.device[field_])
    return result


SLICES_MAX = 20_000


class Selection:
    def __init__(self) -> None:
        self._answers: collections.OrderedDict[tuple[str, str], dict[tuple[str, str], bool]] = collections.OrderedDict()
        self._views: dict[tuple[str, str], dict[str, DeviceView]] = {}

    def __call__(self, expression: str, candidate: Candidate) -> bool:
        version = (uid_of(candidate.slice), str(candidate.slice["metadata"].get("resourceVersion", "")))
        answers = self._answers.get(version)
        if answers is None:
            answers = self._answers[version] = {}
            self._views[version] = {}
            while len(self._answers) > SLICES_MAX:
                oldest, _ = self._answers.popitem(last=False)
                del self._views[oldest]
        question = (expression, candidate.key[2])
        known = answers.get(question)
        if known is None:
            known = answers[question] = self._ask(expression, candidate, self._views[version])
        return known

    def _ask(self, expression: str, candidate: Candidate, views: dict[str, DeviceView]) -> bool:
        driver, pool, name = candidate.key
        try:
            view = views.get(name)
            if view is None:
                view = views[name] = DeviceView.of(driver, msgspec.convert(candidate.device, Device))
            return compile_selector(expression).matches(view)
        except (CompileError, EvaluationError) as error:
            raise AllocationError(f"device {driver}/{pool}/{name}: selector {expression!r}: {error}") from error
