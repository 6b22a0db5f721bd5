"""Validation of claim specs, of claims and of templates: requests, alternatives, constraints, configs.

Source: validateDeviceClaim in pkg/apis/resource/validation/validation.go (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import names
from fairlead.cel import Environment
from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid, not_supported, required
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.resource import common, limits
from fairlead.sandbox.apiserver.names import subdomain_complaints
from fairlead.sandbox.release import Release

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
        limits.REQUESTS,
        lambda one, where: _request(one, where, environment),
        f"{here}.requests",
        key=common.by_name,
    )

    def constraint(one: Json, where: str) -> Iterator[FieldError]:
        yield from common.items(
            one.get("requests"), limits.REQUESTS, common.request_ref(known), f"{where}.requests", key=common.itself
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
            one.get("requests"), limits.REQUESTS, common.request_ref(known), f"{where}.requests", key=common.itself
        )
        yield from common.configuration(one, where)

    yield from common.items(devices.get("constraints"), limits.CONSTRAINTS, constraint, f"{here}.constraints")
    yield from common.items(devices.get("config"), limits.CONFIGS, config, f"{here}.config")


def _request(request: Json, path: str, environment: Environment) -> Iterator[FieldError]:
    yield from common.dns_label(request.get("name", ""), f"{path}.name")
    alternatives, exactly = request.get("firstAvailable") or [], request.get("exactly")
    if alternatives:
        yield from common.items(
            alternatives,
            limits.FIRST_AVAILABLE,
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
