"""What Fairlead needs of Kubernetes that some release from 1.34 to 1.37 lacks, drops or guards by a feature gate: one table.

docs/install.md's table is written from it, `fairlead doctor` and `fairlead check readiness` say which lines apply to a cluster,
the driver names gates by it, and the sandbox of a release drops what that release drops.
A stage is what an apiserver without flags of its own does. Programs do not decide by it: they ask discovery, or look at what
was stored, since a gate may be set either way. Worked example: 1.35 stores `allocationTimestamp` though the gate that brought
the field is off there; so the stages are what trials showed, not what the gates say.
Source: pkg/features/kube_features.go and pkg/registry/resource/*/strategy.go of each release; trials on 1.34.9, 1.35.6 and 1.36.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Minor = tuple[int, int]
Stage = Literal["none", "off", "on"]
"""`none`: the release knows no such thing; `off`: a gate that is off by default guards it; `on`: it is there."""

RELEASES: Final[tuple[Minor, ...]] = ((1, 34), (1, 35), (1, 36), (1, 37))
OLDEST: Final = RELEASES[0]
"""The first release with resource.k8s.io/v1, which everything rests on."""
TRIED: Final[Mapping[Minor, str]] = {(1, 34): "1.34.9", (1, 35): "1.35.6", (1, 36): "1.36.2"}
"""Releases of which a real control plane ran Fairlead, and which patch release it was."""
NEWEST_TRIED: Final = max(TRIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One line of the table.

    `stages` are those of RELEASES, in that order. `fields` are dropped by an apiserver where the stage is not `on`, each as
    kind and path (`[]` for the elements of a list, `{}` for the values of a map); what a claim's spec loses, a template's loses,
    too. `kept` are those of them that one release stores all the same. `served` are resources that discovery then does not list,
    as `plural.version.group`. `flags` of the driver ask for it. `found` says how a program finds out, `without` what Fairlead
    does where it is absent.
    """

    key: str
    what: str
    stages: tuple[Stage, Stage, Stage, Stage]
    found: str
    without: str
    gate: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    kept: Mapping[Minor, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    served: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def stage(self, release: Minor) -> Stage:
        """The stage in a release; for one beyond the table, in the nearest."""
        return self.stages[RELEASES.index(min(max(release, RELEASES[0]), RELEASES[-1]))]

    def holds(self, release: Minor) -> bool:
        return self.stage(release) == "on"

    def dropped(self, release: Minor) -> tuple[tuple[str, str], ...]:
        """The fields that an apiserver of that release without flags of its own does not store."""
        if self.holds(release):
            return ()
        return tuple(each for each in self.fields if each not in self.kept.get(release, ()))


_SLICE, _CLAIM, _CLASS = "ResourceSlice", "ResourceClaim", "DeviceClass"
_DEVICE, _RESULT, _REQUEST = "spec.devices[]", "status.allocation.devices.results[]", "spec.devices.requests[]"
_TOLERATIONS = (
    (_CLAIM, f"{_REQUEST}.exactly.tolerations"),
    (_CLAIM, f"{_REQUEST}.firstAvailable[].tolerations"),
)
_DISTINCT = (_CLAIM, "spec.devices.constraints[].distinctAttribute")

NEEDS: Final[tuple[Need, ...]] = (
    Need(
        key="partitionable-devices",
        what="MIG on demand (`dynamicMig`): counters of devices that overlap",
        gate="DRAPartitionableDevices",
        stages=("off", "off", "on", "on"),
        fields=(
            (_SLICE, "spec.sharedCounters"),
            (_SLICE, f"{_DEVICE}.consumesCounters"),
            (_SLICE, "spec.perDeviceNodeSelection"),
            (_SLICE, f"{_DEVICE}.nodeName"),
            (_SLICE, f"{_DEVICE}.nodeSelector"),
            (_SLICE, f"{_DEVICE}.allNodes"),
        ),
        flags=("--dynamic-mig",),
        found="a slice created as a dry run, and each slice that was stored",
        without="the driver publishes whole GPUs only; the controller never allocates two devices of one GPU that declare no counters",
    ),
    Need(
        key="consumable-capacity",
        what="shares of a GPU (`sharedGpus`, `sharedMig`)",
        gate="DRAConsumableCapacity",
        stages=("off", "off", "on", "on"),
        fields=(
            (_SLICE, f"{_DEVICE}.allowMultipleAllocations"),
            (_SLICE, f"{_DEVICE}.capacity{{}}.requestPolicy"),
            (_CLAIM, f"{_REQUEST}.exactly.capacity"),
            (_CLAIM, f"{_REQUEST}.firstAvailable[].capacity"),
            _DISTINCT,
            (_CLAIM, f"{_RESULT}.shareID"),
            (_CLAIM, f"{_RESULT}.consumedCapacity"),
            (_CLAIM, "status.devices[].shareID"),
        ),
        kept={(1, 34): (_DISTINCT,)},  # it clears a copy of each constraint
        flags=("--shared-gpus", "--shared-mig"),
        found="a slice created as a dry run, and each slice and claim that was stored",
        without="a GPU is given whole to each claim",
    ),
    Need(
        key="device-taints",
        what="taints of broken and drained GPUs",
        gate="DRADeviceTaints",
        stages=("off", "off", "on", "on"),
        fields=((_SLICE, f"{_DEVICE}.taints"), *_TOLERATIONS),  # those of results every release stores
        kept={(1, 34): _TOLERATIONS},
        found="a slice created as a dry run, and each slice that was stored",
        without="the driver leaves such a GPU out of its slices until it is well again; the controller evicts gangs that hold it",
    ),
    Need(
        key="allocation-time",
        what="`allocationTimestamp` of a claim",
        stages=("off", "on", "on", "on"),
        fields=((_CLAIM, "status.allocation.allocationTimestamp"),),
        found="each claim that was stored",
        without="a claim that Fairlead made was allocated when it was created; of others the pod that was released for it says when",
    ),
    Need(
        key="binding-conditions",
        what="binding conditions of devices",
        gate="DRADeviceBindingConditions",
        stages=("off", "off", "on", "on"),
        fields=(
            (_SLICE, f"{_DEVICE}.bindsToNode"),
            (_SLICE, f"{_DEVICE}.bindingConditions"),
            (_SLICE, f"{_DEVICE}.bindingFailureConditions"),
            (_CLAIM, f"{_RESULT}.bindingConditions"),
            (_CLAIM, f"{_RESULT}.bindingFailureConditions"),
        ),
        found="each slice that was stored",
        without="other drivers' devices are bound without waiting; ours have none",
    ),
    Need(
        key="extended-resources",
        what="`extendedResourceName` of a DeviceClass",
        gate="DRAExtendedResource",
        stages=("off", "off", "on", "on"),
        fields=((_CLASS, "spec.extendedResourceName"), ("Pod", "status.extendedResourceClaimStatus")),
        found="not asked: the webhook turns limits into claims by itself",
        without="nothing is lost",
    ),
    Need(
        key="device-health",
        what="device health in the pod's status",
        gate="ResourceHealthStatus",
        stages=("off", "off", "on", "on"),
        fields=tuple(
            ("Pod", f"status.{each}[].allocatedResourcesStatus")
            for each in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        ),
        found="not asked: kubelet opens the driver's health stream or does not",
        without="`kubectl describe pod` shows no health; `fairlead nodes`, events and metrics do",
    ),
    Need(
        key="device-status",
        what="`status.devices` of claims",
        gate="DRAResourceClaimDeviceStatus",
        stages=("on", "on", "on", "on"),
        fields=((_CLAIM, "status.devices"),),
        found="each claim that was stored",
        without="use of devices is in metrics only",
    ),
    Need(
        key="granular-status-authorization",
        what="writing allocations needs `resourceclaims/binding`, and `status.devices` `resourceclaims/driver`",
        gate="DRAResourceClaimGranularStatusAuthorization",
        stages=("none", "none", "on", "on"),
        found="not asked: the roles have both from the start",
        without="`resourceclaims/status` suffices, and the allocation fence is what keeps others out",
    ),
    Need(
        key="device-taint-rules",
        what="DeviceTaintRules",
        gate="DRADeviceTaintRules",
        stages=("off", "off", "off", "on"),
        served=(
            "devicetaintrules.v1.resource.k8s.io",
            "devicetaintrules.v1beta2.resource.k8s.io",
            "devicetaintrules.v1alpha3.resource.k8s.io",
        ),
        found="discovery",
        without="no rule is read",
    ),
    Need(
        key="pod-groups",
        what="native PodGroups",
        gate="GenericWorkload",
        stages=("none", "none", "off", "off"),  # in 1.35 the gate is for Workloads without PodGroups
        served=("podgroups.v1beta1.scheduling.k8s.io", "podgroups.v1alpha2.scheduling.k8s.io"),
        fields=(("Pod", "spec.schedulingGroup"),),
        found="discovery",
        without="gangs are declared by annotations, or by the objects of other systems",
    ),
    Need(
        key="claims-of-pod-groups",
        what="a claim reserved for a PodGroup",
        gate="DRAWorkloadResourceClaims",
        stages=("none", "none", "off", "off"),
        found="each pod's status",
        without="each pod has claims of its own",
    ),
)
"""Where a gate of 1.34 guards more than one thing, each has a line."""


def need(key: str) -> Need:
    """Raises KeyError."""
    for each in NEEDS:
        if each.key == key:
            return each
    raise KeyError(key)


def gate_of(field: str) -> str:
    """The gate that guards a field of a slice or claim, by the last name of its path; "" where none does."""
    for each in NEEDS:
        if any(path.rpartition(".")[2] == field for _, path in each.fields):
            return each.gate
    return ""


def parse(text: str) -> Minor:
    """`1.34`, `v1.34.9` or `1.34+` as (1, 34). Raises ValueError, which names the releases there are."""
    parts = text.strip().removeprefix("v").split(".")
    if len(parts) >= 2 and parts[0].isdecimal() and (minor := parts[1].rstrip("+")).isdecimal():
        return int(parts[0]), int(minor)
    raise ValueError(f'"{text}" is not a release of Kubernetes such as {written(RELEASES[0])}')


def written(release: Minor) -> str:
    return f"{release[0]}.{release[1]}"
