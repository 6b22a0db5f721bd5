"""Request bodies in Kubernetes' protobuf encoding, for the kinds that kubectl's own commands send that way.

kubectl (auth can-i, create namespace, drain, …) writes protobuf without negotiation. Decodes to the same dicts as JSON;
never encodes: every client that writes protobuf also reads JSON. A kind or field that is not in the tables is refused by
name, never dropped.
Source: the field numbers of k8s.io/api and k8s.io/apimachinery (1.36), wire format of protobuf 2.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Field number → (JSON name, type). Types: string, int, bool, bytes, a message's name, time, micro, quantity, intstr, and
# `skip` for what a server never reads. A leading * is a list, % a map from strings.
_Fields = dict[int, tuple[str, str]]


def _fields(text: str) -> _Fields:
    """`1 name string, 2 spec Spec` as a table."""
    rows = (row.split() for row in text.split(","))
    return {int(number): (name, kind) for number, name, kind in rows}


_WHOLE = "1 metadata ObjectMeta, 2 spec {0}Spec, 3 status skip"
_MESSAGES: dict[str, _Fields] = {
    "ObjectMeta": _fields(
        "1 name string, 2 generateName string, 3 namespace string, 4 selfLink string, 5 uid string, 6 resourceVersion string,"
        "7 generation int, 8 creationTimestamp time, 9 deletionTimestamp time, 10 deletionGracePeriodSeconds int,"
        "11 labels %string, 12 annotations %string, 13 ownerReferences *OwnerReference, 14 finalizers *string,"
        "17 managedFields *skip"
    ),
    "OwnerReference": _fields(
        "1 kind string, 3 name string, 4 uid string, 5 apiVersion string, 6 controller bool, 7 blockOwnerDeletion bool"
    ),
    "LabelSelector": _fields("1 matchLabels %string, 2 matchExpressions *Requirement"),
    "Requirement": _fields("1 key string, 2 operator string, 3 values *string"),
    "DeleteOptions": _fields(
        "1 gracePeriodSeconds int, 2 preconditions Preconditions, 3 orphanDependents bool, 4 propagationPolicy string,"
        "5 dryRun *string, 6 ignoreStoreReadErrorWithClusterBreakingPotential bool"
    ),
    "Preconditions": _fields("1 uid string, 2 resourceVersion string"),
    "ObjectReference": _fields(
        "1 kind string, 2 namespace string, 3 name string, 4 uid string, 5 apiVersion string, 6 resourceVersion string,"
        "7 fieldPath string"
    ),
    "LocalReference": _fields("1 name string"),
    # authorization.k8s.io, authentication.k8s.io
    "SelfSubjectAccessReview": _fields(_WHOLE.format("SelfSubjectAccessReview")),
    "SelfSubjectAccessReviewSpec": _fields(
        "1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes PathAttributes"
    ),
    "SubjectAccessReview": _fields(_WHOLE.format("SubjectAccessReview")),
    "LocalSubjectAccessReview": _fields(_WHOLE.format("SubjectAccessReview")),
    "SubjectAccessReviewSpec": _fields(
        "1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes PathAttributes, 3 user string, 4 groups *string,"
        "5 extra %Strings, 6 uid string"
    ),
    "Strings": _fields("1 items *string"),
    "ResourceAttributes": _fields(
        "1 namespace string, 2 verb string, 3 group string, 4 version string, 5 resource string, 6 subresource string,"
        "7 name string"
    ),
    "PathAttributes": _fields("1 path string, 2 verb string"),
    "SelfSubjectRulesReview": _fields(_WHOLE.format("SelfSubjectRulesReview")),
    "SelfSubjectRulesReviewSpec": _fields("1 namespace string"),
    "SelfSubjectReview": _fields("1 metadata ObjectMeta, 2 status skip"),
    "TokenReview": _fields(_WHOLE.format("TokenReview")),
    "TokenReviewSpec": _fields("1 token string, 2 audiences *string"),
    "TokenRequest": _fields(_WHOLE.format("TokenRequest")),
    "TokenRequestSpec": _fields("1 audiences *string, 3 boundObjectRef BoundObject, 4 expirationSeconds int"),
    "BoundObject": _fields("1 kind string, 2 apiVersion string, 3 name string, 4 uid string"),
    # core
    "Namespace": _fields(_WHOLE.format("Namespace")),
    "NamespaceSpec": _fields("1 finalizers *string"),
    "ServiceAccount": _fields(
        "1 metadata ObjectMeta, 2 secrets *ObjectReference, 3 imagePullSecrets *LocalReference,"
        "4 automountServiceAccountToken bool"
    ),
    "ConfigMap": _fields("1 metadata ObjectMeta, 2 data %string, 3 binaryData %bytes, 4 immutable bool"),
    "Secret": _fields("1 metadata ObjectMeta, 2 data %bytes, 3 type string, 4 stringData %string, 5 immutable bool"),
    "ResourceQuota": _fields(_WHOLE.format("ResourceQuota")),
    "ResourceQuotaSpec": _fields("1 hard %quantity, 2 scopes *string"),
    "Binding": _fields("1 metadata ObjectMeta, 2 target ObjectReference"),
    "PodTemplateSpec": _fields("1 metadata ObjectMeta, 2 spec PodSpec"),
    "PodSpec": _fields(
        "2 containers *Container, 3 restartPolicy string, 4 terminationGracePeriodSeconds int, 5 activeDeadlineSeconds int,"
        "6 dnsPolicy string, 7 nodeSelector %string, 8 serviceAccountName string, 9 serviceAccount string, 10 nodeName string,"
        "11 hostNetwork bool, 12 hostPID bool, 13 hostIPC bool, 14 securityContext skip, 15 imagePullSecrets *LocalReference,"
        "16 hostname string, 17 subdomain string, 19 schedulerName string, 24 priorityClassName string"
    ),
    "Container": _fields(
        "1 name string, 2 image string, 3 command *string, 4 args *string, 5 workingDir string, 6 ports *ContainerPort,"
        "7 env *EnvVar, 8 resources Resources, 13 terminationMessagePath string, 14 imagePullPolicy string, 16 stdin bool,"
        "17 stdinOnce bool, 18 tty bool, 20 terminationMessagePolicy string"
    ),
    "ContainerPort": _fields("1 name string, 2 hostPort int, 3 containerPort int, 4 protocol string, 5 hostIP string"),
    "EnvVar": _fields("1 name string, 2 value string"),
    "Resources": _fields("1 limits %quantity, 2 requests %quantity, 3 claims *ResourceClaim"),
    "ResourceClaim": _fields("1 name string, 2 request string"),
    # apps, batch, autoscaling, policy, scheduling, coordination
    "Deployment": _fields(_WHOLE.format("Deployment")),
    "DeploymentSpec": _fields(
        "1 replicas int, 2 selector LabelSelector, 3 template PodTemplateSpec, 4 strategy DeploymentStrategy,"
        "5 minReadySeconds int, 6 revisionHistoryLimit int, 7 paused bool, 9 progressDeadlineSeconds int"
    ),
    "DeploymentStrategy": _fields("1 type string, 2 rollingUpdate RollingUpdate"),
    "RollingUpdate": _fields("1 maxUnavailable intstr, 2 maxSurge intstr"),
    "Job": _fields(_WHOLE.format("Job")),
    "JobSpec": _fields(
        "1 parallelism int, 2 completions int, 3 activeDeadlineSeconds int, 4 selector LabelSelector, 5 manualSelector bool,"
        "6 template PodTemplateSpec, 7 backoffLimit int, 8 ttlSecondsAfterFinished int, 9 completionMode string, 10 suspend bool"
    ),
    "Scale": _fields(_WHOLE.format("Scale")),
    "ScaleSpec": _fields("1 replicas int"),
    "Eviction": _fields("1 metadata ObjectMeta, 2 deleteOptions DeleteOptions"),
    "PodDisruptionBudget": _fields(_WHOLE.format("PodDisruptionBudget")),
    "PodDisruptionBudgetSpec": _fields(
        "1 minAvailable intstr, 2 selector LabelSelector, 3 maxUnavailable intstr, 4 unhealthyPodEvictionPolicy string"
    ),
    "PriorityClass": _fields(
        "1 metadata ObjectMeta, 2 value int, 3 globalDefault bool, 4 description string, 5 preemptionPolicy string"
    ),
    "Lease": _fields("1 metadata ObjectMeta, 2 spec LeaseSpec"),
    "LeaseSpec": _fields(
        "1 holderIdentity string, 2 leaseDurationSeconds int, 3 acquireTime micro, 4 renewTime micro, 5 leaseTransitions int"
    ),
    # rbac.authorization.k8s.io
    "Role": _fields("1 metadata ObjectMeta, 2 rules *PolicyRule"),
    "ClusterRole": _fields("1 metadata ObjectMeta, 2 rules *PolicyRule, 3 aggregationRule AggregationRule"),
    "AggregationRule": _fields("1 clusterRoleSelectors *LabelSelector"),
    "PolicyRule": _fields(
        "1 verbs *string, 2 apiGroups *string, 3 resources *string, 4 resourceNames *string, 5 nonResourceURLs *string"
    ),
    "RoleBinding": _fields("1 metadata ObjectMeta, 2 subjects *Subject, 3 roleRef RoleRef"),
    "ClusterRoleBinding": _fields("1 metadata ObjectMeta, 2 subjects *Subject, 3 roleRef RoleRef"),
    "Subject": _fields("1 kind string, 2 apiGroup string, 3 name string, 4 namespace string"),
    "RoleRef": _fields("1 apiGroup string, 2 kind string, 3 name string"),
}


class UnsupportedError(ValueError):
    """A kind or field that the tables do not have."""


class MalformedError(ValueError):
    """Not protobuf as Kubernetes wraps it."""


def decode(data: bytes) -> Json:
    """A body (magic number, then a runtime.Unknown) as JSON would have it. Raises UnsupportedError, MalformedError."""
    if not data.startswith(_MAGIC):
        raise MalformedError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    api_version = kind = ""
    raw = b""
    for number, value in _parse(memoryview(data)[len(_MAGIC) :]):
        if number == 1:
            types = {field: bytes(one).decode() for field, one in _parse(value)}
            api_version, kind = types.get(1, ""), types.get(2, "")
        elif number == 2:
            raw = bytes(value)
    if kind not in _MESSAGES or kind.endswith("Spec"):
        raise UnsupportedError(f"{api_version}, Kind={kind} in protobuf is not understood here; send JSON")
    return {"apiVersion": api_version, "kind": kind, **_message(memoryview(raw), kind)}


def _parse(data: memoryview) -> Iterator[tuple[int, Any]]:
    """(field number, value): an int for numbers, a view for bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in {_FIXED64, _FIXED32}:
            size = 8 if wire == _FIXED64 else 4
        else:
            raise MalformedError(f"wire type {wire} of field {number}")
        if at + size > len(data):
            raise MalformedError("unexpected EOF")
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise MalformedError("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _message(data: memoryview, name: str) -> Json:
    """One message. Empty strings are absent, as JSON leaves them out."""
    found: Json = {}
    for number, raw in _parse(data):
        if number not in _MESSAGES[name]:
            raise UnsupportedError(f"field {number} of {name} in protobuf is not understood here; send JSON")
        field, kind = _MESSAGES[name][number]
        if kind.endswith("skip"):
            continue
        if kind.startswith("*"):
            found.setdefault(field, []).append(_value(raw, kind[1:]))
        elif kind.startswith("%"):
            entry = dict(_parse(raw))
            key = bytes(entry.get(1, b"")).decode()
            found.setdefault(field, {})[key] = _value(entry.get(2, memoryview(b"")), kind[1:])
        else:
            value = _value(raw, kind)
            if value not in ("", None):
                found[field] = value
    return found


def _value(raw: Any, kind: str) -> Any:
    if kind == "string":
        return bytes(raw).decode()
    if kind == "int":
        return raw - (1 << 64) if raw >> 63 else raw
    if kind == "bool":
        return bool(raw)
    if kind == "bytes":
        return base64.b64encode(bytes(raw)).decode()
    if kind == "quantity":
        return bytes(dict(_parse(raw)).get(1, b"0")).decode()
    if kind == "intstr":
        parts = dict(_parse(raw))
        return bytes(parts.get(3, b"")).decode() if parts.get(1) else parts.get(2, 0)
    if kind in {"time", "micro"}:
        return _time(dict(_parse(raw)), micro=kind == "micro")
    if kind == "Strings":
        return _message(raw, kind).get("items", [])
    return _message(raw, kind)


def _time(parts: dict[int, Any], *, micro: bool) -> str | None:
    seconds = parts.get(1, 0)
    seconds = seconds - (1 << 64) if seconds >> 63 else seconds
    if not parts or seconds <= 0:
        return None
    moment = _EPOCH + timedelta(seconds=seconds, microseconds=parts.get(2, 0) // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
