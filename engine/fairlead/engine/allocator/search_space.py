"""What one search starts from: per request its candidates in order, which devices are interchangeable, quick refusals; and its constraints.

Interchangeable are devices that are candidates for the same requests, with the same values of the constrained attributes, the
same counter consumption in the same pool, and the same use. The search tries one of them per position: that makes the case of
n alike devices linear. `refusal` answers what no order of trying can satisfy, before the first try. The search undoes what it takes.
Constraints are matchAttribute, distinctAttribute and the alignment of the claim's gang. They grow and shrink with the search; `add` then
`remove` of the same device leaves no trace (upstream leaked here, k/k#140436, and forgot values of distinctAttribute within one request).
An attribute's value is compared with its type: the version "1.0.0" is not the string "1.0.0". List attributes match when some value is
common to all devices, and are distinct when no value is common to any two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairlead.api import names
from fairlead.engine.allocator.candidates import Candidates
from fairlead.engine.allocator.requests import RESULTS_MAX, CompiledClaim, CompiledRequest
from fairlead.engine.allocator.result import ClaimCandidates, SearchResult, SearchStatus
from fairlead.engine.inventory.device import Device, Value, Values
from fairlead.engine.inventory.ledger import Ledger


class Constraint:
    __slots__ = ("_common", "_seen", "_values", "attribute", "distinct", "requests")

    def __init__(self, attribute: str, *, distinct: bool, requests: frozenset[str]) -> None:
        self.attribute = attribute
        self.distinct = distinct
        self.requests = requests  # "req" or "req/sub"; empty: all
        self._common: list[frozenset[Value]] = []  # match: what all devices so far share, one entry per device
        self._seen: set[Value] = set()  # distinct: the values taken
        self._values: dict[Device, frozenset[Value]] = {}  # a search adds the same devices over and over

    def covers(self, request: str, sub: str) -> bool:
        """Whether it constrains devices of this request; `sub` is "req/sub", or the request's name again."""
        return not self.requests or request in self.requests or sub in self.requests

    def add(self, device: Device) -> bool:
        """Add the device; False, and nothing changes, when it breaks the constraint."""
        values = self._values.get(device)
        if values is None:
            values = self._values[device] = device.values(self.attribute)
        if not values:
            return False
        if self.distinct:
            if not self._seen.isdisjoint(values):
                return False
            self._seen |= values
            return True
        common = values & self._common[-1] if self._common else values
        if not common:
            return False
        self._common.append(common)
        return True

    def remove(self, device: Device) -> None:
        if self.distinct:
            self._seen -= self._values[device]
        else:
            self._common.pop()

    @property
    def name(self) -> str:
        """As a claim's author knows it."""
        return f"{'distinctAttribute' if self.distinct else 'matchAttribute'} {self.attribute}"

    @property
    def complete(self) -> bool:
        return True

    def required(self) -> frozenset[Value] | None:
        """The values of which the next device must have one; None when any device does."""
        return self._common[-1] if self._common and not self.distinct else None


class Counts:
    """What one request is held to: exactly so many devices with each of these values of an attribute."""

    __slots__ = ("_left", "attribute", "counts", "request")

    def __init__(self, request: str, attribute: str, counts: Iterable[tuple[Values, int]]) -> None:
        self.request = request
        self.attribute = attribute
        self.counts = dict(counts)
        self._left = dict(self.counts)

    @property
    def name(self) -> str:
        return f"{names.ALIGN} {self.attribute}"

    @property
    def complete(self) -> bool:
        """Whether the devices so far are all of them."""
        return not any(self._left.values())

    def covers(self, request: str, sub: str) -> bool:
        return request == self.request

    def add(self, device: Device) -> bool:
        """Add the device; False, and nothing changes, when there are enough with its values."""
        values = device.values(self.attribute)
        left = self._left.get(values, 0)
        if not left:
            return False
        self._left[values] = left - 1
        return True

    def remove(self, device: Device) -> None:
        self._left[device.values(self.attribute)] += 1


def add_all(constraints: Sequence[Constraint | Counts], device: Device) -> bool:
    """Add the device to every constraint, or to none."""
    for number, constraint in enumerate(constraints):
        if not constraint.add(device):
            for earlier in reversed(constraints[:number]):
                earlier.remove(device)
            return False
    return True


# A request of one of the claims: the claim's index, and the alternative.
Key = tuple[int, "CompiledRequest"]


class SearchSpace:
    """`slots` are the requests of all claims, as (claim, request) indexes; `alternatives` are beside them."""

    def __init__(
        self,
        claims: Sequence[ClaimCandidates],
        ledger: Ledger,
        *,
        by_preference: bool = True,
        chosen: Sequence[Mapping[str, CompiledRequest]] | None = None,
    ) -> None:
        """`chosen` fixes, per claim, the alternative of each request."""
        self.claims = claims
        self.ledger = ledger
        self.slots = [
            (claim, request)
            for claim, candidates in enumerate(claims)
            for request in range(len(candidates.claim.alternatives))
        ]
        self.alternatives = [self._alternatives(claim, request, chosen) for claim, request in self.slots]
        self.constraints = [_constraints(candidates.claim) for candidates in claims]
        self.candidates: dict[Key, Candidates] = {}
        self.order: dict[Key, Sequence[Device]] = {}  # the devices to try
        keys_of: dict[Device, list[Key]] = {}
        for (claim, _), alternatives in zip(self.slots, self.alternatives, strict=True):
            for request in alternatives:
                key = (claim, request)
                found = self.candidates[key] = claims[claim].candidates(request)
                self.order[key] = self._order(claim, request, found, by_preference=by_preference)
                for device in found.devices:
                    keys_of.setdefault(device, []).append(key)
        attributes = sorted({each.attribute for constraints in self.constraints for each in constraints})
        numbers: dict[object, int] = {}
        self.signatures: dict[Device, int] = {}  # equal for devices that are interchangeable before the search
        for device, keys in keys_of.items():
            self.signatures[device] = numbers.setdefault(self._signature(device, keys, attributes), len(numbers))
        self.size = sum(len(found.devices) for found in self.candidates.values())  # pairs of a request and a device

    def _alternatives(
        self, claim: int, request: int, chosen: Sequence[Mapping[str, CompiledRequest]] | None
    ) -> tuple[CompiledRequest, ...]:
        alternatives = self.claims[claim].claim.alternatives[request]
        if chosen is None:
            return alternatives
        return tuple(each for each in alternatives if chosen[claim].get(each.request) is each)

    def _order(
        self, claim: int, request: CompiledRequest, found: Candidates, *, by_preference: bool
    ) -> Sequence[Device]:
        if request.all or request.admin:
            # Shared devices without room for one more such request are not part of `All`, and not to be seen by admin access.
            there = found.devices if not request.admin else filter(self.ledger.exists, found.devices)
            return [device for device in there if self._capacity_fits(device, found)]
        ordered = self.claims[claim].prefer(request, found) if by_preference else found.devices
        return [device for device in ordered if self._usable(device, found)]

    def _signature(self, device: Device, keys: Sequence[Key], attributes: Sequence[str]) -> object:
        return (
            tuple(keys),
            tuple(device.values(attribute) for attribute in attributes),
            (device.pool, device.counter_consumption) if device.counter_consumption else None,
            self.ledger.free(device),
            (tuple(sorted(device.kind.totals.items())), device.use) if device.shared else None,
        )

    def _capacity_fits(self, device: Device, found: Candidates) -> bool:
        return not device.shared or self.ledger.capacity_fits(device, found.consumption[device])

    def _usable(self, device: Device, found: Candidates) -> bool:
        return self.ledger.free(device) and self.ledger.counters_fit(device) and self._capacity_fits(device, found)

    # ------------------------------------------------------------------------------------------------- refusals

    def refusal(self) -> SearchResult | None:
        """IMPOSSIBLE where a request has no alternative that fits even alone, or a constraint can't be met."""
        for (claim, _), alternatives in zip(self.slots, self.alternatives, strict=True):
            if not any(self._possible(claim, request) for request in alternatives):
                request = alternatives[0]
                found = self.candidates[claim, request]
                if request.all:
                    detail = self.all_problem(claim, request) or ""
                else:
                    detail = found.errors[0][1] if found.errors else ""
                return SearchResult(
                    SearchStatus.IMPOSSIBLE, short=request, picked=len(self.order[claim, request]), detail=detail
                )
        for claim, constraints in enumerate(self.constraints):
            for constraint in constraints:
                if not self._satisfiable(claim, constraint):
                    return SearchResult(
                        SearchStatus.IMPOSSIBLE,
                        short=self.alternatives[self.slots.index((claim, 0))][0],
                        detail=f"no devices that are free satisfy {constraint.name}",
                    )
        return None

    def all_problem(self, claim: int, request: CompiledRequest) -> str | None:
        """Why a request for `All` can't be served; None when it can."""
        found, wanted = self.candidates[claim, request], self.order[claim, request]
        if found.all_problem is not None:
            return found.all_problem
        for device, taint in found.tainted:
            if self._capacity_fits(device, found):
                return f"all devices are wanted, but {device.ref} has {taint}"
        if not wanted:
            return "all devices are wanted, but none matches"
        if len(wanted) > RESULTS_MAX:
            return f"all {len(wanted)} devices are wanted, but a claim holds at most {RESULTS_MAX}"
        return None

    def _possible(self, claim: int, request: CompiledRequest) -> bool:
        if request.all:
            return self.all_problem(claim, request) is None
        return len(self.order[claim, request]) >= request.count

    def _satisfiable(self, claim: int, constraint: Constraint | Counts) -> bool:
        """Necessary, not sufficient: enough values to be distinct, or one value that all can share."""
        if isinstance(constraint, Counts):
            return True  # the request's filter has them counted, or its search ends soon
        # Per covered request, its alternatives: how many devices, and how many candidates have each value.
        needs: list[list[tuple[int, dict[Value, int]]]] = []
        for (owner, _), alternatives in zip(self.slots, self.alternatives, strict=True):
            if owner != claim or not all(constraint.covers(each.request, each.name) for each in alternatives):
                continue
            options = []
            for request in alternatives:
                having: dict[Value, int] = {}
                for device in self.order[claim, request]:
                    for value in device.values(constraint.attribute):
                        having[value] = having.get(value, 0) + 1
                options.append((len(self.order[claim, request]) if request.all else request.count, having))
            needs.append(options)
        values = {value for options in needs for _, having in options for value in having}
        if constraint.distinct:
            return sum(min(count for count, _ in options) for options in needs) <= len(values)
        return not needs or any(
            all(any(having.get(value, 0) >= count for count, having in options) for options in needs)
            for value in values
        )


def _constraints(claim: CompiledClaim) -> list[Constraint | Counts]:
    found: list[Constraint | Counts] = [
        Constraint(spec.attribute, distinct=spec.distinct, requests=spec.requests) for spec in claim.constraints
    ]
    found += [Counts(each.request, each.attribute, each.counts) for each in claim.aligned if each.counts is not None]
    return found
