"""A claim's spec, compiled once: requests, alternatives, filters and constraints as interned values.

The search compares these small values, and four thousand claims of one template are compiled once. Evaluates no selector.
Raises InvalidClaimError, with claim, field, value and next step, for a claim that can never be allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fairlead.cel import CompileError, compile_selector, load_fault
from fairlead.cel.devices.requests import device_requests, expressions
from fairlead.engine.inventory.device import Values
from fairlead.engine.inventory.models import Model
from fairlead.engine.types.gangs import ClaimRequest
from fairlead.engine.types.values import Amount, amount
from fairlead.kube import resource
from fairlead.kube.quantity import QuantityError
from fairlead.kube.spec_key import spec_key

DERIVED_MAX = 16_384  # claims with restrictions that are remembered
RESULTS_MAX = 32  # per claim; resource/v1 AllocationResultsMaxSize


class InvalidClaimError(ValueError):
    """The claim can't be allocated on any cluster as it is written."""


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """Whether a device serves a request, its use aside. Equal by value, hashed once."""

    class_selectors: tuple[str, ...]
    selectors: tuple[str, ...]
    tolerations: tuple[resource.DeviceToleration, ...]
    capacity: tuple[tuple[str, Amount], ...]
    banned: tuple[str, ...] = ()  # selectors of flavors of which the queue may take no more
    model: Model | None = None  # None: of any
    aligned: tuple[tuple[str, frozenset[Values]], ...] = ()  # by attribute, what a device may have of it
    hash: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        content = (self.class_selectors, self.selectors, self.tolerations, self.capacity, self.banned, self.model)
        object.__setattr__(self, "hash", hash((*content, self.aligned)))

    def __hash__(self) -> int:
        return self.hash


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRequest:
    """One alternative of one request: so many devices that pass the filter. Compared by identity."""

    name: str  # "request" or "request/sub", as results spell it
    request: str
    class_name: str
    filter: DeviceFilter
    count: int  # 0 with `all`
    all: bool
    admin: bool


Alternatives = tuple[CompiledRequest, ...]
"""The alternatives of one request, best first."""


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    attribute: str
    distinct: bool
    requests: frozenset[str]


class Aligned(NamedTuple):
    """What the devices of one request have of an attribute, so that its gang's members are aligned.

    `counts`: exactly so many devices of each; None: any number. Values are what one device has: several of a list.
    """

    request: str
    attribute: str
    values: frozenset[Values]
    counts: tuple[tuple[Values, int], ...] | None = None

    @property
    def devices(self) -> int | None:
        """How many devices the request has; None: any number."""
        return None if self.counts is None else sum(number for _, number in self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledClaim:
    """A claim to allocate. `alternatives` has one entry per request, best first inside it. Compared by identity."""

    alternatives: tuple[Alternatives, ...]
    constraints: tuple[ConstraintSpec, ...]
    spec: resource.ResourceClaimSpec
    # One request of an exact count without constraints: allocated without a search.
    plain: bool
    aligned: tuple[Aligned, ...] = ()  # as its gang is aligned

    @property
    def least(self) -> int:
        """The fewest devices that can satisfy the claim."""
        return sum(min(max(request.count, 1) for request in alternatives) for alternatives in self.alternatives)


class Compiler:
    """Claims of one snapshot compiled against its classes; equal specs give the same CompiledClaim."""

    def __init__(self, classes: Mapping[str, resource.DeviceClass]) -> None:
        self._classes = classes
        self._known: dict[bytes, CompiledClaim | InvalidClaimError] = {}
        self.size_bytes = 0
        """How large the specs that are known are, as JSON."""
        self._filters: dict[DeviceFilter, DeviceFilter] = {}  # equal ones are one object
        self._known_derived: dict[tuple[CompiledClaim, object], CompiledClaim] = {}

    @property
    def known(self) -> int:
        return len(self._known)

    def compile(self, claim: ClaimRequest) -> CompiledClaim:
        """Raises InvalidClaimError."""
        try:
            return self.compile_spec(claim.spec)
        except InvalidClaimError as error:
            raise InvalidClaimError(f"ResourceClaim {claim.namespace}/{claim.name}: {error}") from None

    def compile_spec(self, spec: resource.ResourceClaimSpec) -> CompiledClaim:
        """As `compile`, without the claim's name in the error. Raises InvalidClaimError."""
        key = spec_key(spec)
        found = self._known.get(key)
        if found is None:
            try:
                found = self._compile(spec)
            except InvalidClaimError as error:
                found = error
            self._known[key] = found
            self.size_bytes += len(key)
        if isinstance(found, InvalidClaimError):
            raise found
        return found

    def without(self, claim: CompiledClaim, banned: tuple[str, ...], skip: int) -> CompiledClaim:
        """The same claim without devices that one of these selectors selects, and without its first `skip` alternatives."""
        if not banned and not skip:
            return claim

        def left(_: int, alternatives: Alternatives) -> Alternatives:
            return tuple(_filtered(each, banned=banned) for each in alternatives[min(skip, len(alternatives) - 1) :])

        return self._derived(claim, ("without", banned, skip), left)

    def of_models(self, claim: CompiledClaim, models: tuple[Model | None, ...]) -> CompiledClaim:
        """The same claim with devices of one model for each of its requests; None: of any."""
        if not any(models):
            return claim

        def of_model(number: int, alternatives: Alternatives) -> Alternatives:
            model = models[number]
            return alternatives if model is None else tuple(_filtered(each, model=model) for each in alternatives)

        return self._derived(claim, ("models", models), of_model)

    def aligned(self, claim: CompiledClaim, aligned: tuple[Aligned, ...]) -> CompiledClaim:
        """The same claim with devices that are aligned so; alternatives with other counts are left out."""

        def so(_: int, alternatives: Alternatives) -> Alternatives:
            of = [each for each in aligned if each.request == alternatives[0].request]
            only = tuple([(each.attribute, each.values) for each in of])
            return (
                alternatives
                if not of
                else tuple(
                    _filtered(each, aligned=only)
                    for each in alternatives
                    if each.all or all(one.devices in {None, each.count} for one in of)
                )
            )

        return self._derived(claim, ("aligned", aligned), so, plain=False, aligned=aligned)

    def _derived(
        self, claim: CompiledClaim, how: object, alter: Callable[[int, Alternatives], Alternatives], **more: Any
    ) -> CompiledClaim:
        found = self._known_derived.get((claim, how))
        if found is None:
            if len(self._known_derived) >= DERIVED_MAX:
                self._known_derived.clear()
            altered = tuple(alter(number, each) for number, each in enumerate(claim.alternatives))
            found = self._known_derived[claim, how] = replace(claim, alternatives=altered, **more)
        return found

    def _compile(self, spec: resource.ResourceClaimSpec) -> CompiledClaim:
        too_large = load_fault(text for _, request in device_requests(spec) for text in expressions(request.selectors))
        if too_large is not None:
            raise InvalidClaimError(f"spec.devices.requests: {too_large}")
        alternatives: list[tuple[CompiledRequest, ...]] = []
        for index, request in enumerate(spec.devices.requests):
            path = f"spec.devices.requests[{index}]"
            if request.exactly is not None and not request.first_available:
                of_request: tuple[CompiledRequest, ...] = (
                    self._request(request.exactly, request.name, None, f"{path}.exactly"),
                )
            elif request.first_available and request.exactly is None:
                of_request = tuple(
                    self._request(sub, request.name, sub.name, f"{path}.firstAvailable[{number}]")
                    for number, sub in enumerate(request.first_available)
                )
            else:
                raise InvalidClaimError(f"{path}: write exactly one of `exactly` and `firstAvailable`")
            alternatives.append(of_request)
        constraints = tuple(
            part
            for index, constraint in enumerate(spec.devices.constraints)
            for part in _constraint(constraint, f"spec.devices.constraints[{index}]")
        )
        first = alternatives[0][0] if len(alternatives) == 1 and len(alternatives[0]) == 1 else None
        plain = first is not None and not first.all and not first.admin and not constraints
        return CompiledClaim(tuple(alternatives), constraints, spec, plain)

    def _request(self, spec: Any, request: str, sub: str | None, path: str) -> CompiledRequest:
        device_class = self._classes.get(spec.device_class_name)
        if device_class is None:
            known = ", ".join(sorted(self._classes)[:8]) or "none"
            raise InvalidClaimError(
                f"{path}.deviceClassName: there is no DeviceClass {spec.device_class_name!r}; "
                f"create it or use one of: {known}"
            )
        if spec.allocation_mode not in {"ExactCount", "All", ""}:
            raise InvalidClaimError(
                f"{path}.allocationMode: {spec.allocation_mode!r} is unknown; use ExactCount or All"
            )
        every = spec.allocation_mode == "All"
        if not every and spec.count < 1:
            raise InvalidClaimError(f"{path}.count: {spec.count} is not positive; ask for at least 1")
        if not every and spec.count > RESULTS_MAX:
            raise InvalidClaimError(
                f"{path}.count: {spec.count} is more than a claim can hold; ask for at most {RESULTS_MAX}"
            )
        try:
            requests = spec.capacity.requests if spec.capacity is not None else {}
            capacity = tuple(sorted((name, amount(value)) for name, value in requests.items()))
        except QuantityError as error:
            raise InvalidClaimError(f"{path}.capacity.requests: {error}") from None
        wanted = DeviceFilter(
            class_selectors=_texts(device_class.spec.selectors, f"DeviceClass {spec.device_class_name}: spec"),
            selectors=_texts(spec.selectors, path),
            tolerations=spec.tolerations,
            capacity=capacity,
        )
        return CompiledRequest(
            name=request if sub is None else f"{request}/{sub}",
            request=request,
            class_name=spec.device_class_name,
            filter=self._filters.setdefault(wanted, wanted),
            count=0 if every else spec.count,
            all=every,
            admin=sub is None and bool(spec.admin_access),
        )


def _filtered(request: CompiledRequest, **more: Any) -> CompiledRequest:
    return replace(request, filter=replace(request.filter, **more))


def _texts(selectors: tuple[resource.DeviceSelector, ...], path: str) -> tuple[str, ...]:
    texts = []
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            raise InvalidClaimError(f"{path}.selectors[{index}]: has no `cel`; other selectors are not known here")
        try:
            compile_selector(selector.cel.expression)
        except CompileError as error:
            raise InvalidClaimError(f"{path}.selectors[{index}].cel.expression: {error}") from None
        texts.append(selector.cel.expression)
    return tuple(texts)


def _constraint(constraint: resource.DeviceConstraint, path: str) -> list[ConstraintSpec]:
    requests = frozenset(constraint.requests)
    parts = []
    if constraint.match_attribute:
        parts.append(ConstraintSpec(constraint.match_attribute, distinct=False, requests=requests))
    if constraint.distinct_attribute:
        parts.append(ConstraintSpec(constraint.distinct_attribute, distinct=True, requests=requests))
    if not parts:
        raise InvalidClaimError(f"{path}: is neither matchAttribute nor distinctAttribute; this version has no other")
    return parts
