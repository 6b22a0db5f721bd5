"""What is judged beside pods and workloads: claims, templates and DeviceClasses, and our own Queues, Flavors and TenancyPolicies.

A mistake is reported when the object is written, with the field and position, instead of as a pending pod: what is refused is in
`policy.refusals`, which sees only requests that a managed driver may serve, configurations for our own driver, and what the schemas of our
CRDs cannot say. Warned about: what pods would wait for (Kubernetes accepts an unknown class), names that do not exist (a parent, a flavor, a
class), since manifests are applied in any order, and numbers that do not add up. Every handler raises RefusedError, MalformedError or ManifestError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from fairlead.api.drivers import unknown_driver
from fairlead.api.flavor import Flavor
from fairlead.api.legacy import is_legacy
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.api.queues import budget_problem, may_overlap, open_to_all, unknown_flavors, without_quota
from fairlead.api.schedules import always_in_force, quotas
from fairlead.cel.devices.requests import Request
from fairlead.kube.quantity import Quantity
from fairlead.webhook.objects import sharing
from fairlead.webhook.objects.device_models import candidates, no_match_reason, selected, unservable_reason
from fairlead.webhook.objects.fields import Json
from fairlead.webhook.policy import rules
from fairlead.webhook.policy.policies import Kind, Subject, apply_findings
from fairlead.webhook.policy.refusals import refuse
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, claim_spec, managed_requests, request_managed
from fairlead.webhook.review.verdict import UNTOUCHED, Verdict, allow


def validate(review: Review, facts: Facts) -> Verdict:
    """The verdict on a new claim or template. Raises MalformedError, RefusedError."""
    if review.operation != "CREATE":
        return UNTOUCHED  # the spec is immutable, and a ValidatingAdmissionPolicy guards the status
    path = "spec.spec" if review.resource == "resourceclaimtemplates" else "spec"
    spec = claim_spec(review.object or {}, path)
    new = Subject(kind=Kind.NEW_CLAIM, review=review, stored=True, where=f"{path}.", claim=spec)
    refuse([new], facts)
    managed = managed_requests(spec, facts)
    configs = [(f"{path}.{where}", requests, opaque) for where, requests, opaque in sharing.own_configs(spec)]
    if not managed and not configs:
        return UNTOUCHED
    judged = replace(new, kind=Kind.CLAIM, requests=managed, configs=configs)
    refuse([judged], facts)
    warnings = [
        f"{path}.{where}.deviceClassName: DeviceClass {request.device_class_name!r} does not exist; pods wait until it does"
        for where, request in managed
        if request.device_class_name not in facts.classes
    ]
    warnings += _unservable(managed, path, facts)
    warnings += [f"{path}.{each}" for each in sharing.warnings(spec, configs)]
    verdict = allow("claim", warnings=warnings)
    return apply_findings(verdict, review.subject, rules.findings(facts.policies, [judged], facts))


def validate_class(review: Review, facts: Facts) -> Verdict:
    """The verdict on a DeviceClass. Raises MalformedError, RefusedError."""
    refuse([Subject(kind=Kind.CLASS, review=review)], facts)
    return allow("class")


def _unservable(managed: Iterable[tuple[str, Request]], path: str, facts: Facts) -> Iterator[str]:
    """Warnings about requests, and alternatives of requests, that no device of the cluster could serve."""
    for where, request in managed:
        device_class = facts.classes.get(request.device_class_name)
        if device_class is None or request_managed(request, facts) is not Managed.YES:
            continue
        reason = unservable_reason(request, device_class, facts.device_models, facts.drivers)
        if reason is not None:
            yield f"{path}.{where}: {reason}; pods wait until such a device comes"
        elif (
            warning := sharing.capacity_warning(request, candidates(request, device_class, facts.device_models))
        ) is not None:
            yield f"{path}.{where}.{warning}"


def validate_queue(review: Review, facts: Facts) -> Verdict:
    queue = Queue.read(_without_status(review))
    refuse([Subject(kind=Kind.QUEUE, review=review, own=queue)], facts)
    warnings = []
    if queue.spec.parent is not None and queue.spec.parent not in facts.queues:
        warnings.append(
            f"spec.parent: Queue {queue.spec.parent!r} does not exist; until it does this queue counts as a root"
        )
    warnings += unknown_flavors(queue, facts.flavors)
    unbounded = budget_problem(queue, {name: flavor.spec.measure for name, flavor in facts.flavors.items()})
    warnings += [] if unbounded is None else [unbounded]
    warnings += without_quota(queue, {**facts.queues, queue.name: queue}.values(), facts.flavors)
    overlap = may_overlap(queue, _other_leaves(queue, facts.queues))
    warnings += [] if overlap is None else [overlap]
    unlimited = None
    if review.old is None or review.old.get("spec") != (review.object or {}).get("spec"):
        unlimited = open_to_all(queue, {other.spec.parent for other in facts.queues.values()})
    warnings += [] if unlimited is None else [unlimited]
    warnings += [*_overcommitments(queue, facts.queues), *_scheduled_overcommitments(queue, facts.queues)]
    warnings += [*always_in_force(queue.spec.schedule), *_limits_of_two_entries(queue)]
    return allow("queue", warnings=warnings)


def _other_leaves(queue: Queue, queues: Mapping[str, Queue]) -> list[Queue]:
    """The other leaf queues; none if this one is no leaf. Only leaves take gangs, so only their selectors can overlap."""
    parents = {other.spec.parent for other in {**queues, queue.name: queue}.values()}
    return [] if queue.name in parents else [other for name, other in queues.items() if name not in parents]


def _overcommitments(queue: Queue, queues: Mapping[str, Queue]) -> Iterator[str]:
    """Warnings where the children of this queue, or of one above it, deserve more together than their parent."""
    after = {**queues, queue.name: queue}
    children: dict[str | None, list[Queue]] = {}
    for other in after.values():
        children.setdefault(other.spec.parent, []).append(other)

    def deserved(of: Queue, flavor: str) -> Quantity:
        """The queue's own value, else the sum of its children, as the controller counts."""
        for entry in of.spec.flavors:
            if entry.flavor == flavor:
                return Quantity.of(entry.deserved)
        return sum((deserved(child, flavor) for child in children.get(of.name, ())), Quantity.of(0))

    above: Queue | None = queue
    while above is not None:
        for entry in above.spec.flavors:
            total = sum((deserved(child, entry.flavor) for child in children.get(above.name, ())), Quantity.of(0))
            if total > Quantity.of(entry.deserved):
                yield (
                    f"spec.flavors: the queues below {above.name} deserve {total} of {entry.flavor}, it only "
                    f"{entry.deserved}: raise its deserved or lower theirs"
                )
        above = None if above.spec.parent is None else after.get(above.spec.parent)


def _scheduled_overcommitments(queue: Queue, queues: Mapping[str, Queue]) -> Iterator[str]:
    """Warnings where that is so while one entry of this queue's schedule is in force, and not without it."""
    always = set(_overcommitments(queue, queues))
    for entry in queue.spec.schedule:
        spec = queue.spec.model_copy(update={"flavors": quotas(queue.spec.flavors, [entry])})
        for warning in _overcommitments(queue.model_copy(update={"spec": spec}), queues):
            if warning not in always:
                yield f"while {entry.name} of spec.schedule is in force: {warning}"


def _limits_of_two_entries(queue: Queue) -> Iterator[str]:
    """Warnings where two entries, each valid by itself, make a limit below deserved."""
    schedule = queue.spec.schedule
    for index, later in enumerate(schedule):
        for earlier in schedule[:index]:
            for quota in quotas(queue.spec.flavors, [earlier, later]):
                if quota.limit is not None and Quantity.of(quota.limit) < Quantity.of(quota.deserved):
                    yield (
                        f"spec.schedule[{index}]: while {earlier.name} and {later.name} are both in force limit {quota.limit} of "
                        f"{quota.flavor} is below deserved {quota.deserved}: the queue then deserves no more than the limit; "
                        f"give both in {later.name}"
                    )


def validate_flavor(review: Review, facts: Facts) -> Verdict:
    flavor = Flavor.read(_without_status(review))
    refuse([Subject(kind=Kind.FLAVOR, review=review, own=flavor)], facts)
    currencies = _currencies(flavor, facts.flavors)
    if flavor.spec.measure == "Resource":
        twice = _counted_twice(flavor, facts.flavors)
        return allow("flavor", warnings=[*twice, *_becomes_claims(flavor), *currencies])
    warnings = [*_drivers(flavor, facts), *_overlaps(flavor, facts), *currencies]
    return allow("flavor", warnings=[*warnings, *_flavor_warnings(flavor, facts)])


def _drivers(flavor: Flavor, facts: Facts) -> Iterator[str]:
    """Where the flavor names a driver whose devices are not allocated, or not understood."""
    driver = flavor.spec.driver
    if driver is None:
        return
    if driver not in (*facts.drivers, *facts.shared_drivers):
        yield (
            f"spec.driver: {driver!r} is no driver that Fairlead manages ({', '.join(facts.drivers)}): its devices are not allocated, and "
            "the flavor counts nothing; add it to managedDrivers of the chart (--managed-driver), or write one of them"
        )
    elif flavor.spec.measure == "Share" and (reason := unknown_driver(driver)) is not None:
        yield f"spec.driver: {reason}"


def _overlaps(flavor: Flavor, facts: Facts) -> Iterator[str]:
    """Where a device would count in another flavor of the same measure, too: twice for a queue with quotas in both."""
    own = selected(flavor.spec.selector, facts.device_models) or ()
    for other in sorted(facts.flavors.values(), key=lambda other: other.name):
        if other.name == flavor.name or _counted(other)[1:] != _counted(flavor)[1:]:
            continue
        if _counted(other) == _counted(flavor):
            yield f"spec.deviceSelector: Flavor {other.name!r} has the same selector and measure; a device would count twice"
            continue
        theirs = selected(other.spec.selector, facts.device_models) or ()
        both = next((model for model in own if model in theirs), None)
        if both is not None:
            yield (
                f"spec.deviceSelector: selects {both.label} ({both.example}), and so does Flavor {other.name!r} with the same measure: a "
                "queue with quotas in both is charged for it twice, and needs room in both; narrow one of the two selectors"
            )


def _counted_twice(flavor: Flavor, flavors: Mapping[str, Flavor]) -> Iterator[str]:
    """Where pods on some node would count in another flavor of the same resource, too."""
    own = flavor.spec.node_selector
    for other in sorted(flavors.values(), key=lambda other: other.name):
        theirs = other.spec.node_selector
        apart = any(own.get(key, value) != value for key, value in theirs.items())
        if other.name != flavor.name and other.spec.resource_name == flavor.spec.resource_name and not apart:
            yield (
                f"spec.nodeSelector: a node may have these labels and those of Flavor {other.name!r}, which counts {flavor.spec.resource_name}, "
                "too: a queue with quotas in both is charged twice for a pod there, and needs room in both; give them different values of one label"
            )


def _becomes_claims(flavor: Flavor) -> Iterator[str]:
    """Where the webhook makes claims of the pods' limits of the resource, so that none is left to count."""
    name = flavor.spec.resource_name or ""
    if is_legacy(name):
        yield f"spec.resourceName: limits of {name} become claims, so that pods request none of it: count devices, by deviceSelector"


def _flavor_warnings(flavor: Flavor, facts: Facts) -> Iterator[str]:
    """Where the flavor would count nothing of what the cluster has now."""
    reason = no_match_reason(flavor.spec.selector, facts.device_models)
    if reason is not None:
        yield f"spec.deviceSelector: {reason}; until such a device comes the flavor counts nothing"
        return
    name = flavor.spec.capacity_name
    models = selected(flavor.spec.selector, facts.device_models)
    if name is not None and models and not any(model.has_capacity(name) for model in models):
        yield (
            f"spec.capacityName: no device that the flavor selects has the capacity {name!r}, so it counts nothing; "
            "`fairlead devices` shows what they have"
        )


def validate_policy(review: Review, facts: Facts) -> Verdict:
    policy = TenancyPolicy.read(_without_status(review))
    refuse([Subject(kind=Kind.POLICY, review=review, own=policy)], facts)
    warnings = [
        f"spec.{field}: {kind} {name!r} does not exist"
        for field, kind, listed, known in (
            ("deviceClasses", "DeviceClass", policy.spec.device_classes, facts.classes),
            ("flavors", "Flavor", policy.spec.flavors, facts.flavors),
        )
        for name in listed or ()
        if name not in known
    ]
    return allow("tenancypolicy", warnings=warnings)


def _counted(flavor: Flavor) -> tuple[str, str, str | None]:
    return flavor.spec.selector, flavor.spec.measure, flavor.spec.capacity_name


def _currencies(flavor: Flavor, flavors: Mapping[str, Flavor]) -> Iterator[str]:
    """A warning where other flavors are priced in another currency."""
    own = {price.currency for price in flavor.spec.price}
    others = {
        price.currency: other.name
        for other in sorted(flavors.values(), key=lambda other: other.name, reverse=True)
        for price in other.spec.price
        if other.name != flavor.name
    }
    for currency in sorted(own):
        for found in sorted(others.keys() - own):
            yield (
                f"spec.price: is in {currency}, that of Flavor {others[found]} in {found}: costs of the two are not added; "
                "write all prices in one currency"
            )


def _without_status(review: Review) -> Json:
    """The object as users write it; a newer controller's status may have fields that our model lacks."""
    return {key: value for key, value in (review.object or {}).items() if key != "status"}
