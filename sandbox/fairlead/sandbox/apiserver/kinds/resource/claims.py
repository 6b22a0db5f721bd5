"""ResourceClaims and their templates: requests and constraints, an immutable spec, a status that allocates once.

Fairlead's protocol depends on the status rules: an allocation may be removed but not changed in place, `reservedFor` needs
one, and writing either needs permission for `resourceclaims/binding`. Two claims may have one device: that is not checked,
as in the real apiserver. Source: pkg/registry/resource/resourceclaim/strategy.go and pkg/registry/resource/utils.go, validateDeviceClaim
in pkg/apis/resource/validation/validation.go (1.36; what older releases do otherwise is asked of `release`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from fairlead.api import names
from fairlead.cel import Environment
from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid, not_supported, required, too_long
from fairlead.sandbox.apiserver.kinds.podvalidation import node_selector
from fairlead.sandbox.apiserver.kinds.request import Access, Json
from fairlead.sandbox.apiserver.kinds.resource import common
from fairlead.sandbox.apiserver.names import subdomain_complaints
from fairlead.sandbox.release import Release

GROUP = "resource.k8s.io"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class ResourceClaimStrategy(BuiltIn):
    def validate_ahead(self, obj: Json) -> Sequence[Callable[[], object]]:
        return common.verdicts(obj["spec"], self.release.cel.new_device)

    def validate_create(self, obj: Json, context: Context) -> list[FieldError]:
        namespace = obj["metadata"].get("namespace", "")
        return [*admin_access(obj["spec"], "spec", namespace, context), *claim_spec(obj["spec"], "spec", self.release)]

    def validate_update(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        return list(checks.unchanged(new["spec"], old["spec"], "spec"))

    def prepare_status(self, new: Json, old: Json, context: Context) -> None:
        """Statuses of devices that are no longer allocated are dropped with the allocation."""
        status = new.setdefault("status", {})
        if not status.get("devices"):
            return
        allocated = _device_ids((status.get("allocation") or {}).get("devices") or {})
        before = _device_ids(((old.get("status") or {}).get("allocation") or {}).get("devices") or {})
        gone = before - allocated
        kept = [one for one in status["devices"] if _device_id(one) not in gone]
        if kept:
            status["devices"] = kept
        else:
            status.pop("devices")

    def validate_status(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        after, before = new.get("status") or {}, old.get("status") or {}
        deleting = bool(new["metadata"].get("deletionTimestamp"))
        known = common.request_names(new["spec"])
        namespace = new["metadata"].get("namespace", "")
        granular = self.release.has("granular-status-authorization")
        return [
            *_status(after, before, deleting, known),
            *_admin_results(after, before, namespace, context),
            *(_authorized(after, before, namespace, context) if granular else ()),
        ]


def _device_id(one: Json) -> tuple[str, ...]:
    return tuple(one.get(key, "") for key in ("driver", "pool", "device", "shareID"))


def _device_ids(devices: Json) -> set[tuple[str, ...]]:
    return {_device_id(one) for one in devices.get("results") or []}


def _status(after: Json, before: Json, deleting: bool, known: set[str]) -> Iterator[FieldError]:
    reserved = after.get("reservedFor") or []
    yield from common.items(
        reserved, common.RESERVED_FOR, _consumer, "status.reservedFor", key=lambda one: str(one.get("uid", ""))
    )
    allocation, was = after.get("allocation"), before.get("allocation")
    if after.get("devices"):
        yield from _device_statuses(after["devices"], _device_ids((allocation or {}).get("devices") or {}))
    if reserved and allocation is None:
        yield forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif reserved and deleting and any(one not in (before.get("reservedFor") or []) for one in reserved):
        yield forbidden(
            "status.reservedFor",
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
        )
    if allocation is not None and was is not None:
        yield from checks.unchanged(allocation, was, "status.allocation")
    elif allocation is not None:
        yield from _allocation(allocation, "status.allocation", known)


def _consumer(one: Json, path: str) -> Iterator[FieldError]:
    for key in ("resource", "name", "uid"):
        if not one.get(key):
            yield required(f"{path}.{key}")


def _allocation(allocation: Json, path: str, known: set[str]) -> Iterator[FieldError]:
    devices = allocation.get("devices") or {}
    ref = common.request_ref(known)

    def result(one: Json, where: str) -> Iterator[FieldError]:
        yield from ref(one.get("request", ""), f"{where}.request")
        yield from common.driver_name(one.get("driver", ""), f"{where}.driver")
        yield from common.pool_name(one.get("pool", ""), f"{where}.pool")
        yield from common.dns_label(one.get("device", ""), f"{where}.device")
        share = one.get("shareID")
        if share is not None and not _UUID.fullmatch(share):
            yield invalid(f"{where}.shareID", share, "must be a lowercase UUID in RFC 4122 format")
        yield from common.binding_conditions(one, where)

    def config(one: Json, where: str) -> Iterator[FieldError]:
        source = one.get("source", "")
        if not source:
            yield required(f"{where}.source")
        elif source not in {"FromClass", "FromClaim"}:
            yield not_supported(f"{where}.source", source, ("FromClaim", "FromClass"))
        yield from common.items(one.get("requests"), common.REQUESTS, ref, f"{where}.requests", key=common.itself)
        yield from common.configuration(one, where)

    yield from common.items(devices.get("results"), common.RESULTS, result, f"{path}.devices.results")
    yield from common.items(devices.get("config"), common.ALLOCATED_CONFIGS, config, f"{path}.devices.config")
    if allocation.get("nodeSelector") is not None:
        yield from node_selector(allocation["nodeSelector"], f"{path}.nodeSelector")


def _device_statuses(given: list[Json], allocated: set[tuple[str, ...]]) -> Iterator[FieldError]:
    def status(one: Json, path: str) -> Iterator[FieldError]:
        yield from common.driver_name(one.get("driver", ""), f"{path}.driver")
        yield from common.pool_name(one.get("pool", ""), f"{path}.pool")
        yield from common.dns_label(one.get("device", ""), f"{path}.device")
        if _device_id(one) not in allocated:
            name = "/".join(part for part in _device_id(one) if part)
            yield invalid(path, name, "must be an allocated device in the claim")
        yield from common.items(
            one.get("conditions"), common.DEVICE_CONDITIONS, lambda *_: iter(()), f"{path}.conditions"
        )
        if one.get("data") is not None:
            yield from common.raw_object(one["data"], f"{path}.data", common.DEVICE_DATA_BYTES)
        network = one.get("networkData") or {}
        if len(network.get("interfaceName", "")) > common.INTERFACE_NAME_BYTES:
            yield too_long(f"{path}.networkData.interfaceName", common.INTERFACE_NAME_BYTES)
        if len(network.get("hardwareAddress", "")) > common.HARDWARE_ADDRESS_BYTES:
            yield too_long(f"{path}.networkData.hardwareAddress", common.HARDWARE_ADDRESS_BYTES)
        yield from common.items(
            network.get("ips"), common.IPS, lambda *_: iter(()), f"{path}.networkData.ips", key=common.itself
        )

    yield from common.items(given, common.RESULTS, status, "status.devices", key=_device_id)


def _admin_results(after: Json, before: Json, namespace: str, context: Context) -> Iterator[FieldError]:
    if before.get("allocation") is not None:
        return
    results = ((after.get("allocation") or {}).get("devices") or {}).get("results") or []
    for index, one in enumerate(results):
        if one.get("adminAccess") and not namespace_allows_admin(namespace, context):
            yield forbidden(f"status.allocation.devices.results[{index}].adminAccess", ADMIN_ACCESS)


def _authorized(after: Json, before: Json, namespace: str, context: Context) -> Iterator[FieldError]:
    """DRAResourceClaimGranularStatusAuthorization: permissions for parts of a status, as virtual subresources."""
    verb = "patch" if context.verb == "patch" else "update"
    for key in ("allocation", "reservedFor"):
        if (after.get(key) or None) != (before.get(key) or None):
            if not context.services.allows(context.user, Access(verb, GROUP, "resourceclaims", "binding")):
                yield forbidden(
                    f"status.{key}",
                    f'changing status.{key} requires resource="resourceclaims/binding", verb="{verb}" permission',
                )
            break
    changed = _changed_drivers(after.get("devices") or [], before.get("devices") or [])
    if after.get("allocation") is None:
        return
    for driver in sorted(changed):
        verbs = [f"arbitrary-node:{verb}"]
        node = (context.user.extra.get("authentication.kubernetes.io/node-name") or ("",))[0]
        if node and node == _allocated_node(after["allocation"]):
            verbs.insert(0, f"associated-node:{verb}")
        asked = [Access(one, GROUP, "resourceclaims", "driver", namespace, driver) for one in verbs]
        if not any(context.services.allows(context.user, one) for one in asked):
            yield forbidden(
                "status.devices",
                f'changing status.devices requires resource="resourceclaims/driver", name="{driver}", '
                f"verb {' or '.join(repr(one) for one in verbs)} permission",
            )


def _changed_drivers(after: list[Json], before: list[Json]) -> set[str]:
    new, old = ({_device_id(one): one for one in side} for side in (after, before))
    return {key[0] for key in new.keys() | old.keys() if new.get(key) != old.get(key)}


def _allocated_node(allocation: Json) -> str:
    """The one node that an allocation is for, if it names one."""
    for term in (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []:
        for one in term.get("matchFields") or []:
            if one.get("key") == "metadata.name" and one.get("operator") == "In" and len(one.get("values") or []) == 1:
                return str(one["values"][0])
    return ""


class ResourceClaimTemplateStrategy(BuiltIn):
    def validate_ahead(self, obj: Json) -> Sequence[Callable[[], object]]:
        return common.verdicts(obj["spec"]["spec"], self.release.cel.new_device)

    def validate_create(self, obj: Json, context: Context) -> list[FieldError]:
        spec = obj["spec"]
        namespace = obj["metadata"].get("namespace", "")
        return [
            *admin_access(spec["spec"], "spec.spec", namespace, context),
            *checks.labels((spec.get("metadata") or {}).get("labels"), "spec.metadata.labels"),
            *claim_spec(spec["spec"], "spec.spec", self.release),
        ]

    def validate_update(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        return list(checks.unchanged(new["spec"], old["spec"], "spec"))


ADMIN_ACCESS = (
    "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
)


def claim_spec(spec: Json, path: str, release: Release) -> Iterator[FieldError]:
    devices = spec.get("devices") or {}
    here = f"{path}.devices"
    known = common.request_names(spec)
    environment = release.cel.new_device
    yield from common.items(
        devices.get("requests"),
        common.REQUESTS,
        lambda one, where: _request(one, where, environment),
        f"{here}.requests",
        key=common.by_name,
    )

    def constraint(one: Json, where: str) -> Iterator[FieldError]:
        yield from common.items(
            one.get("requests"), common.REQUESTS, common.request_ref(known), f"{where}.requests", key=common.itself
        )
        if one.get("matchAttribute") is not None:
            yield from common.fully_qualified_name(one["matchAttribute"], f"{where}.matchAttribute")
        elif one.get("distinctAttribute") is not None:
            yield from common.fully_qualified_name(one["distinctAttribute"], f"{where}.distinctAttribute")
        elif release.has("consumable-capacity"):
            yield required(where, 'exactly one of "matchAttribute" or "distinctAttribute" is required')
        else:
            yield required(f"{where}.matchAttribute")

    def config(one: Json, where: str) -> Iterator[FieldError]:
        yield from common.items(
            one.get("requests"), common.REQUESTS, common.request_ref(known), f"{where}.requests", key=common.itself
        )
        yield from common.configuration(one, where)

    yield from common.items(devices.get("constraints"), common.CONSTRAINTS, constraint, f"{here}.constraints")
    yield from common.items(devices.get("config"), common.CONFIGS, config, f"{here}.config")


def _request(request: Json, path: str, environment: Environment) -> Iterator[FieldError]:
    yield from common.dns_label(request.get("name", ""), f"{path}.name")
    alternatives, exactly = request.get("firstAvailable") or [], request.get("exactly")
    if alternatives:
        yield from common.items(
            alternatives,
            common.FIRST_AVAILABLE,
            lambda one, where: _sub_request(one, where, environment),
            f"{path}.firstAvailable",
            key=common.by_name,
        )
    if exactly is not None:
        yield from _devices(exactly, f"{path}.exactly", environment)
    if not alternatives and exactly is None:
        yield required(path, "exactly one of `exactly` or `firstAvailable` is required")
    elif alternatives and exactly is not None:
        yield invalid(
            path, None, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        )


def _sub_request(sub: Json, path: str, environment: Environment) -> Iterator[FieldError]:
    yield from common.dns_label(sub.get("name", ""), f"{path}.name")
    yield from _devices(sub, path, environment)


def _devices(one: Json, path: str, environment: Environment) -> Iterator[FieldError]:
    """Class, selectors, mode and count: the common fields of `exactly` and a sub-request."""
    class_name = one.get("deviceClassName", "")
    if not class_name:
        yield required(f"{path}.deviceClassName")
    else:
        yield from checks.each(subdomain_complaints(class_name), f"{path}.deviceClassName", class_name)
    yield from common.selectors(one.get("selectors"), f"{path}.selectors", environment)
    mode, count = one.get("allocationMode", ""), one.get("count", 0)
    if mode == "All":
        if count:
            yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, "must be greater than zero")
    else:
        yield not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    for index, given in enumerate(one.get("tolerations") or []):
        yield from common.toleration(given, f"{path}.tolerations[{index}]")
    for name in (one.get("capacity") or {}).get("requests") or {}:
        yield from common.qualified_name(name, f"{path}.capacity.requests[{name}]")


def admin_access(spec: Json, path: str, namespace: str, context: Context) -> Iterator[FieldError]:
    """Requests with admin access need a namespace that an operator opened for it."""
    requests = (spec.get("devices") or {}).get("requests") or []
    for index, request in enumerate(requests):
        if (request.get("exactly") or {}).get("adminAccess") and not namespace_allows_admin(namespace, context):
            yield forbidden(f"{path}.devices.requests[{index}].adminAccess", ADMIN_ACCESS)


def namespace_allows_admin(namespace: str, context: Context) -> bool:
    found = context.services.get("", "namespaces", namespace) or {}
    labels = found.get("metadata", {}).get("labels") or {}
    return bool(labels.get(names.ADMIN_ACCESS_LABEL) == "true")
