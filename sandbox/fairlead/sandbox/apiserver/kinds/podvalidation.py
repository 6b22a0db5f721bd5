"""Validation of pod specs, of pods and of templates: containers, claims, gates, affinity, tolerations.

The errors are the real apiserver's. Covers what schedulers and DRA users write; volumes, probes and security contexts are
checked for shape only. Source: pkg/apis/core/validation/validation.go (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.sandbox.apiserver.kinds import checks
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
from fairlead.sandbox.apiserver.names import label_complaints, qualified_name_complaints, subdomain_complaints

RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def pod_spec(spec: Json, path: str = "spec") -> Iterator[FieldError]:
    """Every complaint about a pod spec, in the order that Go reports them."""
    claims = [claim.get("name", "") for claim in spec.get("resourceClaims") or []]
    volumes = {volume.get("name", "") for volume in spec.get("volumes") or []}
    yield from _volumes(spec, f"{path}.volumes")
    yield from _resource_claims(spec.get("resourceClaims") or [], f"{path}.resourceClaims")
    yield from _containers(spec, claims, volumes, path)
    if spec.get("restartPolicy") not in RESTART_POLICIES:
        yield from checks.unsupported(spec.get("restartPolicy"), RESTART_POLICIES, f"{path}.restartPolicy")
    yield from checks.unsupported(spec.get("dnsPolicy"), _DNS_POLICIES, f"{path}.dnsPolicy")
    if "activeDeadlineSeconds" in spec and not 1 <= spec["activeDeadlineSeconds"] <= 2**31 - 1:
        yield invalid(
            f"{path}.activeDeadlineSeconds",
            spec["activeDeadlineSeconds"],
            "must be between 1 and 2147483647, inclusive",
        )
    yield from checks.not_negative(spec.get("terminationGracePeriodSeconds"), f"{path}.terminationGracePeriodSeconds")
    yield from checks.labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    account = spec.get("serviceAccountName")
    if account:
        yield from checks.each(subdomain_complaints(account), f"{path}.serviceAccountName", account)
    if spec.get("nodeName"):
        yield from checks.each(subdomain_complaints(spec["nodeName"]), f"{path}.nodeName", spec["nodeName"])
    yield from _affinity(spec.get("affinity") or {}, f"{path}.affinity")
    yield from tolerations(spec.get("tolerations") or [], f"{path}.tolerations")
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            yield from checks.each(label_complaints(spec[key]), f"{path}.{key}", spec[key])
    if spec.get("priorityClassName"):
        name = spec["priorityClassName"]
        yield from checks.each(subdomain_complaints(name), f"{path}.priorityClassName", name)
    yield from scheduling_gates(spec.get("schedulingGates") or [], f"{path}.schedulingGates")
    for index, gate in enumerate(spec.get("readinessGates") or []):
        name = gate.get("conditionType", "")
        yield from checks.each(qualified_name_complaints(name), f"{path}.readinessGates[{index}].conditionType", name)


def _volumes(spec: Json, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or []):
        yield from checks.distinct_label(volume.get("name", ""), seen, f"{path}[{index}].name")
        if len(set(volume) - {"name"}) > 1:
            extra = sorted(set(volume) - {"name"})[1]
            yield forbidden(f"{path}[{index}].{extra}", "may not specify more than 1 volume type")


def _resource_claims(claims: list[Json], path: str) -> Iterator[FieldError]:
    seen = set()
    for index, claim in enumerate(claims):
        here, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            yield required(f"{here}.name")
        elif name in seen:
            yield duplicate(f"{here}.name", name)
        else:
            yield from checks.each(label_complaints(name), f"{here}.name", name)
        seen.add(name)
        claim_name, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        shown = {"Name": name, "ResourceClaimName": claim_name, "ResourceClaimTemplateName": template}
        if claim_name is not None and template is not None:
            yield invalid(
                here, shown, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
        if claim_name is None and template is None:
            yield invalid(here, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        for key, value in (("resourceClaimName", claim_name), ("resourceClaimTemplateName", template)):
            if value is not None:
                yield from checks.each(subdomain_complaints(value), f"{here}.{key}", value)


def _containers(spec: Json, claims: list[str], volumes: set[str], path: str) -> Iterator[FieldError]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for key in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(key) or []):
            here = f"{path}.{key}[{index}]"
            yield from checks.distinct_label(container.get("name", ""), seen, f"{here}.name")
            yield from _container(container, claims, volumes, here)


def _container(container: Json, claims: list[str], volumes: set[str], path: str) -> Iterator[FieldError]:
    image = container.get("image", "")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    ports = set()
    for index, port in enumerate(container.get("ports") or []):
        here, number = f"{path}.ports[{index}]", port.get("containerPort", 0)
        if not number:
            yield required(f"{here}.containerPort")
        elif not 1 <= number <= 65535:
            yield invalid(f"{here}.containerPort", number, "must be between 1 and 65535, inclusive")
        if port.get("name"):
            if port["name"] in ports:
                yield duplicate(f"{here}.name", port["name"])
            ports.add(port["name"])
        yield from checks.unsupported(port.get("protocol"), ("SCTP", "TCP", "UDP"), f"{here}.protocol")
    for index, variable in enumerate(container.get("env") or []):
        if not variable.get("name"):
            yield required(f"{path}.env[{index}].name")
        if variable.get("value") and variable.get("valueFrom"):
            yield invalid(f"{path}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty")
    mounts = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        here = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            yield required(f"{here}.name")
        elif mount["name"] not in volumes:
            yield not_found(f"{here}.name", mount["name"])
        if not mount.get("mountPath"):
            yield required(f"{here}.mountPath")
        elif mount["mountPath"] in mounts:
            yield invalid(f"{here}.mountPath", mount["mountPath"], "must be unique")
        mounts.add(mount.get("mountPath"))
    yield from checks.unsupported(container.get("imagePullPolicy"), _PULL_POLICIES, f"{path}.imagePullPolicy")
    yield from checks.resource_requirements(container.get("resources") or {}, claims, f"{path}.resources")


def scheduling_gates(gates: list[Json], path: str) -> Iterator[FieldError]:
    seen = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from checks.each(qualified_name_complaints(name), f"{path}[{index}]", name)
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)


def tolerations(given: list[Json], path: str) -> Iterator[FieldError]:
    for index, one in enumerate(given):
        here = f"{path}[{index}]"
        key, operator, value, effect = (one.get(k, "") for k in ("key", "operator", "value", "effect"))
        if key:
            yield from checks.each(qualified_name_complaints(key), f"{here}.key", key)
        if not key and operator != "Exists":
            yield invalid(
                f"{here}.operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        if one.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield invalid(f"{here}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator == "Exists" and value:
            yield invalid(f"{here}.operator", one, "value must be empty when `operator` is 'Exists'")
        elif operator not in ("", "Equal", "Exists", "Lt", "Gt"):
            yield not_supported(f"{here}.operator", operator, ("Equal", "Exists"))
        if effect and effect not in _EFFECTS:
            yield not_supported(f"{here}.effect", effect, _EFFECTS)


def _affinity(affinity: Json, path: str) -> Iterator[FieldError]:
    node = affinity.get("nodeAffinity") or {}
    hard = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    here = f"{path}.nodeAffinity"
    if hard is not None:
        yield from node_selector(hard, f"{here}.requiredDuringSchedulingIgnoredDuringExecution")
    for index, soft in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or []):
        one = f"{here}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        weight = soft.get("weight", 0)
        if not 1 <= weight <= 100:
            yield invalid(f"{one}.weight", weight, "must be in the range 1-100")
        yield from _node_selector_term(soft.get("preference") or {}, f"{one}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = [
            (f"requiredDuringSchedulingIgnoredDuringExecution[{i}]", term)
            for i, term in enumerate(
                (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or []
            )
        ]
        for where, term in terms:
            if not term.get("topologyKey"):
                yield required(f"{path}.{kind}.{where}.topologyKey", "can not be empty")
            yield from checks.label_selector(term.get("labelSelector"), f"{path}.{kind}.{where}.labelSelector")


def node_selector(selector: Json, path: str) -> Iterator[FieldError]:
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from _node_selector_term(term, f"{path}.nodeSelectorTerms[{index}]")


def _node_selector_term(term: Json, path: str) -> Iterator[FieldError]:
    for index, one in enumerate(term.get("matchExpressions") or []):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = one.get("operator", ""), one.get("values") or []
        if operator in {"In", "NotIn"} and not values:
            yield required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in {"Exists", "DoesNotExist"} and values:
            yield forbidden(f"{here}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        elif operator in {"Gt", "Lt"} and len(values) != 1:
            yield required(f"{here}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        elif operator not in _NODE_OPERATORS:
            yield invalid(f"{here}.operator", operator, "not a valid selector operator")
        yield from checks.each(qualified_name_complaints(one.get("key", "")), f"{here}.key", one.get("key", ""))
    for index, one in enumerate(term.get("matchFields") or []):
        here = f"{path}.matchFields[{index}]"
        values = one.get("values") or []
        if one.get("operator") in {"In", "NotIn"}:
            if len(values) != 1:
                yield required(
                    f"{here}.values",
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                )
        else:
            yield invalid(f"{here}.operator", one.get("operator", ""), "not a valid selector operator")
        if one.get("key") != "metadata.name":
            yield invalid(f"{here}.key", one.get("key", ""), "not a valid field selector key")
        else:
            for at, value in enumerate(values):
                yield from checks.each(subdomain_complaints(value), f"{here}.values[{at}]", value)
