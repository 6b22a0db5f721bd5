"""The search itself: depth first over requests, alternatives and devices, with exact undo.

Exists apart from `allocator` because it is one idea of its own: alike devices (same candidacies, same constrained
attributes, same counters, same use) are tried once per place, which makes the n-alike-devices case linear and most refusals
quick. What no order of trying can satisfy is refused before the first try.
Source: k/k allocator_{stable,incubating}.go for the order of tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.constraints import Constraint, add_all
from fairlead.engine.allocator.model import ClaimCandidates, Pick, SearchResult, SearchStatus, StepBudget
from fairlead.engine.allocator.requests import RESULTS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.engine.allocator.candidates import Candidates
    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.inventory.device import Device, Value
    from fairlead.engine.inventory.ledger import Consumption, Ledger


def give(ledger: Ledger, ask: CompiledRequest, device: Device, consumption: Consumption) -> bool:
    """Admin access takes no device, but its share of a shared one counts beside the others of the same decision."""
    if not ask.admin:
        return ledger.take(device, consumption)
    return not device.shared or ledger.take_share(device, consumption)


def give_back(ledger: Ledger, ask: CompiledRequest, device: Device, consumption: Consumption) -> None:
    """Undo one `give`."""
    if not ask.admin:
        ledger.release(device, consumption)
    elif device.shared:
        ledger.release_share(device, consumption)


class OutOfStepsError(Exception):
    """The budget ended."""


class Search:
    """One attempt: `hopeless`, then `request(0)`; `picks` is the answer. `short` tells what got furthest and fell short."""

    def __init__(
        self,
        offers: Sequence[ClaimCandidates],
        ledger: Ledger,
        budget: StepBudget,
        *,
        by_preference: bool = True,
        chosen: Sequence[Mapping[str, CompiledRequest]] | None = None,
    ) -> None:
        """`chosen` fixes, per offer, the alternative of each request."""
        self.offers = offers
        self.ledger = ledger
        self.budget = budget
        self.slots = [
            (claim, request) for claim, offer in enumerate(offers) for request in range(len(offer.claim.alternatives))
        ]
        self.alternatives = [
            offers[claim].claim.alternatives[request]
            if chosen is None
            else tuple(
                ask for ask in offers[claim].claim.alternatives[request] if chosen[claim].get(ask.request) is ask
            )
            for claim, request in self.slots
        ]
        self.constraints = [
            [
                Constraint(spec.attribute, distinct=spec.distinct, requests=spec.requests)
                for spec in offer.claim.constraints
            ]
            for offer in offers
        ]
        self.attributes = sorted({spec.attribute for offer in offers for spec in offer.claim.constraints})
        self.picks: list[list[Pick]] = [[] for _ in offers]
        # Devices that a claim has, by claim: exclusive ones may not come twice, also not by admin access.
        self.mine: list[set[Device]] = [set() for _ in offers]
        self.trail: list[tuple[int, Pick, tuple[Constraint, ...]]] = []
        self.short: CompiledRequest | None = None
        self.got = 0
        self.depth = -1
        self.detail = ""
        # Both as things stand before the search: it gives back what it takes.
        self.found: dict[tuple[int, CompiledRequest], Candidates] = {}
        self.order: dict[tuple[int, CompiledRequest], Sequence[Device]] = {}
        member: dict[Device, list[tuple[int, CompiledRequest]]] = {}
        for (claim, _), asks in zip(self.slots, self.alternatives, strict=True):
            offer = offers[claim]
            for ask in asks:
                key = (claim, ask)
                found = self.found[key] = offer.candidates(ask)
                if ask.all:
                    self.order[key] = self._all(found)
                else:
                    ordered = offer.prefer(ask, found) if by_preference else found.devices
                    self.order[key] = [device for device in ordered if self._usable(ask, device, found)]
                for device in found.devices:
                    member.setdefault(device, []).append(key)
        self.faces: dict[Device, object] = {
            device: (
                tuple(keys),
                tuple(device.values(attribute) for attribute in self.attributes),
                (device.pool, device.draws) if device.draws else None,
                ledger.free(device),
                (tuple(sorted(device.kind.totals.items())), device.use) if device.shared else None,
            )
            for device, keys in member.items()
        }

    # ------------------------------------------------------------------------------------------ before searching

    def hopeless(self) -> SearchResult | None:
        """A request none of whose alternatives can be served even alone refuses at once."""
        for (claim, _), asks in zip(self.slots, self.alternatives, strict=True):
            if not any(self._possible(claim, ask) for ask in asks):
                ask = asks[0]
                found = self.found[claim, ask]
                if ask.all:
                    detail = self._all_problem(claim, ask) or ""
                else:
                    detail = found.errors[0][1] if found.errors else ""
                return SearchResult(SearchStatus.IMPOSSIBLE, short=ask, got=len(self.order[claim, ask]), detail=detail)
        for claim, constraints in enumerate(self.constraints):
            for constraint in constraints:
                if not self._satisfiable(claim, constraint):
                    kind = "distinctAttribute" if constraint.distinct else "matchAttribute"
                    return SearchResult(
                        SearchStatus.IMPOSSIBLE,
                        short=self.alternatives[self.slots.index((claim, 0))][0],
                        detail=f"no devices that are free satisfy {kind} {constraint.attribute}",
                    )
        return None

    def _satisfiable(self, claim: int, constraint: Constraint) -> bool:
        """Necessary, not sufficient: enough values to be distinct, or one value that all can share."""
        # Per covered request, its alternatives: how many devices, and how many candidates have each value.
        needs: list[list[tuple[int, dict[Value, int]]]] = []
        for (owner, _), asks in zip(self.slots, self.alternatives, strict=True):
            if owner != claim or not all(constraint.covers(ask.request, ask.name) for ask in asks):
                continue
            options = []
            for ask in asks:
                having: dict[Value, int] = {}
                for device in self.order[claim, ask]:
                    for value in device.values(constraint.attribute):
                        having[value] = having.get(value, 0) + 1
                options.append((len(self.order[claim, ask]) if ask.all else ask.count, having))
            needs.append(options)
        values = {value for options in needs for _, having in options for value in having}
        if constraint.distinct:
            return sum(min(count for count, _ in options) for options in needs) <= len(values)
        return not needs or any(
            all(any(having.get(value, 0) >= count for count, having in options) for options in needs)
            for value in values
        )

    def _all(self, found: Candidates) -> list[Device]:
        """What `All` means now: shared devices without room for one more such request are not among them."""
        return [
            device
            for device in found.devices
            if not device.shared or self.ledger.room(device, found.consumption[device])
        ]

    def _all_problem(self, claim: int, ask: CompiledRequest) -> str | None:
        found, wanted = self.found[claim, ask], self.order[claim, ask]
        if found.all_problem is not None:
            return found.all_problem
        for device, taint in found.tainted:
            if not device.shared or self.ledger.room(device, found.consumption[device]):
                return f"all devices are wanted, but {device.ref} has {taint}"
        if not wanted:
            return "all devices are wanted, but none matches"
        if len(wanted) > RESULTS_MAX:
            return f"all {len(wanted)} devices are wanted, but a claim holds at most {RESULTS_MAX}"
        return None

    def _possible(self, claim: int, ask: CompiledRequest) -> bool:
        if ask.all:
            return self._all_problem(claim, ask) is None
        return len(self.order[claim, ask]) >= ask.count

    def _usable(self, ask: CompiledRequest, device: Device, found: Candidates) -> bool:
        if ask.admin:
            return not device.shared or self.ledger.room(device, found.consumption[device])
        if not self.ledger.free(device) or not self.ledger.draws_fit(device):
            return False
        return not device.shared or self.ledger.room(device, found.consumption[device])

    # ------------------------------------------------------------------------------------------------- the search

    def request(self, slot: int) -> bool:
        """Serve requests from this one on."""
        if slot == len(self.slots):
            return True
        claim = self.slots[slot][0]
        for ask in self.alternatives[slot]:
            found = self.found[claim, ask]
            if ask.all:
                problem = self._all_problem(claim, ask)
                if problem is not None:
                    self._fell_short(ask, 0, problem)
                elif self._take_all(slot, claim, ask, found):
                    return True
            elif len(self.picks[claim]) + ask.count > RESULTS_MAX:
                self._fell_short(ask, 0, f"the claim would have more than {RESULTS_MAX} devices")
            elif self._choose(slot, claim, ask, 0, ask.count):
                return True
        return False

    def _take_all(self, slot: int, claim: int, ask: CompiledRequest, found: Candidates) -> bool:
        wanted = self.order[claim, ask]
        if len(self.picks[claim]) + len(wanted) > RESULTS_MAX:
            self._fell_short(ask, 0, f"the claim would have more than {RESULTS_MAX} devices")
            return False
        mark = len(self.trail)
        for device in wanted:
            if not self._take(claim, ask, device, found):
                self._fell_short(ask, len(self.trail) - mark, f"all devices are wanted, and {device.ref} can't be had")
                self._undo(mark)
                return False
        if self.request(slot + 1):
            return True
        self._undo(mark)
        return False

    def _choose(self, slot: int, claim: int, ask: CompiledRequest, start: int, left: int) -> bool:
        """Take `left` more devices from position `start` on, and then serve the rest."""
        if left == 0:
            return self.request(slot + 1)
        found, ordered = self.found[claim, ask], self.order[claim, ask]
        tried: set[object] = set()
        for place in range(start, len(ordered) - left + 1):
            device = ordered[place]
            if not device.shared and (device in self.mine[claim] or not (ask.admin or self.ledger.free(device))):
                continue  # taken by an earlier place of this search
            face = self._face(ask, device)
            if face in tried:
                continue
            self.budget.steps -= 1
            if self.budget.steps < 0:
                raise OutOfStepsError
            tried.add(face)
            if self._take(claim, ask, device, found):
                if self._choose(slot, claim, ask, place + 1, left - 1):
                    return True
                self._undo(len(self.trail) - 1)
        self._fell_short(ask, ask.count - left, "")
        return False

    def _take(self, claim: int, ask: CompiledRequest, device: Device, found: Candidates) -> bool:
        consumption = found.consumption.get(device, ())
        if not device.shared and device in self.mine[claim]:
            return False
        if not give(self.ledger, ask, device, consumption):
            return False
        held = tuple(constraint for constraint in self.constraints[claim] if constraint.covers(ask.request, ask.name))
        if held and not add_all(held, device):
            give_back(self.ledger, ask, device, consumption)
            return False
        pick = Pick(ask, device, consumption)
        self.picks[claim].append(pick)
        if not device.shared:
            self.mine[claim].add(device)
        self.trail.append((claim, pick, held))
        return True

    def _undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            claim, pick, held = self.trail.pop()
            self.picks[claim].pop()
            self.mine[claim].discard(pick.device)
            for constraint in reversed(held):
                constraint.remove(pick.device)
            give_back(self.ledger, pick.ask, pick.device, pick.consumption)

    def unwind(self) -> None:
        self._undo(0)

    def _face(self, ask: CompiledRequest, device: Device) -> object:
        """Equal for devices that are interchangeable in this search, as things stand."""
        face = self.faces[device]
        if device.shared:
            used = self.ledger.used.get(device)
            return (face, tuple(sorted(used.items())) if used else (), self._claims_of(device))
        return (face, self.ledger.free(device)) if ask.admin else face

    def _claims_of(self, device: Device) -> tuple[int, ...]:
        return tuple(claim for claim, picks in enumerate(self.picks) if any(pick.device is device for pick in picks))

    def _fell_short(self, ask: CompiledRequest, got: int, detail: str) -> None:
        if len(self.trail) >= self.depth:
            self.depth = len(self.trail)
            self.short, self.got = ask, got
            self.detail = detail or self.detail
