"""Which release of Kubernetes a cluster is: what it has, which fields it drops or does not know.

`has` answers by the key of a line of `fairlead.kube.releases` or, for what only a cluster's own parts do, of SINCE; no other
module compares releases. `gates` sets feature gates otherwise than the release does, as flags of its programs would.
Worked example: `Release.of((1, 34)).has("device-taints")` is False; with `gates={"DRADeviceTaints": True}` it is True; with a gate
that a later release brought it stays False.
Source: pkg/features/kube_features.go, api/openapi-spec/swagger.json and api/discovery of 1.34.9, 1.35.6 and 1.36.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from fairlead.cel import Environments, environments
from fairlead.kube import releases
from fairlead.kube.releases import NEEDS, NEWEST_TRIED, TRIED, Minor, Need

Pair = tuple[str, str]

SINCE: Final[Mapping[str, Minor]] = MappingProxyType(
    {
        "attribute-union-invalid": (1, 35),
        "claims-stored-as-v1": (1, 35),
        "counters-apart": (1, 35),
        "empty-devices-omitted": (1, 35),
        "incomplete-pools-unused": (1, 35),
        "nomination-for-expectation": (1, 35),
        "mutating-admission-policies": (1, 36),
        "volume-attributes-stored-as-v1": (1, 36),
    }
)
"""What changed without being anything that Fairlead needs:

- an attribute without a value is refused as invalid, in 1.34 as required;
- resource.k8s.io, and later VolumeAttributesClasses, are stored as v1, which shows in discovery's hashes;
- counters are in slices without devices (validateResourceSliceSpec), in 1.34 beside the devices that consume them;
- `spec.devices` of a slice without devices is left out, where 1.34 prints null;
- kube-scheduler takes no device of a pool of which slices are missing; that of 1.34 does, for exact counts;
- kube-scheduler writes `nominatedNodeName` before it binds a pod with claims (NominatedNodeNameForExpectation);
- MutatingAdmissionPolicies are served as v1.
"""

_UNKNOWN_SINCE: Final[tuple[tuple[Minor, frozenset[Pair]], ...]] = (
    (
        (1, 35),
        frozenset(
            {
                ("V1CSIDriverSpec", "serviceAccountTokenInSecrets"),
                ("V1CustomResourceDefinitionCondition", "observedGeneration"),
                ("V1CustomResourceDefinitionStatus", "observedGeneration"),
                ("V1NodeStatus", "declaredFeatures"),
                ("V1PodCertificateProjection", "userAnnotations"),
                ("V1PodStatus", "allocatedResources"),
                ("V1PodStatus", "resources"),
            }
        ),
    ),
    (
        (1, 36),
        frozenset(
            {
                ("V1CSIDriverSpec", "preventPodSchedulingIfMissing"),
                ("V1DeviceAttribute", "bools"),
                ("V1DeviceAttribute", "ints"),
                ("V1DeviceAttribute", "strings"),
                ("V1DeviceAttribute", "versions"),
                ("V1PodSpec", "schedulingGroup"),
                ("V1PodStatus", "nodeAllocatableResourceClaimStatuses"),
                ("V1ResourceHealth", "message"),
                ("V1VolumeMountStatus", "volumeStatus"),
            }
        ),
    ),
)
"""Fields by the release whose schema has them first, as model of the client and name: an older one calls them unknown."""

_GO: Final[Mapping[Minor, str]] = MappingProxyType({(1, 34): "go1.25.11", (1, 35): "go1.25.11", (1, 36): "go1.26.6"})


@dataclass(frozen=True)
class Release:
    """Equal releases with equal gates are one; make it with `of` or `chosen`."""

    minor: Minor
    gates: tuple[tuple[str, bool], ...] = ()

    @staticmethod
    def of(minor: Minor, gates: Mapping[str, bool] | None = None) -> Release:
        """Raises ValueError for a release of which no real control plane was tried, and for a gate of no line."""
        if minor not in TRIED:
            raise ValueError(f"{releases.written(minor)}: {_THERE_ARE}")
        known = {each.gate for each in NEEDS if each.gate}
        for gate in gates or {}:
            if gate not in known:
                raise ValueError(f"feature gate {gate}: the sandbox knows {', '.join(sorted(known))}")
        return Release(minor, tuple(sorted((gates or {}).items())))

    @property
    def name(self) -> str:
        return releases.written(self.minor)

    @property
    def version(self) -> str:
        """`1.34.9`, the patch release that was tried."""
        return TRIED[self.minor]

    @property
    def go(self) -> str:
        return _GO[self.minor]

    @property
    def cel(self) -> Environments:
        return environments(self.minor)

    def has(self, key: str) -> bool:
        """Raises KeyError."""
        since = SINCE.get(key)
        return self.minor >= since if since is not None else self._holds(releases.need(key))

    def _holds(self, need: Need) -> bool:
        gate = dict(self.gates).get(need.gate)
        if gate is None:
            return need.holds(self.minor)
        return gate and need.stage(self.minor) != "none"

    @cached_property
    def unknown(self) -> frozenset[Pair]:
        """Fields that the newest release's schema has and this one's has not."""
        return frozenset(pair for since, pairs in _UNKNOWN_SINCE if self.minor < since for pair in pairs)

    def guarded(self, kind: str) -> list[Guarded]:
        """What objects of the kind lose, by gate."""
        found = []
        for need in NEEDS:
            fields, kept = need.fields, need.kept.get(self.minor, ())
            paths = tuple(_paths(fields, kind))
            if paths and not self._holds(need):
                found.append(Guarded(paths, tuple(path for path in paths if path not in set(_paths(kept, kind)))))
        return found


@dataclass(frozen=True, slots=True)
class Guarded:
    """Paths that one gate guards: an object that uses one of `paths` loses none, another loses those that are `dropped`."""

    paths: tuple[str, ...]
    dropped: tuple[str, ...]


def _paths(fields: Iterable[Pair], kind: str) -> Iterator[str]:
    for owner, path in fields:
        if owner == kind:
            yield path
        elif (owner, kind) == ("ResourceClaim", "ResourceClaimTemplate") and path.startswith("spec."):
            yield f"spec.{path}"


def chosen(text: str) -> Release:
    """What a user wrote: `1.34`. Raises ValueError, which names the releases there are."""
    try:
        return Release.of(releases.parse(text))
    except ValueError:
        raise ValueError(f'"{text}": {_THERE_ARE}') from None


def as_release(given: Release | Minor) -> Release:
    """Raises ValueError."""
    return given if isinstance(given, Release) else Release.of(given)


_THERE_ARE: Final = f"the sandbox is Kubernetes {', '.join(map(releases.written, sorted(TRIED)))}; choose one of them"
NEWEST: Final = Release.of(NEWEST_TRIED)
