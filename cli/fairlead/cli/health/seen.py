"""What was read of a cluster, and what could not be: the one argument of every check. Pure data, and the facts that several checks share."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.api import drivers, names, pool_homes
from fairlead.cli.health import values
from fairlead.kube.resources import Raw, Resource

GPU_LABELS = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "nvidia.com/gpu.present": "true",
    "fairlead.dev/gpu": "true",
}
"""Labels of nodes that the driver's DaemonSet selects (manifests/chart/templates/driver.yaml)."""
SIMULATED_LABEL = "fairlead.dev/simulated"
FOREIGN_GPU_DRIVERS = ("gpu.nvidia.com",)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One kind. `gap`: why it could not be read, "" where it was. `served` False: the cluster does not know the kind."""

    items: tuple[Raw, ...] = ()
    gap: str = ""
    served: bool = True


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A pod that was created with dryRun, which the webhook reviews. `answered` None: not tried, or the answer says nothing."""

    answered: bool | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class SliceTrial:
    """ResourceSlices that were created with dryRun. `kept`: by line of `releases`, whether all its fields came back. `gap`: why a line is not there."""

    kept: Mapping[str, bool] = field(default_factory=dict)
    gap: str = ""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """`now`: epoch seconds by the apiserver's clock, as far as that was seen (`reading`). `groups` None: discovery could not be read.

    `kinds` are plurals with their group (`workflows.argoproj.io`) of groups that were looked into, `discovered` the plurals by group and
    version, of those that answered. `gates` are the apiserver's feature
    gates, `kubelets` the configuration of nodes' kubelets, `allowed` what accounts of Fairlead may do, each empty with its gap.
    """

    now: float
    lists: Mapping[str, Listed] = field(default_factory=dict)
    release: str = ""
    groups: Mapping[str, tuple[str, ...]] | None = None
    groups_gap: str = ""
    kinds: frozenset[str] = frozenset()
    discovered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    gates: Mapping[str, bool] = field(default_factory=dict)
    gates_gap: str = ""
    kubelets: Mapping[str, Raw] = field(default_factory=dict)
    kubelets_gap: str = ""
    allowed: Mapping[str, bool] = field(default_factory=dict)
    allowed_gap: str = ""
    trial: Trial = Trial()
    slice_trial: SliceTrial = SliceTrial()
    drivers: tuple[str, ...] = (names.DRIVER,)
    shared_drivers: tuple[str, ...] = ()

    def listed(self, resource: Resource[Any] | str) -> Listed:
        return self.lists.get(str(resource)) or Listed(gap=f"{resource} were not read")

    def items(self, resource: Resource[Any] | str) -> tuple[Raw, ...]:
        return tuple(each for each in self.listed(resource).items if isinstance(each, dict))

    def gap(self, *resources: Resource[Any] | str) -> str:
        """Why one of these could not be read; "" where all were."""
        return next((gap for resource in resources if (gap := self.listed(resource).gap)), "")

    def one(self, resource: Resource[Any] | str, name: str, namespace: str = "") -> Raw | None:
        return next(
            (
                each
                for each in self.items(resource)
                if values.name(each) == name and (not namespace or values.namespace(each) == namespace)
            ),
            None,
        )

    def serves(self, group: str, version: str = "") -> bool | None:
        """None: not known."""
        if self.groups is None:
            return None
        return group in self.groups and (not version or version in self.groups[group])

    @property
    def minor(self) -> tuple[int, ...]:
        """(1, 36); () where it is not known."""
        return values.version(self.release)[:2]

    # -- devices -------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _published(self) -> tuple[Raw, ...]:
        """Every slice of managed drivers."""
        return tuple(each for each in self.items("resourceslices.resource.k8s.io") if driver_of(each) in self.drivers)

    @functools.cached_property
    def strangers(self) -> tuple[Raw, ...]:
        """Slices of managed drivers that name another node's pool."""
        pools: dict[tuple[str, str], dict[str, Raw]] = {}
        for each in self._published:
            pools.setdefault(pool_of(each), {})[values.name(each)] = each
        return tuple(
            found[name]
            for pool, found in sorted(pools.items())
            for name in sorted(
                pool_homes.strangers(*pool, {name: node_of(each) or None for name, each in found.items()})
            )
        )

    @functools.cached_property
    def slices(self) -> tuple[Raw, ...]:
        """The slices of managed drivers: the newest generation of each pool, without the slices of nodes whose pool it is not."""
        ignored = {values.name(each) for each in self.strangers}
        ours = [each for each in self._published if values.name(each) not in ignored]
        newest: dict[tuple[str, str], int] = {}
        for each in ours:
            pool = pool_of(each)
            newest[pool] = max(newest.get(pool, 0), generation_of(each))
        return tuple(each for each in ours if generation_of(each) == newest[pool_of(each)])

    @functools.cached_property
    def driver_nodes(self) -> frozenset[str]:
        """Nodes of which a managed driver publishes devices."""
        return frozenset(
            node for each in self.slices if (node := node_of(each)) and values.sequence(each, "spec", "devices")
        )

    @functools.cached_property
    def gpu_nodes(self) -> tuple[Raw, ...]:
        """Nodes with GPUs, by label, by the device plugin's resource, or by what a driver publishes."""
        others = {
            node_of(each)
            for each in self.items("resourceslices.resource.k8s.io")
            if driver_of(each) in FOREIGN_GPU_DRIVERS
        }
        return tuple(
            node
            for node in self.items("nodes")
            if has_gpu_label(node) or plugin_gpus(node) or values.name(node) in self.driver_nodes | others
        )

    @functools.cached_property
    def managed_classes(self) -> frozenset[str]:
        """DeviceClasses of the managed drivers' devices: those that the drivers ship, and those whose selectors name a driver."""
        shipped = {name for driver in self.drivers for name in drivers.classes_of(driver)}
        own = {
            values.name(each)
            for each in self.items("deviceclasses.resource.k8s.io")
            for selector in values.objects(each, "spec", "selectors")
            if any(driver in _long(selector, "cel", "expression") for driver in self.drivers)
        }
        return frozenset(shipped | own)

    @functools.cached_property
    def managed_claims(self) -> dict[tuple[str, str], Raw]:
        """Claims for devices of managed drivers, by namespace and name."""
        return {
            (values.namespace(each), values.name(each)): each
            for each in self.items("resourceclaims.resource.k8s.io")
            if self.is_managed(each)
        }

    def is_managed(self, claim: Raw) -> bool:
        if any(each.get("driver") in self.drivers for each in results_of(claim)):
            return True
        for request in values.objects(claim, "spec", "devices", "requests"):
            for asked in (value for value in (request.get("exactly"), *values.sequence(request, "firstAvailable"))):
                if values.text(asked, "deviceClassName") in self.managed_classes:
                    return True
        return False

    # -- pods ----------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def waiting_pods(self) -> tuple[Raw, ...]:
        """Pods without a node that want managed devices, hold Fairlead's gate, or are of a gang and name claims that are still to be made.

        A gang's annotation on a pod without devices is passed over, as the webhook does: the pod is no member.
        """
        return tuple(
            pod
            for pod in self.items("pods")
            if not values.text(pod, "spec", "nodeName")
            and values.text(pod, "status", "phase") not in {"Succeeded", "Failed"}
            and not values.value(pod, "metadata", "deletionTimestamp")
            and (
                has_gate(pod, names.ADMISSION_GATE)
                or (names.GANG in values.annotations_of(pod) and values.sequence(pod, "spec", "resourceClaims"))
                or self.wants(pod)
            )
        )

    def wants(self, pod: Raw) -> bool:
        """Whether it names a claim for managed devices, or has a limit of the device plugin."""
        return any((values.namespace(pod), claim) in self.managed_claims for claim in claims_of(pod)) or bool(
            legacy_limits(pod)
        )

    @functools.cached_property
    def gpu_namespaces(self) -> tuple[str, ...]:
        """Namespaces with gangs, claims for managed devices, or a tenant's label, without the system's own."""
        used = {values.namespace(each) for each in self.items("gangs.fairlead.dev")}
        used |= {namespace for namespace, _ in self.managed_claims}
        used |= {values.namespace(pod) for pod in self.items("pods") if legacy_limits(pod)}
        used |= {values.name(each) for each in self.items("namespaces") if names.TENANT in values.labels_of(each)}
        return tuple(sorted(used - {"", *names.EXEMPT_NAMESPACES}))

    def workloads(self, part: str) -> list[Raw]:
        """Deployments and DaemonSets one of whose images contains this."""
        return [
            each
            for resource in ("deployments.apps", "daemonsets.apps")
            for each in self.items(resource)
            if any(part in values.text(container, "image") for container in values.containers(each))
        ]


def driver_of(slice_: Raw) -> str:
    return values.text(slice_, "spec", "driver")


def node_of(slice_: Raw) -> str:
    return values.text(slice_, "spec", "nodeName")


def pool_of(slice_: Raw) -> tuple[str, str]:
    return driver_of(slice_), values.text(slice_, "spec", "pool", "name")


def generation_of(slice_: Raw) -> int:
    return values.integer(slice_, "spec", "pool", "generation")


def devices_of(slice_: Raw) -> list[Raw]:
    return values.objects(slice_, "spec", "devices")


def attribute(device: Raw, key: str) -> Any:
    """The value of a device's attribute; None where it has none."""
    found = values.mapping(device, "attributes", key)
    return next(iter(found.values()), None)


def results_of(claim: Raw) -> list[Raw]:
    return values.objects(claim, "status", "allocation", "devices", "results")


def has_gpu_label(node: Raw) -> bool:
    labels = values.labels_of(node)
    return SIMULATED_LABEL in labels or any(labels.get(key) == wanted for key, wanted in GPU_LABELS.items())


def plugin_gpus(node: Raw) -> float:
    """GPUs that a device plugin offers on the node."""
    return sum(
        values.amount(node, "status", "allocatable", str(key))
        for key in values.mapping(node, "status", "allocatable")
        if is_legacy(key)
    )


def is_legacy(key: object) -> bool:
    return isinstance(key, str) and (
        key in {names.LEGACY_GPU, names.LEGACY_GPU + names.LEGACY_SHARED} or key.startswith(names.LEGACY_MIG_PREFIX)
    )


def legacy_limits(pod: Raw) -> list[str]:
    """Extended resources of NVIDIA's device plugin that its containers ask for."""
    return sorted(
        {
            key
            for part in ("containers", "initContainers")
            for container in values.objects(pod, "spec", part)
            for side in ("limits", "requests")
            for key in values.mapping(container, "resources", side)
            if is_legacy(key)
        }
    )


def has_gate(pod: Raw, gate: str) -> bool:
    return any(each.get("name") == gate for each in values.objects(pod, "spec", "schedulingGates"))


def claims_of(pod: Raw) -> set[str]:
    """Names of its claims, as far as they exist."""
    found = {values.text(each, "resourceClaimName") for each in values.objects(pod, "spec", "resourceClaims")}
    found |= {values.text(each, "resourceClaimName") for each in values.objects(pod, "status", "resourceClaimStatuses")}
    return found - {""}


def is_ready(node: Raw) -> bool:
    return values.condition(node, "Ready").get("status") == "True"


def in_all(nodes: Iterable[Raw]) -> str:
    """`node a`, `nodes a, b and 3 more`."""
    found = [values.name(each) for each in nodes]
    return f"{'node' if len(found) == 1 else 'nodes'} {values.some(found)}"


def _long(obj: Any, *path: str) -> str:
    """A text in full, however long: for looking something up in it, not for printing."""
    found = values.value(obj, *path)
    return found if isinstance(found, str) else ""


def written_s(obj: Raw) -> float | None:
    """When the object was last written, by the apiserver's clock; None where it keeps no record."""
    times = [values.time_s(each, "time") for each in values.objects(obj, "metadata", "managedFields")]
    return max((each for each in times if each is not None), default=None)
