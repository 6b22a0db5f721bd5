"""The names in a recording, and their replacement by pseudonyms: one table for all, so that what refers to a name still does.

A pseudonym is the name's place in the order of all names and a keyed hash of it: orders that end in a name, and with them decisions,
stay as they are. Namespaces are ordered as they are in `namespace/name`. Numbers and truth values are no names: selectors compare them.
`_FIELDS` says which fields of which values hold names, and of which kind. All others are kept: devices' names, attributes' and capacities'
names, drivers, quantities, counters, times, priorities, and what belongs to Kubernetes, Fairlead or NVIDIA (`public`).
"""

from __future__ import annotations

import dataclasses
import hmac
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from fairlead.api.align import alignments
from fairlead.api.bounds import Bound, PriorityBound
from fairlead.engine.types.allocation import AllocatedClaim, AllocatedDevice
from fairlead.engine.types.gangs import (
    ClaimRequest,
    GangRequest,
    Hold,
    PendingMember,
    PlacedMember,
    RefusedNode,
    RunningGang,
    RunningMember,
)
from fairlead.engine.types.pods import AffinityTerm, PodNeeds, PodSelector, SpreadTerm
from fairlead.engine.types.settings import (
    Autoscaling,
    DisruptionBudget,
    FlavorQuota,
    FlavorSpec,
    NamespaceQuota,
    NodeTemplate,
    QueueSpec,
)
from fairlead.engine.types.values import DeviceRef, PodRef
from fairlead.history.facts import form
from fairlead.kube import core, resource
from fairlead.kube.objects import LabelSelector, LabelSelectorRequirement

CLASS_QUOTA = ".deviceclass.resource.k8s.io/devices"
IMPLICIT = "deviceclass.resource.kubernetes.io"  # domain of the resources that Kubernetes names after classes
IDENTIFYING = re.compile(
    r"uuid|serial|clique", re.IGNORECASE
)  # attributes whose values are one device's or one fabric's
PLAIN_FIELDS = frozenset({"apiVersion", "kind", "strategy"})  # of opaque parameters
KEPT_DOMAINS = ("kubernetes.io", "k8s.io", "fairlead.dev", "nvidia.com")
WORDS = re.compile(r"[^\s,;\"'()\[\]]+")
LITERAL = re.compile(r"(\"|')((?:(?!\1)[^\\])*)\1")
PART = re.compile(r"[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*")  # of a literal: what may be an object's name
_NO_NAME = re.compile(r"-?\d+|true|false|")


def public(key: str) -> bool:
    """Whether a label key or a resource is one that any cluster may have: unqualified, or of a known domain."""
    return of_known_domain(key) or not ("/" in key or "." in key)


def of_known_domain(key: str) -> bool:
    domain = key.partition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in KEPT_DOMAINS)


class Names(Protocol):
    """What a traversal of facts does with each name; returns what stands in its place."""

    def namespace(self, name: str) -> str: ...
    def name(self, name: str) -> str:
        """Each part between slashes for itself."""

    def place(self, name: str) -> str:
        """A name that devices' attributes and CEL may refer to: nodes, pools, UIDs."""

    def text(self, text: str) -> str:
        """Names among other words."""

    def literals(self, expression: str) -> str:
        """A CEL expression whose string literals may be names of places, or contain them."""

    def value(self, text: str) -> str:
        """A string of a device's attribute."""


class Collected:
    """Implements Names: keeps them, replaces nothing."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.namespaces: set[str] = set()
        self.places: set[str] = set()

    def namespace(self, name: str) -> str:
        self.namespaces.add(name)
        return self.name(name)

    def name(self, name: str) -> str:
        self.names.update(part for part in name.split("/") if not _NO_NAME.fullmatch(part))
        return name

    def place(self, name: str) -> str:
        self.places.update(part for part in name.split("/") if not _NO_NAME.fullmatch(part))
        return self.name(name)

    def text(self, text: str) -> str:
        return text

    def literals(self, expression: str) -> str:
        return expression

    def value(self, text: str) -> str:
        return text


class Pseudonyms:
    """Implements Names with those that were collected."""

    def __init__(self, collected: Collected, key: bytes) -> None:
        def order(name: str) -> str:
            return f"{name}/" if name in collected.namespaces else name

        self._places = collected.places
        self._of = {
            name: f"x{number:07d}-{hmac.new(key, name.encode(), sha256).hexdigest()[:8]}"
            for number, name in enumerate(sorted(collected.names, key=order))
        }

    def namespace(self, name: str) -> str:
        return self.name(name)

    def name(self, name: str) -> str:
        return "/".join(self._of.get(part, part) for part in name.split("/"))

    def place(self, name: str) -> str:
        return self.name(name)

    def text(self, text: str) -> str:
        return WORDS.sub(lambda found: self.name(found[0]), text)

    def literals(self, expression: str) -> str:
        return LITERAL.sub(lambda found: f"{found[1]}{self._literal(found[2])}{found[1]}", expression)

    def _literal(self, text: str) -> str:
        """A pattern such as `node-a|node-b` has several."""
        return self.value(text) if text in self._places else PART.sub(lambda found: self.value(found[0]), text)

    def value(self, text: str) -> str:
        return self._of[text] if text in self._places else text


class Renaming:
    """One traversal of facts that passes every name to `Names` and puts together what it returns: to collect them, and to replace them."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._of_kind: dict[str, Callable[[Any], Any]] = {
            "namespace": names.namespace,
            "name": names.name,
            "place": names.place,
            "text": names.text,
            "expression": names.literals,
            "key": self._key,
            "class": self._class,
            "quota": self._quota,
            "id": self._id,
            "labels": self._labels,
            "amounts": lambda found: {self._key(key): amount for key, amount in found.items()},
            "flavors": lambda found: {names.name(key): part for key, part in found.items()},
            "label": lambda pair: (self._key(pair[0]), names.name(pair[1])),
            "amount": lambda pair: (self._key(pair[0]), pair[1]),
            "charge": lambda pair: (self._quota(pair[0]), pair[1]),
            "subgroup": lambda pair: (names.name(pair[0]), names.place(pair[1])),
            "member's claim": lambda pair: (names.name(pair[0]), self._walked(pair[1])),
            "node field": lambda found: replace(found, values=tuple(map(names.place, found.values))),
            "attributes": lambda found: {name: self._attribute(name, each) for name, each in found.items()},
            "parameters": self._parameters,
            "topology": lambda text: ", ".join(self._level(entry.strip()) for entry in text.split(",")),
            "align": self._align,
            "gone": lambda _: "",
        }

    def facts(self, facts: form.Facts) -> form.Facts:
        changed = {
            table: {self._of(kind, key): self._walked(value) for key, value in getattr(facts, table).items()}
            for table, kind in _KEYS.items()
        }
        order = {
            table: None if keys is None else tuple(self._of(_KEYS[table], key) for key in keys)
            for table, keys in facts.order.items()
        }
        workload, mix = self._walked(facts.workload), self._walked(facts.mix)
        return replace(facts, **changed, order=order, workload=workload, mix=mix, settings=self._walked(facts.settings))

    def _walked(self, value: Any) -> Any:
        """The value with the names in it replaced: those of `_FIELDS`, and what has such fields in it."""
        if type(value) is tuple:
            return tuple(map(self._walked, value))
        if type(value) is dict:
            return {key: self._walked(each) for key, each in value.items()}
        if not isinstance(value, msgspec.Struct):
            return value
        kinds = _FIELDS.get(type(value), {})
        changed = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            now = self._of(kinds[name], before) if name in kinds else self._walked(before)
            if now is not before and now != before:
                changed[name] = tuple(sorted(now)) if (type(value), name) in _SORTED else now
        return replace(value, **changed) if changed else value

    def _of(self, kind: str, value: Any) -> Any:
        """Each of a tuple by itself; None stays."""
        if value is None:
            return None
        rename = self._of_kind[kind]
        return tuple(map(rename, value)) if type(value) is tuple else rename(value)

    def _key(self, key: str) -> str:
        """A label key or a resource."""
        domain, slash, name = key.partition("/")
        if domain.endswith(IMPLICIT):
            return f"{domain}{slash}{self._class(name)}"
        return key if public(key) else self._names.name(key)

    def _class(self, name: str) -> str:
        """The name of a DeviceClass, which its owner chose: even a plain word says something, but for the classes that drivers bring."""
        return name if of_known_domain(name) else self._names.name(name)

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {self._key(key): self._names.name(value) for key, value in labels.items()}

    def _id(self, key: str) -> str:
        """namespace/name; of a quota with a resource behind it."""
        namespace, _, name = key.partition("/")
        name, slash, resource_name = name.partition("/")
        quota = self._quota(resource_name) if slash else ""
        return f"{self._names.namespace(namespace)}/{self._names.name(name)}{slash}{quota}"

    def _quota(self, text: str) -> str:
        if text.endswith(CLASS_QUOTA):
            return self._class(text.removesuffix(CLASS_QUOTA)) + CLASS_QUOTA
        return self._key(text)

    def _attribute(self, name: str, value: resource.DeviceAttribute) -> resource.DeviceAttribute:
        named = self._names.place if IDENTIFYING.search(name.rpartition("/")[2]) else self._names.value
        if value.string is not None:
            return replace(value, string=named(value.string))
        if value.strings is not None:
            return replace(value, strings=tuple(map(named, value.strings)))
        return value

    def _parameters(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: each if key in PLAIN_FIELDS else self._parameters(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._parameters(each) for each in value]
        return self._names.name(value) if isinstance(value, str) else value

    def _level(self, text: str) -> str:
        word, colon, label = text.partition(":")
        return f"{word}{colon}{self._key(label.strip())}" if colon else self._names.name(text)

    def _align(self, text: str) -> str:
        """Attributes keep their names, as in slices; requests have those of the claims."""
        try:
            entries = alignments(text)
        except ValueError:
            return self._names.name(text)
        named = (dataclasses.replace(each, requests=self._of("name", each.requests)) for each in entries)
        return ", ".join(map(str, named))


_KEYS: Final[Mapping[str, str]] = {
    "slices": "name", "taint_rules": "name", "classes": "class", "claims": "place", "nodes": "place", "pods": "place", "gangs": "id",
    "running": "id", "queues": "name", "flavors": "name", "budgets": "id", "quotas": "id",
}  # fmt: skip
_TAINT: Final = {"key": "key", "value": "name"}
_EXPRESSION: Final = {"key": "key", "values": "name"}
_NAMED: Final = {"namespace": "namespace", "name": "name"}
_TERM: Final = {"topology_key": "key"}
_HELD_BACK: Final = {"by": "gone", "reason": "gone"}  # no decision depends on which user wrote it, or why
_FIELDS: Final[Mapping[type[msgspec.Struct], Mapping[str, str]]] = {
    # Kubernetes
    core.Taint: _TAINT,
    core.Toleration: _TAINT,
    core.NodeSelectorRequirement: _EXPRESSION,
    core.NodeSelectorTerm: {"match_fields": "node field"},
    LabelSelectorRequirement: _EXPRESSION,
    LabelSelector: {"match_labels": "labels"},
    resource.DeviceTaint: _TAINT,
    resource.DeviceToleration: _TAINT,
    resource.ResourcePool: {"name": "place"},
    resource.ResourceSliceSpec: {"node_name": "place"},
    resource.Device: {
        "attributes": "attributes", "node_name": "place", "binding_conditions": "key", "binding_failure_conditions": "key",
    },
    resource.DeviceTaintSelector: {"device_class_name": "class", "pool": "place"},
    resource.DeviceClassSpec: {"extended_resource_name": "key"},
    resource.CELDeviceSelector: {"expression": "expression"},
    resource.OpaqueDeviceConfiguration: {"parameters": "parameters"},
    resource.DeviceRequest: {"name": "name"},
    resource.ExactDeviceRequest: {"device_class_name": "class"},
    resource.DeviceSubRequest: {"name": "name", "device_class_name": "class"},
    resource.DeviceConstraint: {"requests": "name"},
    resource.DeviceClaimConfiguration: {"requests": "name"},
    resource.DeviceAllocationConfiguration: {"requests": "name"},
    resource.DeviceRequestAllocationResult: {
        "request": "name", "pool": "place", "binding_conditions": "key", "binding_failure_conditions": "key", "share_id": "place",
    },
    # nodes and pods
    form.Node: {"labels": "labels", "allocatable": "amounts"},
    form.CountedPod: {"node": "place", "namespace": "namespace", "labels": "labels"},
    PodNeeds: {"requests": "amount", "node_selector": "label"},
    PodSelector: {"namespaces": "namespace"},
    AffinityTerm: _TERM,
    SpreadTerm: _TERM,
    PodRef: {**_NAMED, "uid": "place"},
    # claims and gangs
    DeviceRef: {"pool": "place"},
    AllocatedDevice: {"pool": "place"},
    AllocatedClaim: _NAMED,
    ClaimRequest: {**_NAMED, "key": "place"},
    PendingMember: {"claims": "place", "labels": "labels", "subgroup": "name", "worker_group": "name"},
    PlacedMember: {"subgroup": "name", "worker_group": "name"},
    RefusedNode: {"node": "place", "why": "gone"},  # a scheduler's own sentence, with names that stand nowhere else
    GangRequest: {
        **_NAMED, "uid": "place", "queue": "name", "namespace_labels": "labels", "topology": "topology", "subgroup_topology": "topology",
        "align": "align", "placed_nodes": "place", "placed_subgroups": "subgroup", "placed_claims": "member's claim", "avoid": "place",
        "quota_charge": "charge", "predecessors": "id",
    },
    RunningMember: {"node": "place", "claims": "place", "guarded_by": "name"},
    RunningGang: {**_NAMED, "uid": "place", "queue": "name", "claims": "place", "namespace_labels": "labels", "pods": "place"},
    # settings
    Bound: {"source": "text"},
    PriorityBound: {"source": "text"},
    Hold: _HELD_BACK,
    FlavorQuota: {"flavor": "name"},
    QueueSpec: {"uid": "place", "parent": "name", "past_usage": "flavors"},
    FlavorSpec: {"device_selector": "expression", "resource_name": "key", "node_selector": "label"},
    Autoscaling: {"device_classes": "class", "node_selector": "label"},
    NodeTemplate: {"labels": "label", "allocatable": "amount"},
    NamespaceQuota: {**_NAMED, "resource": "quota"},
    DisruptionBudget: _NAMED,
    form.Settings: {"searched": "place"},
}  # fmt: skip
_SORTED: Final = frozenset({
    (PodNeeds, "node_selector"), (GangRequest, "predecessors"), (FlavorSpec, "node_selector"), (Autoscaling, "node_selector"), (NodeTemplate, "labels"),
    (NodeTemplate, "allocatable"), (form.Settings, "searched"),
})  # fmt: skip
