"""The strategy of a custom kind, one version of one CustomResourceDefinition, and how a definition ends.

Its objects are pruned, defaulted, validated and printed as the schema says. Conversion is "None": every version shows the
stored object as it is. A finalizer holds a deleted definition until its last object is removed: in the real apiserver a controller cleans
up; here it happens with the deletion, and again whenever an object of the definition is removed. Objects with finalizers are marked and
waited for. No object can be created meanwhile.
Source: apiextensions-apiserver/pkg/registry/{customresource,customresourcedefinition/etcd.go}, pkg/controller/finalizer (1.36).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Protocol, cast

from fairlead.sandbox.apiserver import tables
from fairlead.sandbox.apiserver.crds import definition, rules, values
from fairlead.sandbox.apiserver.kinds.base import STATUS, Column, Context, Kind, Registry, Strategy, Subresource
from fairlead.sandbox.apiserver.kinds.errors import FieldError
from fairlead.sandbox.apiserver.kinds.request import Json, Rejected
from fairlead.sandbox.apiserver.store import Store

VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_OPEN: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class CustomStrategy(Strategy):
    custom_resource = True
    generation = True
    status_resets_metadata = True
    allow_unconditional_update = False

    def __init__(self, group: str, plural: str, version: Json) -> None:
        self.group, self.plural, self.version = group, plural, version
        self.root: Json = (version.get("schema") or {}).get("openAPIV3Schema") or _OPEN
        self.schema = {
            **self.root,
            "properties": {**(self.root.get("properties") or {}), "metadata": {"type": "object"}},
        }
        self._has_status = "status" in (version.get("subresources") or {})
        self._rules = rules.compile_rules(self.root)
        status = self._rules.properties.get("status") if self._rules else None
        self._status_rules = rules.Node({}, properties={"status": status}) if status else None
        self._columns = version.get("additionalPrinterColumns") or []

    def decode(self, obj: Json) -> list[str]:
        return [f'unknown field "{path}"' for path in values.prune(obj, self.root)]

    def default(self, obj: Json) -> None:
        values.default(obj, self.root)

    def committed(self, old: Json | None, new: Json | None, context: Context) -> None:
        if new is None and terminating(self.group, self.plural, context):
            clean(self.group, self.plural, context)

    def prepare_create(self, obj: Json, context: Context) -> None:
        if terminating(self.group, self.plural, context):
            why = "create not allowed while custom resource definition is terminating"
            raise Rejected(405, "MethodNotAllowed", why, {"group": self.group, "kind": self.plural})
        if self._has_status:
            obj.pop("status", None)

    def validate_create(self, obj: Json, context: Context) -> list[FieldError]:
        return list(self._validate(obj, None))

    def validate_update(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        return list(self._validate(new, old))

    def validate_status(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        """Validates only what a status write may have changed."""
        schema = (self.root.get("properties") or {}).get("status")
        if schema is None or "status" not in new:
            return []
        errors = list(values.validate(new["status"], schema, "status"))
        if errors or self._status_rules is None:
            return errors
        return list(rules.check({"status": new["status"]}, {"status": old.get("status")}, self._status_rules))

    def _validate(self, new: Json, old: Json | None) -> Iterator[FieldError]:
        errors = list(values.validate(new, self.root))
        yield from errors
        if self._rules is None:
            return
        if any(error.type in rules.BLOCKING for error in errors):
            yield rules.NOT_CHECKED
        else:
            yield from rules.check(new, old, self._rules)

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        out = {}
        for one in self.version.get("selectableFields") or []:
            found = definition.find(obj, one["jsonPath"])
            value = found[0] if found else ""
            out[one["jsonPath"].lstrip(".")] = json.dumps(value) if isinstance(value, bool) else str(value)
        return out

    def columns(self) -> list[Column]:
        named = tables.NAME.column()
        if not self._columns:
            return [named, Column("Age", "date", "", tables.AGE.column().description, 0)]
        return [named, *(_column(one) for one in self._columns)]

    def cells(self, obj: Json, now: datetime) -> list[Any]:
        name = tables.name_of(obj)
        if not self._columns:
            return [name, tables.age_of(obj, now)]
        return [name, *(_cell(obj, one, now) for one in self._columns)]


def _column(one: Json) -> Column:
    description = one.get("description") or f"Custom resource definition column (in JSONPath format): {one['jsonPath']}"
    return Column(one["name"], one["type"], one.get("format", ""), description, one.get("priority", 0))


def _cell(obj: Json, column: Json, now: datetime) -> Any:
    found = definition.find(obj, column["jsonPath"])
    if not found:
        return None
    value = found[0]
    match column["type"]:
        case "string":
            if isinstance(value, str):
                return value
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        case "integer":
            return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        case "number":
            return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            try:
                return tables.since(value, now)
            except (TypeError, ValueError):
                return "<invalid>"
        case _:
            return None


def kinds_of(definition: Json) -> list[Kind]:
    """The kinds of a definition, one for each served version, preferred version first."""
    spec = definition["spec"]
    names = spec["names"]
    made = []
    for version in sorted(spec["versions"], key=lambda one: priority(one["name"])):
        if not version.get("served"):
            continue
        made.append(
            Kind(
                spec["group"],
                version["name"],
                names["plural"],
                names["kind"],
                spec["scope"] == "Namespaced",
                CustomStrategy(spec["group"], names["plural"], version),
                singular=names.get("singular", ""),
                list_kind=names.get("listKind", ""),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                verbs=VERBS,
                subresources=tuple(_subresources(version)),
                deprecation_warning=_deprecation(spec, version),
            )
        )
    return made


def _subresources(version: Json) -> Iterator[Subresource]:
    given = version.get("subresources") or {}
    if "status" in given:
        yield STATUS
    scale = given.get("scale")
    if scale is not None:
        yield Subresource(
            "scale",
            kind="Scale",
            group="autoscaling",
            version="v1",
            spec_replicas=scale["specReplicasPath"],
            status_replicas=scale["statusReplicasPath"],
            label_selector=scale.get("labelSelectorPath", ""),
        )


def _deprecation(spec: Json, version: Json) -> str:
    if not version.get("deprecated"):
        return ""
    text = version.get("deprecationWarning")
    return str(text or f"{spec['group']}/{version['name']} {spec['names']['kind']} is deprecated")


def priority(version: str) -> tuple[int, int, int, str]:
    """A sort key: v2 before v1 before v1beta2 before v1alpha1 before anything else.

    >>> sorted(["v1alpha1", "foo", "v1", "v2", "v1beta2"], key=priority)
    ['v2', 'v1', 'v1beta2', 'v1alpha1', 'foo']
    """
    import re

    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), version)


STORAGE = "apiextensions.k8s.io/customresourcedefinitions"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_SOON = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"


class Storing(Protocol):
    """Services that can write: the changes of definitions are stored."""

    registry: Registry
    store: Store


def storing(context: Context) -> Storing:
    return cast("Storing", context.services)


def hold(obj: Json, context: Context) -> None:
    """At the first DELETE: mark the object, add the finalizer and the Terminating condition."""
    obj["metadata"]["deletionTimestamp"] = context.timestamp()
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    condition = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": context.timestamp(),
        "reason": "InstanceDeletionPending",
        "message": _SOON,
    }
    status = obj.setdefault("status", {})
    others = [one for one in status.get("conditions") or [] if one.get("type") != "Terminating"]
    status["conditions"] = [*others, condition]


def terminating(group: str, plural: str, context: Context) -> bool:
    stored = storing(context).store.get(STORAGE, ("", f"{plural}.{group}"))
    return stored is not None and "deletionTimestamp" in stored.obj["metadata"]


def clean(group: str, plural: str, context: Context) -> None:
    """Remove a terminating definition's objects that nothing holds; with the last of them, drop the finalizer."""
    services = storing(context)
    objects = f"{group}/{plural}"
    for one in list(services.store.entries(objects, "")):
        metadata = one.obj["metadata"]
        if not metadata.get("finalizers"):
            services.store.remove(objects, one.key, expect=one.revision)
        elif "deletionTimestamp" not in metadata:
            marked = {**metadata, "deletionTimestamp": context.timestamp(), "deletionGracePeriodSeconds": 0}
            services.store.put(objects, one.key, {**one.obj, "metadata": marked}, expect=one.revision)
    if services.store.entries(objects, ""):
        return
    key = ("", f"{plural}.{group}")
    stored = services.store.get(STORAGE, key)
    if stored is None:
        return
    metadata = stored.obj["metadata"]
    left = [one for one in metadata.get("finalizers") or [] if one != FINALIZER]
    if left:
        services.store.put(
            STORAGE, key, {**stored.obj, "metadata": {**metadata, "finalizers": left}}, expect=stored.revision
        )
        return
    services.store.remove(STORAGE, key, expect=stored.revision)
    for version in stored.obj["spec"]["versions"]:
        services.registry.remove(group, version["name"], plural)
