"""PodGroup objects of other systems, where the cluster serves them: how many members a group needs.

Exists so that pods of native PodGroups, Volcano and the coscheduling plugin run as gangs although the size stands in an object
of theirs. Looks once, when a leader begins, which of these APIs are served, and watches those; one that is installed later
is seen by the next leader. Writes nothing: their status stays their controllers'.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.controller import served
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import Raw, Resource

log = logging.getLogger(__name__)

# API group: versions that we can read, the newest first.
VERSIONS: Mapping[str, tuple[str, ...]] = {
    "scheduling.k8s.io": ("v1beta1", "v1alpha3", "v1alpha2"),
    "scheduling.volcano.sh": ("v1beta1",),
    "scheduling.x-k8s.io": ("v1alpha1",),
}


def least_members(api: str, raw: Mapping[str, Any]) -> int:
    """The size of a gang, from a PodGroup of this API group. A group without a gang policy is gangs of one: 1."""
    spec = raw.get("spec") or {}
    if api == "scheduling.k8s.io":
        count = ((spec.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount")
    else:
        count = spec.get("minMember")
    return count if isinstance(count, int) and count > 0 else 1


class PodGroups:
    """`watches` are to be run. `changed` hears the namespace and name of each group that came, went or changed."""

    def __init__(self, changed: Callable[[str, str], None]) -> None:
        self._changed = changed
        self._informers: dict[str, Informer[Raw]] = {}

    @property
    def watches(self) -> tuple[Informer[Raw], ...]:
        return tuple(self._informers.values())

    async def discover(self, client: Client) -> None:
        """Sees which APIs are served. One that cannot be asked is left out, and said so."""
        for api, versions in VERSIONS.items():
            version = await served.version_of(client, api, versions, "podgroups")
            if version is None:
                continue
            resource: Resource[Raw] = Resource(
                group=api, version=version, plural="podgroups", kind="PodGroup", namespaced=True, type=dict[str, Any]
            )
            informer = Informer(client, resource)
            informer.subscribe(self._heard)
            self._informers[api] = informer
            log.info("PodGroups of %s/%s are read as gangs", api, version)

    def size(self, api: str, namespace: str, name: str) -> int | None:
        informer = self._informers.get(api)
        raw = informer.get(f"{namespace}/{name}") if informer is not None else None
        return least_members(api, raw) if raw is not None else None

    def _heard(self, change: Change[Raw]) -> None:
        namespace, _, name = change.key.partition("/")
        self._changed(namespace, name)
