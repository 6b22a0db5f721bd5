"""Sizes of gangs as the templates of their workloads have them now, of kinds that may be scaled while their pods exist, and their deadlines.

The webhook counts the pods of such a workload at each of its changes and writes the size into its templates (`api.derived`). A pod that
was made before says the old size; and where the workload became smaller, no new one is made that would say the new one. Kubeflow's
kinds end a workload at its deadline, also while its pods wait. Of each object only its name, these sizes and its end are kept. Read where
the cluster serves the kind.
Sources: kubeflow.org/v1 (training operator), kubeflow.org/v2beta1 (MPI operator), ray.io/v1; runPolicy.activeDeadlineSeconds: `api.clocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from fairlead.api import names
from fairlead.api.derived import source_of
from fairlead.api.intent import is_size
from fairlead.controller.watch.optional import OptionalInformer
from fairlead.kube import objects, timestamps
from fairlead.kube.informer import Change
from fairlead.kube.resources import Raw, Resource

_KEPT: Final = ("name", "namespace", "uid", "resourceVersion")
_SIZES: Final = "sizes"
_END: Final = "end"
DEPTH_MAX: Final = 8  # of a template within the object


def _resource(group: str, version: str, plural: str, kind: str) -> Resource[Raw]:
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=True, type=dict[str, Any])


KINDS: Final = {
    "PyTorchJob": (_resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"), ("v1",)),
    "MPIJob": (_resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob"), ("v2beta1", "v1")),
    "RayCluster": (_resource("ray.io", "v1", "rayclusters", "RayCluster"), ("v1",)),
}


def sizes(spec: Any) -> dict[str, int]:
    """By gang, of the templates whose size was counted.

    >>> note = {"fairlead.dev/gang": "g", "fairlead.dev/gang-size": "2", "fairlead.dev/gang-size-from": "RayCluster/g"}
    >>> sizes({"workerGroupSpecs": [{"template": {"metadata": {"annotations": note}}}]})
    {'g': 2}
    """
    return dict(_found(spec, DEPTH_MAX))


def _found(value: Any, depth: int) -> Iterator[tuple[str, int]]:
    if depth == 0:
        return
    if isinstance(value, list):
        for each in value:
            yield from _found(each, depth - 1)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key == "template" and isinstance(each, Mapping):
                yield from _of_template(each)
            elif isinstance(each, Mapping | list):
                yield from _found(each, depth - 1)


def _of_template(template: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    notes = (template.get("metadata") or {}).get("annotations") or {}
    gang, size = notes.get(names.GANG), notes.get(names.GANG_SIZE)
    if isinstance(gang, str) and isinstance(size, str) and is_size(size) and source_of(notes) is not None:
        yield gang, int(size)


def end(raw: Raw) -> float | None:
    """Unix seconds at which its operator ends it, by `spec.runPolicy`; None where nothing says so, or it has not begun.

    >>> end({"spec": {"runPolicy": {"activeDeadlineSeconds": 60}}, "status": {"startTime": "1970-01-01T00:01:00Z"}})
    120.0
    """
    policy, status = (raw.get("spec") or {}).get("runPolicy"), raw.get("status")
    limit_s = policy.get("activeDeadlineSeconds") if isinstance(policy, Mapping) else None
    began = status.get("startTime") if isinstance(status, Mapping) else None
    if type(limit_s) is not int or limit_s < 0 or not isinstance(began, str):
        return None
    try:
        return timestamps.parse(began) + min(limit_s, timestamps.LAST_S)
    except ValueError:
        return None


def kept(raw: Raw) -> Raw:
    metadata = {key: value for key, value in raw["metadata"].items() if key in _KEPT}
    return {"metadata": metadata, _SIZES: sizes(raw.get("spec")), _END: end(raw)}


class Workloads:
    def __init__(self) -> None:
        self._informers: dict[str, OptionalInformer[Raw]] = {
            kind: OptionalInformer(resource, versions, required=False, transform=kept)
            for kind, (resource, versions) in KINDS.items()
        }

    @property
    def informers(self) -> tuple[OptionalInformer[Raw], ...]:
        return tuple(self._informers.values())

    def subscribe(self, sized: Callable[[str, str], None], ends: Callable[[str], None]) -> None:
        """`sized` is called with namespace and name of each gang whose size changed, `ends` with the namespace of a workload whose end did."""

        def changed(change: Change[Raw]) -> None:
            old = change.old or {}
            new = {} if change.new is None else kept(change.new)
            namespace = change.object["metadata"]["namespace"]
            before, after = old.get(_SIZES, {}), new.get(_SIZES, {})
            for gang in sorted(before.keys() | after.keys()):
                if before.get(gang) != after.get(gang):
                    sized(namespace, gang)
            if old.get(_END) != new.get(_END):
                ends(namespace)

        for informer in self._informers.values():
            informer.subscribe(changed)

    def size(self, namespace: str, gang: str, source: str) -> int | None:
        """Of a gang whose size was counted of `source`, such as `RayCluster/explore`; None where that is not read."""
        kind, _, name = source.partition("/")
        raw = self._object(kind, namespace, name)
        return None if raw is None else raw[_SIZES].get(gang)

    def end(self, namespace: str, owner: objects.OwnerReference) -> float | None:
        """Of the workload that controls a pod, unix seconds; None where it has none, or is not read."""
        raw = self._object(owner.kind, namespace, owner.name)
        return raw[_END] if raw is not None and raw["metadata"]["uid"] == owner.uid else None

    def _object(self, kind: str, namespace: str, name: str) -> Raw | None:
        optional = self._informers.get(kind)
        informer = None if optional is None else optional.informer
        return None if informer is None else informer.get(f"{namespace}/{name}")
