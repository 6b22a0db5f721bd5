"""Limits of slices, claims and classes, and the checks that they share: names, selectors, opaque configs, sets with a limit.

Source: k8s.io/api/resource/v1/types.go, pkg/apis/resource/validation/validation.go (1.36).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

from fairlead.cel import CompileError, Environment
from fairlead.cel.devices.selector import stored_selector
from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import (
    label_complaints,
    label_value_complaints,
    qualified_name_complaints,
    subdomain_complaints,
)

_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_C_COMPLAINT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
VERDICTS = 512  # of up to 10 KiB each; repeated selectors, and those of one claim
OMITTED = "<value omitted>"
REQUEST_REF = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"

Check = Callable[[Any, str], Iterator[FieldError]]


def items(
    values: list[Any] | None, limit: int, check: Check, path: str, *, key: Callable[[Any], Hashable] | None = None
) -> Iterator[FieldError]:
    """A list with a limit; with `key`, a set: the second of two equal items is reported by its index."""
    values = values or []
    if len(values) > limit:
        yield too_many(path, len(values), limit)
    seen: set[Hashable] = set()
    for index, value in enumerate(values[:limit]):
        here = f"{path}[{index}]"
        yield from check(value, here)
        if key is not None:
            mark = key(value)
            if mark in seen:
                yield duplicate(here, mark)
            seen.add(mark)


def by_name(value: Json) -> str:
    return str(value.get("name", ""))


def itself(value: Any) -> Hashable:
    return str(value)


def dns_label(value: str, path: str) -> Iterator[FieldError]:
    yield from checks.each(label_complaints(value), path, value)


def driver_name(value: str, path: str) -> Iterator[FieldError]:
    if not value:
        yield required(path)
        return
    if len(value) > DRIVER_NAME_BYTES:
        yield too_long(path, DRIVER_NAME_BYTES)
    yield from checks.each(subdomain_complaints(value.lower()), path, value)


def pool_name(value: str, path: str) -> Iterator[FieldError]:
    if not value:
        yield required(path)
        return
    if len(value) > POOL_NAME_BYTES:
        yield too_long(path, POOL_NAME_BYTES)
    for part in value.split("/"):
        yield from checks.each(subdomain_complaints(part), path, part)


def qualified_name(value: str, path: str) -> Iterator[FieldError]:
    """`[domain/]id`, as attributes and capacities are called."""
    if not value:
        yield required(path, "name required")
        return
    if value.count("/") > 1:
        return  # 1.36 accepts these as they are (fixed in 1.38)
    domain, slash, name = value.rpartition("/")
    if slash:
        if not domain:
            yield required(path, "the domain must not be empty")
        else:
            yield from driver_name(domain, path)
        if not name:
            yield required(path, "the name must not be empty")
            return
    if len(name) > ID_BYTES:
        yield too_long(path, ID_BYTES)
    if not _C_IDENTIFIER.fullmatch(name):
        yield invalid(path, name, _C_COMPLAINT)


def fully_qualified_name(value: str, path: str) -> Iterator[FieldError]:
    yield from qualified_name(value, path)
    if value and "/" not in value:
        yield invalid(path, value, "a fully qualified name must be a domain and a name separated by a slash")


def selectors(given: list[Json] | None, path: str, environment: Environment) -> Iterator[FieldError]:
    """New selectors, of that environment."""

    def selector(one: Json, here: str) -> Iterator[FieldError]:
        cel = one.get("cel")
        if cel is None:
            yield required(f"{here}.cel")
            return
        yield from expression(cel.get("expression", ""), f"{here}.cel.expression", environment)

    yield from items(given, SELECTORS, selector, path)


def expression(text: str, path: str, environment: Environment) -> Iterator[FieldError]:
    """A device selector: it must compile, and its worst case must be affordable."""
    if len(text.encode()) > EXPRESSION_BYTES:
        yield too_long(path, EXPRESSION_BYTES)
        return
    complaint, too_complex = _verdict(text, environment)
    if complaint:
        yield invalid(path, text, f"compilation failed: {complaint}")
    elif too_complex:
        yield forbidden(path, "too complex, exceeds cost limit")


@functools.lru_cache(maxsize=VERDICTS)
def _verdict(text: str, environment: Environment) -> tuple[str, bool]:
    """Why it does not compile, or an empty string; whether it costs too much."""
    try:
        compiled = stored_selector(text, environment)
    except CompileError as error:
        return str(error), False
    return "", compiled.estimated_cost > EXPRESSION_COST


def verdicts(spec: Json, environment: Environment) -> list[Callable[[], object]]:
    """Each judges one selector of a claim's spec, so that `expression` need not.

    The largest take 20 ms, and a claim may have hundreds; the real apiserver compiles them beside its other requests.
    """
    texts: dict[str, None] = {}
    for request in (spec.get("devices") or {}).get("requests") or []:
        for one in [request.get("exactly") or {}, *(request.get("firstAvailable") or [])]:
            for selector in one.get("selectors") or []:
                texts[(selector.get("cel") or {}).get("expression", "")] = None
    short = [text for text in texts if len(text.encode()) <= EXPRESSION_BYTES]
    return [functools.partial(_verdict, text, environment) for text in short]


def configuration(config: Json, path: str) -> Iterator[FieldError]:
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from driver_name(opaque.get("driver", ""), f"{path}.opaque.driver")
    yield from raw_object(opaque.get("parameters"), f"{path}.opaque.parameters", OPAQUE_BYTES)


def raw_object(value: Any, path: str, limit_bytes: int) -> Iterator[FieldError]:
    """Opaque JSON: an object, and not too long."""
    if value is None:
        yield required(path)
    elif len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > limit_bytes:
        yield too_long(path, limit_bytes)
    elif not isinstance(value, dict):
        yield invalid(path, OMITTED, "must be a valid JSON object")


def request_ref(names: set[str]) -> Check:
    """A reference to "request" or "request/subrequest" of this claim."""

    def check(value: str, path: str) -> Iterator[FieldError]:
        parts = value.split("/")
        if len(parts) <= 2:
            errors = [error for part in parts for error in dns_label(part, path)]
            if errors:
                yield from errors
                return
        if value not in names:
            yield invalid(path, value, REQUEST_REF)

    return check


def request_names(claim_spec: Json) -> set[str]:
    names = set()
    for request in (claim_spec.get("devices") or {}).get("requests") or []:
        names.add(request.get("name", ""))
        for sub in request.get("firstAvailable") or []:
            names.add(f"{request.get('name', '')}/{sub.get('name', '')}")
    return names


def toleration(one: Json, path: str) -> Iterator[FieldError]:
    key, operator, value, effect = (one.get(k, "") for k in ("key", "operator", "value", "effect"))
    if key:
        yield from checks.each(qualified_name_complaints(key), f"{path}.key", key)
    if operator == "Exists":
        if value:
            yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from checks.each(label_value_complaints(value), f"{path}.value", value)
    elif not operator:
        yield required(f"{path}.operator")
    else:
        yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    if not key and operator != "Exists":
        yield invalid(f"{path}.operator", operator, "must be `Exists` when `key` is empty")
    if effect not in {"", "NoSchedule", "NoExecute", "None"}:
        yield not_supported(f"{path}.effect", effect, ("NoExecute", "NoSchedule", "None"))


def binding_conditions(obj: Json, path: str) -> Iterator[FieldError]:
    """Both lists or neither; label names; nothing in both."""
    wait, fail = obj.get("bindingConditions") or [], obj.get("bindingFailureConditions") or []

    def condition(value: str, here: str) -> Iterator[FieldError]:
        yield from checks.each(qualified_name_complaints(value), here, value)

    yield from items(wait, BINDING_CONDITIONS, condition, f"{path}.bindingConditions", key=itself)
    yield from items(fail, BINDING_CONDITIONS, condition, f"{path}.bindingFailureConditions", key=itself)
    if wait and not fail:
        yield required(
            f"{path}.bindingFailureConditions", "bindingFailureConditions are required to use bindingConditions"
        )
    if fail and not wait:
        yield required(f"{path}.bindingConditions", "bindingConditions are required to use bindingFailureConditions")
    for index, value in enumerate(fail):
        if value in wait:
            yield invalid(
                f"{path}.bindingFailureConditions[{index}]",
                value,
                "bindingFailureConditions must not overlap with bindingConditions",
            )


DEVICES: Final = 128
ADVANCED_DEVICES: Final = 64  # when any device has taints or consumes counters
ATTRIBUTES_AND_CAPACITIES: Final = 32
ATTRIBUTE_VALUE_BYTES: Final = 64
ID_BYTES: Final = 32
POOL_NAME_BYTES: Final = 253
DRIVER_NAME_BYTES: Final = 63
COUNTER_SETS: Final = 8
COUNTERS: Final = 32
CONSUMPTIONS: Final = 2
TAINTS: Final = 16
BINDING_CONDITIONS: Final = 4
VALID_VALUES: Final = 10

REQUESTS: Final = 32
CONSTRAINTS: Final = 32
CONFIGS: Final = 32
SELECTORS: Final = 32
FIRST_AVAILABLE: Final = 8
OPAQUE_BYTES: Final = 10 * 1024
EXPRESSION_BYTES: Final = 10 * 1024
EXPRESSION_COST: Final = 1_000_000

RESULTS: Final = 32
ALLOCATED_CONFIGS: Final = 64
RESERVED_FOR: Final = 256
DEVICE_CONDITIONS: Final = 8
DEVICE_DATA_BYTES: Final = 10 * 1024
INTERFACE_NAME_BYTES: Final = 256
IPS: Final = 16
HARDWARE_ADDRESS_BYTES: Final = 128
