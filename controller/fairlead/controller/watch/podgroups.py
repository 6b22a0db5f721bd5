"""PodGroup objects of other systems, where the cluster serves them: size, queue, topology, priority and claims of a gang.

So pods of native PodGroups, Volcano and the coscheduling plugin run as gangs though these terms are not on the pods.
An API that is installed later is read from then on (`optional`). Writes nothing: their status belongs to their
controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairlead.api.object_names import is_label_key
from fairlead.controller.gangs.membership.members import GroupClaim, GroupTerms
from fairlead.controller.watch.optional import OptionalInformer
from fairlead.kube.informer import Change
from fairlead.kube.resources import Raw, Resource

# By API group the versions that can be read, the newest first.
VERSIONS: Mapping[str, tuple[str, ...]] = {
    "scheduling.k8s.io": ("v1beta1", "v1alpha3", "v1alpha2"),
    "scheduling.volcano.sh": ("v1beta1",),
    "scheduling.x-k8s.io": ("v1alpha1",),
}


def terms(api: str, raw: Mapping[str, Any]) -> GroupTerms:
    """What a PodGroup of this API group states for its gang. Without a gang policy its pods are gangs of one: size 1."""
    spec = _at(raw, "spec")
    if api == "scheduling.k8s.io":
        return _native_terms(spec, _at(raw, "status"))
    count = spec.get("minMember")
    queue = spec.get("queue") if api == "scheduling.volcano.sh" else None
    return GroupTerms(
        size=count if isinstance(count, int) and count > 0 else 1,
        queue=queue if isinstance(queue, str) and queue else None,
    )


def _native_terms(spec: Mapping[str, Any], status: Mapping[str, Any]) -> GroupTerms:
    """`priority` is what the apiserver resolved `priorityClassName` to; 0 where the group names no class, so that is its pods' to say.

    Source: k8s.io/api `scheduling/v1alpha2` (1.36) and `v1beta1` (1.37), PodGroupSpec and PodGroupStatus; KEP-5710, KEP-5729.
    """
    count = _at(spec, "schedulingPolicy", "gang").get("minCount")
    priority = spec.get("priority") if spec.get("priorityClassName") else None
    return GroupTerms(
        size=count if isinstance(count, int) and count > 0 else 1,
        topology=_topology(_at(spec, "schedulingConstraints").get("topology")),
        priority=priority if type(priority) is int else None,
        preempts=spec.get("preemptionPolicy") != "Never",
        claims=tuple(_claims(spec, status)),
    )


def _claims(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[GroupClaim]:
    """Those of a template. One that the group names itself is named by its pods, too."""
    made = {str(each.get("name")): each.get("resourceClaimName") for each in _listed(status, "resourceClaimStatuses")}
    for each in _listed(spec, "resourceClaims"):
        name, template = each.get("name"), each.get("resourceClaimTemplateName")
        if isinstance(name, str) and isinstance(template, str):
            claim = made.get(name)
            yield GroupClaim(name=name, template=template, claim=claim if isinstance(claim, str) else "")


def _listed(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = raw.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _topology(constraints: Any) -> str | None:
    """From the one constraint that the API allows; one without a label key is left to kube-scheduler."""
    first = constraints[0] if isinstance(constraints, list) and constraints else None
    key = first.get("key") if isinstance(first, Mapping) else None
    return f"required:{key}" if isinstance(key, str) and is_label_key(key) else None


def _at(raw: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at path; {} where there is none: CRDs of others may have any shape."""
    for step in path:
        found = raw.get(step)
        raw = found if isinstance(found, Mapping) else {}
    return raw


class PodGroups:
    """One optional informer per API group."""

    def __init__(self) -> None:
        self._by_api: dict[str, OptionalInformer[Raw]] = {
            api: OptionalInformer(_resource(api), versions, required=False) for api, versions in VERSIONS.items()
        }

    @property
    def informers(self) -> tuple[OptionalInformer[Raw], ...]:
        return tuple(self._by_api.values())

    def subscribe(self, changed: Callable[[str, str], None]) -> None:
        """`changed` gets namespace and name of each group that came, went or has other terms."""
        for api, informer in self._by_api.items():
            informer.subscribe(_on_new_terms(api, changed))

    def terms(self, api: str, namespace: str, name: str) -> GroupTerms | None:
        informer = self._by_api[api].informer
        raw = informer.get(f"{namespace}/{name}") if informer is not None else None
        return terms(api, raw) if raw is not None else None


def _on_new_terms(api: str, changed: Callable[[str, str], None]) -> Callable[[Change[Raw]], None]:
    def handler(change: Change[Raw]) -> None:
        found = [terms(api, raw) for raw in (change.old, change.new) if raw is not None]
        if len(found) < 2 or found[0] != found[1]:  # the status changes far more often
            namespace, _, name = change.key.partition("/")
            changed(namespace, name)

    return handler


def _resource(api: str) -> Resource[Raw]:
    return Resource(
        group=api, version=VERSIONS[api][0], plural="podgroups", kind="PodGroup", namespaced=True, type=dict[str, Any]
    )
