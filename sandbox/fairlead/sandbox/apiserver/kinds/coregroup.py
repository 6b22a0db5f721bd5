"""The core group but pods: namespaces, nodes, config maps, secrets, service accounts, services, events.

Only the rules that the programs, kubectl and the recorded exchanges depend on; a kind that nothing here uses (volumes)
is served by its shape alone. Source: pkg/registry/core and pkg/apis/core (1.36).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid, required, too_long
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import qualified_name_complaints

NAME_LABEL = "kubernetes.io/metadata.name"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class NamespaceStrategy(BuiltIn):
    def default(self, obj: Json) -> None:
        name = obj.get("metadata", {}).get("name")
        if name:
            labels = obj["metadata"].setdefault("labels", {})
            labels[NAME_LABEL] = name

    def prepare_create(self, obj: Json, context: Context) -> None:
        obj["status"] = {"phase": "Active"}
        finalizers = obj.setdefault("spec", {}).setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")

    def prepare_update(self, new: Json, old: Json, context: Context) -> None:
        if context.subresource == "finalize":
            return
        if "finalizers" in old.get("spec", {}):
            new.setdefault("spec", {})["finalizers"] = old["spec"]["finalizers"]
        else:
            new.get("spec", {}).pop("finalizers", None)


class NodeStrategy(BuiltIn):
    def default(self, obj: Json) -> None:
        status = obj.get("status", {})
        if "allocatable" not in status and status.get("capacity"):
            status["allocatable"] = dict(status["capacity"])

    def prepare_create(self, obj: Json, context: Context) -> None:
        """A node registers itself with its status in one request."""

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        seen = set()
        for index, taint in enumerate(obj.get("spec", {}).get("taints") or []):
            here = f"spec.taints[{index}]"
            key, effect = taint.get("key", ""), taint.get("effect", "")
            yield from checks.each(qualified_name_complaints(key), f"{here}.key", key)
            if not effect:
                yield required(f"{here}.effect")
            else:
                yield from checks.unsupported(effect, _EFFECTS, f"{here}.effect")
            if (key, effect) in seen:
                yield invalid(here, taint, "taints must be unique by key and effect pair")
            seen.add((key, effect))

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        before, after = old.get("spec", {}), new.get("spec", {})
        for key in ("podCIDR", "podCIDRs", "providerID"):
            if before.get(key) and before[key] != after.get(key):
                yield forbidden(f"spec.{key}", f'node updates may not change {key} except from "" to valid')


class ConfigMapStrategy(BuiltIn):
    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        yield from checks.config_keys(data, "data")
        yield from checks.config_keys(binary, "binaryData")
        for key in data:
            if key in binary:
                yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        size = sum(len(k) + len(v.encode()) for k, v in data.items()) + sum(len(k) + len(v) for k, v in binary.items())
        if size > 2**20:
            yield too_long("", 2**20)

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        yield from _immutable_data(new, old, ("data", "binaryData"))


def _immutable_data(new: Json, old: Json, keys: Iterable[str]) -> Iterator[FieldError]:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden("immutable", "field is immutable when `immutable` is set")
    for key in keys:
        if (new.get(key) or {}) != (old.get(key) or {}):
            yield forbidden(key, "field is immutable when `immutable` is set")


class SecretStrategy(BuiltIn):
    def default(self, obj: Json) -> None:
        super().default(obj)
        given = obj.pop("stringData", None) or {}
        if given:
            data = obj.setdefault("data", {})
            data.update({key: base64.b64encode(value.encode()).decode() for key, value in given.items()})

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        data = obj.get("data") or {}
        yield from checks.config_keys(data, "data")
        if obj.get("type") == "kubernetes.io/tls":
            for key in ("tls.crt", "tls.key"):
                if key not in data:
                    yield required(f"data[{key}]")

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        yield from checks.unchanged(new.get("type"), old.get("type"), "type")
        yield from _immutable_data(new, old, ("data",))


class ServiceStrategy(BuiltIn):
    def default(self, obj: Json) -> None:
        super().default(obj)
        spec = obj["spec"]
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")
        for port in spec.get("ports") or []:
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port.get("port", 0)

    def prepare_create(self, obj: Json, context: Context) -> None:
        obj["status"] = {"loadBalancer": {}}
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        if not spec.get("clusterIP"):
            random = context.services.random
            spec["clusterIP"] = f"10.96.{random.randrange(256)}.{random.randrange(1, 255)}"
        spec["clusterIPs"] = [spec["clusterIP"]]

    def prepare_update(self, new: Json, old: Json, context: Context) -> None:
        for key in ("clusterIP", "clusterIPs"):
            if not new.get("spec", {}).get(key) and old.get("spec", {}).get(key):
                new["spec"][key] = old["spec"][key]

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj.get("spec", {})
        if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
            yield required("spec.ports")
        for index, port in enumerate(spec.get("ports") or []):
            number = port.get("port", 0)
            if not 1 <= number <= 65535:
                yield invalid(f"spec.ports[{index}].port", number, "must be between 1 and 65535, inclusive")

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        if old["spec"].get("type") == new["spec"].get("type") != "ExternalName":
            yield from checks.unchanged(new["spec"].get("clusterIPs"), old["spec"].get("clusterIPs"), "spec.clusterIPs")


_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}


class CoreEventStrategy(BuiltIn):
    def selectable_fields(self, obj: Json) -> dict[str, str]:
        involved = obj.get("involvedObject") or {}
        source = obj.get("source") or {}
        values: dict[str, Any] = {
            f"involvedObject.{path.split('.')[1]}": involved.get(path.split(".")[1])
            for path in _EVENT_FIELDS
            if "." in path
        }
        component = source.get("component") or obj.get("reportingComponent")
        values |= {"reason": obj.get("reason"), "reportingComponent": obj.get("reportingComponent")}
        values |= {"source": component, "type": obj.get("type")}
        return {key: str(value or "") for key, value in values.items()}

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        involved = obj.get("involvedObject") or {}
        namespace = obj.get("metadata", {}).get("namespace", "")
        if (involved.get("namespace") or "default") != namespace:
            yield invalid("involvedObject.namespace", involved.get("namespace", ""), "does not match event.namespace")


class NewEventStrategy(CoreEventStrategy):
    """events.k8s.io/v1: the same objects with other names. They are stored in the core's form."""

    def from_storage(self, obj: Json) -> Json:
        out = dict(obj)
        for old, new in _RENAMED.items():
            if old in out:
                out[new] = out.pop(old)
        if not out.get("reportingInstance"):
            out.pop("reportingInstance", None)
        if not out.get("reportingController"):
            out.pop("reportingController", None)
        return out

    def to_storage(self, obj: Json) -> Json:
        out = dict(obj)
        for old, new in _RENAMED.items():
            if new in out:
                out[old] = out.pop(new)
        out.setdefault("reportingComponent", "")
        out.setdefault("reportingInstance", "")
        return out

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        values = super().selectable_fields(self.to_storage(obj))
        out = {key.replace("involvedObject.", "regarding."): value for key, value in values.items()}
        out["reportingController"] = out.pop("reportingComponent")
        del out["source"]
        return out

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        for key in ("reportingController", "reportingInstance", "reason", "action"):
            if not obj.get(key) and not obj.get("deprecatedSource"):
                yield required(key)
        if obj.get("eventTime") is None and not obj.get("deprecatedFirstTimestamp"):
            yield required("eventTime")
