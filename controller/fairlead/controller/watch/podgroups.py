"""PodGroup objects of other systems, where the cluster serves them: size, queue and topology of a gang.

So pods of native PodGroups, Volcano and the coscheduling plugin run as gangs though these terms are not on the pods.
An API that is installed later is read from then on (`optional`). Writes nothing: their status belongs to their
controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.api.base import is_label_key
from fairlead.controller.gangs.members import GroupTerms
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
    spec, topology = _at(raw, "spec"), None
    if api == "scheduling.k8s.io":
        count = _at(spec, "schedulingPolicy", "gang").get("minCount")
        topology = _topology(_at(spec, "schedulingConstraints").get("topology"))
    else:
        count = spec.get("minMember")
    queue = spec.get("queue") if api == "scheduling.volcano.sh" else None
    return GroupTerms(
        size=count if isinstance(count, int) and count > 0 else 1,
        queue=queue if isinstance(queue, str) and queue else None,
        topology=topology,
    )


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
