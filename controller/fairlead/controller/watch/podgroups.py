"""PodGroup objects of other systems, where the cluster serves them: how many members a group needs, in which queue, how close.

Exists so that pods of native PodGroups, Volcano and the coscheduling plugin run as gangs although that stands in an object
of theirs. An API that is installed later is read from then on (`served`). Writes nothing: their status stays their
controllers'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.api.base import is_label_key
from fairlead.controller.gangs.members import GroupTerms
from fairlead.controller.watch.optional import Served
from fairlead.kube.informer import Change
from fairlead.kube.resources import Raw, Resource

# API group: versions that we can read, the newest first.
VERSIONS: Mapping[str, tuple[str, ...]] = {
    "scheduling.k8s.io": ("v1beta1", "v1alpha3", "v1alpha2"),
    "scheduling.volcano.sh": ("v1beta1",),
    "scheduling.x-k8s.io": ("v1alpha1",),
}


def terms(api: str, raw: Mapping[str, Any]) -> GroupTerms:
    """What a PodGroup of this API group says of its gang. One without a gang policy is gangs of one: size 1."""
    spec, topology = _within(raw, "spec"), None
    if api == "scheduling.k8s.io":
        count = _within(spec, "schedulingPolicy", "gang").get("minCount")
        topology = _topology(_within(spec, "schedulingConstraints").get("topology"))
    else:
        count = spec.get("minMember")
    queue = spec.get("queue") if api == "scheduling.volcano.sh" else None
    return GroupTerms(
        size=count if isinstance(count, int) and count > 0 else 1,
        queue=queue if isinstance(queue, str) and queue else None,
        topology=topology,
    )


def _topology(constraints: Any) -> str | None:
    """Of the constraints, of which the API takes one; one that we cannot keep is left to kube-scheduler, which knows them."""
    first = constraints[0] if isinstance(constraints, list) and constraints else None
    key = first.get("key") if isinstance(first, Mapping) else None
    return f"required:{key}" if isinstance(key, str) and is_label_key(key) else None


def _within(raw: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at path, {} where there is none: what others define may have any shape."""
    for step in path:
        found = raw.get(step)
        raw = found if isinstance(found, Mapping) else {}
    return raw


class PodGroups:
    """`changed` hears the namespace and name of each group that came, went or says something else."""

    def __init__(self, changed: Callable[[str, str], None]) -> None:
        self._changed = changed
        self._served = {
            api: Served(_resource(api), versions, self._hearing(api), vital=False) for api, versions in VERSIONS.items()
        }

    @property
    def served(self) -> tuple[Served[Raw], ...]:
        """Each API, whether it is served now or not."""
        return tuple(self._served.values())

    def terms(self, api: str, namespace: str, name: str) -> GroupTerms | None:
        informer = self._served[api].informer
        raw = informer.get(f"{namespace}/{name}") if informer is not None else None
        return terms(api, raw) if raw is not None else None

    def _hearing(self, api: str) -> Callable[[Change[Raw]], None]:
        def heard(change: Change[Raw]) -> None:
            said = [terms(api, raw) for raw in (change.old, change.new) if raw is not None]
            if len(said) < 2 or said[0] != said[1]:  # its status changes far more often
                namespace, _, name = change.key.partition("/")
                self._changed(namespace, name)

        return heard


def _resource(api: str) -> Resource[Raw]:
    return Resource(
        group=api, version=VERSIONS[api][0], plural="podgroups", kind="PodGroup", namespaced=True, type=dict[str, Any]
    )
