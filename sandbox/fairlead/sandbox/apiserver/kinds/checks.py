"""Checks that several kinds share: labels, selectors, resources, bounded numbers. Each yields FieldErrors.

Source: pkg/apis/core/validation and apimachinery's metav1 validation (1.36). Paths are dotted strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.sandbox.apiserver.kinds.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import label_complaints, label_value_complaints, qualified_name_complaints

IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_STANDARD_RESOURCES = {"cpu", "memory", "ephemeral-storage"}
_NATIVE_OTHER = {"pods", "storage", "services", "configmaps", "secrets"}


def each(complaints: Iterable[str], path: str, value: Any) -> Iterator[FieldError]:
    """One Invalid for each complaint about a value."""
    for complaint in complaints:
        yield invalid(path, value, complaint)


def label_name(value: Any, path: str) -> Iterator[FieldError]:
    """A required DNS label."""
    if not value:
        yield required(path)
    else:
        yield from each(label_complaints(value), path, value)


def distinct_label(name: str, seen: set[str], path: str) -> Iterator[FieldError]:
    """The name of a list's item: a required DNS label that no item before it has. Adds it to `seen`."""
    yield from label_name(name, path)
    if name in seen:
        yield duplicate(path, name)
    seen.add(name)


def not_negative(value: Any, path: str) -> Iterator[FieldError]:
    if isinstance(value, int) and value < 0:
        yield invalid(path, value, NOT_NEGATIVE)


def unchanged(new: Any, old: Any, path: str) -> Iterator[FieldError]:
    if new != old:
        yield invalid(path, new, IMMUTABLE)


def unsupported(value: Any, allowed: Iterable[str], path: str) -> Iterator[FieldError]:
    """An enum: absent is fine, anything else must be one of these (shown sorted)."""
    choices = sorted(allowed)
    if value is not None and value not in choices:
        yield not_supported(path, value, choices)


def labels(given: Json | None, path: str) -> Iterator[FieldError]:
    for key, value in (given or {}).items():
        yield from each(qualified_name_complaints(key), path, key)
        yield from each(label_value_complaints(value), path, value)


def label_selector(selector: Json | None, path: str) -> Iterator[FieldError]:
    if selector is None:
        return
    yield from labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for index, one in enumerate(selector.get("matchExpressions") or []):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = one.get("operator", ""), one.get("values") or []
        if operator in {"In", "NotIn"}:
            if not values:
                yield required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in {"Exists", "DoesNotExist"}:
            if values:
                yield forbidden(f"{here}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        else:
            yield invalid(f"{here}.operator", operator, "not a valid selector operator")
        yield from each(qualified_name_complaints(one.get("key", "")), f"{here}.key", one.get("key", ""))
        for at, value in enumerate(values):
            yield from each(label_value_complaints(value), f"{here}.values[{at}]", value)


def config_keys(data: Json | None, path: str) -> Iterator[FieldError]:
    """Keys of ConfigMaps and Secrets."""
    for key in data or {}:
        here = f"{path}[{key}]"
        if len(key) > 253:
            yield invalid(here, key, "must be no more than 253 bytes")
        if not _CONFIG_KEY.fullmatch(key):
            yield invalid(
                here,
                key,
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
            )
        elif key in {".", ".."}:
            yield invalid(here, key, f"must not be '{key}'")


def unique(values: Iterable[Any], path: str, key: str = "") -> Iterator[FieldError]:
    """Duplicates in a list, each at its index (and key)."""
    seen = set()
    for index, value in enumerate(values):
        if value in seen:
            yield duplicate(f"{path}[{index}]{key}", value)
        seen.add(value)


def is_extended(name: str) -> bool:
    """A resource with a domain that is not Kubernetes' own, such as nvidia.com/gpu."""
    return (
        "/" in name
        and not name.split("/", maxsplit=1)[0].endswith("kubernetes.io")
        and not name.startswith("requests.")
    )


def resource_requirements(resources: Json, claims: Iterable[str], path: str) -> Iterator[FieldError]:
    """`resources` of a container: limits, requests and the claims it names."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, given in (("limits", limits), ("requests", requests)):
        for name, quantity in given.items():
            yield from _resource_name(name, f"{path}.{kind}")
            yield from _resource_value(name, quantity, f"{path}.{kind}[{name}]")
    for name, asked in requests.items():
        limit = limits.get(name)
        if limit is None:
            if is_extended(name):
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
            continue
        try:
            request, bound = Quantity.parse(asked), Quantity.parse(limit)
        except QuantityError:
            continue
        if is_extended(name) and request != bound:
            yield invalid(f"{path}.requests", str(request), f"must be equal to {name} limit of {bound}")
        elif request > bound:
            yield invalid(f"{path}.requests", str(request), f"must be less than or equal to {name} limit of {bound}")
    yield from _container_claims(resources.get("claims") or [], tuple(claims), f"{path}.claims")


def _resource_name(name: str, path: str) -> Iterator[FieldError]:
    complaints = qualified_name_complaints(name)
    yield from each(complaints, path, name)
    if complaints or "/" in name or name in _STANDARD_RESOURCES or name.startswith("hugepages-"):
        return
    if name in _NATIVE_OTHER:
        yield invalid(path, name, "must be a standard resource for containers")
    else:
        yield invalid(path, name, "must be a standard resource type or fully qualified")
        yield invalid(path, name, "must be a standard resource for containers")


def _resource_value(name: str, text: str, path: str) -> Iterator[FieldError]:
    try:
        quantity = Quantity.parse(text)
    except QuantityError as error:
        yield invalid(path, text, str(error))
        return
    if quantity < Quantity(0):
        yield invalid(path, text, NOT_NEGATIVE)
    elif is_extended(name) and quantity.exact_int is None:
        yield invalid(path, text, "must be an integer")


def _container_claims(claims: list[Json], known: tuple[str, ...], path: str) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(claims):
        name, request = claim.get("name", ""), claim.get("request", "")
        here = f"{path}[{index}]"
        if not name:
            yield required(f"{here}.name")
            continue
        if (name, request) in seen or (name, "") in seen:
            yield duplicate(here, f"{name}/{request}" if request else name)
        seen.add((name, request))
        if name not in known:
            detail = "must be one of the names in pod.spec.resourceClaims"
            yield not_found(here, name, detail if known else f"{detail} which is empty")
