"""A healthy cluster as `doctor` and `check readiness` read it: Fairlead's own manifests as applied, three GPU nodes, a queue, a gang that runs.

Each call makes new objects, so that a test may break what it likes.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import datetime as dt
import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.cli.health.reading import RIGHTS
from fairlead.cli.health.seen import Listed, Seen, Trial
from fairlead.kube import resources, timestamps
from fairlead.kube.resources import Raw
from fairlead.sandbox import files
from fairlead.sandbox.install import manifests
from fairlead.webhook.registration import configurations
from tests.support.engine.objects import gpu, slice_of

NOW = 1_800_000_000.0
NODES = ("node-0", "node-1", "node-2")
Lists = dict[str, list[Raw]]
Change = Mapping[str, Any]
"""Values by their place: a kind and the steps to the value, with names or places of objects of lists, `*` for all of them, and ADD for one more."""
ADD, DROP, NONE = "+", object(), MappingProxyType[str, Any]({})
KINDS = [
    each
    for each in vars(resources).values()
    if isinstance(each, resources.Resource) and not each.plural.startswith("_")
]


@functools.cache
def authority(begins_s: float = NOW - 86_400, ends_s: float = NOW + 365 * 86_400) -> str:
    """A caBundle that is valid in that time."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fairlead-webhook")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime.fromtimestamp(begins_s, dt.UTC))
        .not_valid_after(dt.datetime.fromtimestamp(ends_s, dt.UTC))
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


@functools.cache
def _installed() -> tuple[Raw, ...]:
    return tuple(manifests.load(files.find("manifests/base")))


def healthy() -> Lists:
    """Objects by `str(resource)`."""
    lists: Lists = {str(each): [] for each in KINDS}
    plurals = {each.kind: str(each) for each in KINDS}
    for obj in _installed():
        if obj["kind"] in plurals:
            lists[plurals[obj["kind"]]].append(copy.deepcopy(obj))
    for each in lists["deployments.apps"]:
        each["status"] = {"readyReplicas": each["spec"]["replicas"]}
    for each in lists["daemonsets.apps"]:
        each["status"] = {"desiredNumberScheduled": len(NODES), "numberReady": len(NODES)}
    for make, kind in ((configurations.mutating, "mutating"), (configurations.validating, "validating")):
        target = configurations.Target(bundle="")
        made = make(target)
        for webhook in made["webhooks"]:
            webhook["clientConfig"]["caBundle"] = authority()
        lists[f"{kind}webhookconfigurations.admissionregistration.k8s.io"].append(made)
    lists["endpointslices.discovery.k8s.io"].append(
        {
            "metadata": {
                "name": "fairlead-webhook-x",
                "namespace": names.NAMESPACE,
                "labels": {"kubernetes.io/service-name": "fairlead-webhook"},
            },
            "endpoints": [{"addresses": ["10.0.0.7"], "conditions": {"ready": True}}],
        }
    )
    lists["leases.coordination.k8s.io"] += [
        lease(names.CONTROLLER_ACCOUNT, names.NAMESPACE, holder="fairlead-controller-0", lasts_s=15),
        lease("kube-scheduler", "kube-system", holder="master-0", lasts_s=15),
        lease("kube-controller-manager", "kube-system", holder="master-0", lasts_s=15),
        *(lease(name, "kube-node-lease", holder=name, lasts_s=40) for name in NODES),
    ]
    lists["nodes"] = [node(name) for name in NODES]
    lists["namespaces"] += [{"metadata": {"name": name, "labels": {}}} for name in ("default", "kube-system", "team")]
    for name in NODES:
        lists["resourceslices.resource.k8s.io"] += slice_of(name, [gpu(number) for number in range(8)])
    lists["flavors.fairlead.dev"].append(
        {"metadata": {"name": "h100"}, "spec": {"deviceSelector": "true"}, "status": {"devices": 24, **ready()}}
    )
    lists["queues.fairlead.dev"].append(
        {"metadata": {"name": "team"}, "spec": {"flavors": [{"flavor": "h100", "deserved": 8}]}, "status": ready()}
    )
    lists["gangs.fairlead.dev"].append(gang("train", "Running"))
    lists["pods"].append(pod("train-0", node=NODES[0]))
    lists["resourceclaims.resource.k8s.io"].append(claim("train-0-gpu", allocated_by="fairlead-controller"))
    return lists


def ready(status: str = "True", reason: str = "Ready", message: str = "") -> Raw:
    return {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}]}


def node(name: str, **labels: str) -> Raw:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.present": "true", **labels}},
        "spec": {},
        "status": {
            **ready(),
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"},
            "nodeInfo": {"containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.36.2"},
        },
    }


def lease(
    name: str, namespace: str, *, holder: str, lasts_s: int, renewed_s: float = NOW - 2, written: float = NOW - 2
) -> Raw:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "managedFields": [{"manager": "x", "time": timestamps.seconds(written)}],
        },
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": lasts_s, "renewTime": timestamps.micro(renewed_s)},
    }


def gang(name: str, phase: str, *, namespace: str = "team", reason: str = "", queue: str = "team") -> Raw:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"size": 1, "queue": queue},
        "status": {"phase": phase, "reason": reason, "queue": queue, "nodes": [NODES[0]]},
    }


def pod(
    name: str, *, namespace: str = "team", node: str = "", claim: str = "", gates: tuple[str, ...] = (), **spec: Any
) -> Raw:
    """With a claim called `NAME-gpu`, where no other is named; made ten minutes ago."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {names.GANG: "train"},
            "creationTimestamp": timestamps.seconds(NOW - 600),
        },
        "spec": {
            "containers": [{"name": "main", "resources": {}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim or f"{name}-gpu"}],
            "schedulerName": "default-scheduler",
            "schedulingGates": [{"name": gate} for gate in gates],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def claim(name: str, *, namespace: str = "team", allocated_by: str = "", device: str = "gpu-0") -> Raw:
    made: Raw = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS, "count": 1}}]}
        },
    }
    if allocated_by:
        result = {"request": "gpu", "driver": names.DRIVER, "pool": NODES[0], "device": device}
        made["status"] = {"allocation": {"devices": {"results": [result]}}}
        made["metadata"]["managedFields"] = [
            {"manager": allocated_by, "subresource": "status", "fieldsV1": {"f:status": {"f:allocation": {}}}}
        ]
    return made


def template_of(claim: Raw, name: str) -> Raw:
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"spec": copy.deepcopy(claim["spec"])}}


def changed(lists: Lists, *changes: Change) -> Lists:
    """The same lists, in which each place that a change names has its value, or is no more. What it names has to be there."""
    for place, value in (each for change in changes for each in change.items()):
        *steps, last = place.split(" ")
        holders: list[Any] = [lists]
        for step in steps:
            holders = [holder[key] for holder in holders for key in _keys(holder, step)]
        assert holders, place
        for holder in holders:
            if last == ADD:
                holder.append(copy.deepcopy(value))
                continue
            keys = _keys(holder, last)
            assert keys or last == "*", place
            for key in sorted(keys, reverse=True):
                if value is DROP:
                    del holder[key]
                else:
                    holder[key] = copy.deepcopy(value)
    return lists


def _keys(holder: Any, step: str) -> list[Any]:
    if not isinstance(holder, list):
        return [step]
    if step == "*":
        return list(range(len(holder)))
    if step.lstrip("-").isdecimal():
        return [int(step)]
    return [at for at, each in enumerate(holder) if each["metadata"]["name"] == step]


def seen(lists: Mapping[str, list[Raw]], *, missing: Sequence[str] = (), **more: Any) -> Seen:
    """As read from such a cluster by somebody who may read everything, and which does not serve what is `missing`."""
    facts: dict[str, Any] = {
        "now": NOW,
        "release": "v1.36.2",
        "groups": {"resource.k8s.io": ("v1",), "fairlead.dev": ("v1alpha1",), "apps": ("v1",)},
        "gates": {"DynamicResourceAllocation": True, "DRAPartitionableDevices": True, "DRADeviceTaints": True},
        "allowed": dict.fromkeys(RIGHTS, True),
        "trial": Trial(answered=True),
        "lists": {key: Listed(items=tuple(items)) for key, items in lists.items()}
        | dict.fromkeys(missing, Listed(served=False)),
    }
    return Seen(**facts | more)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("\x1b[31m") | st.just("1e999999"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        found += [each for key in sorted(value) for each in _paths(value[key], (*path, key))]
    elif isinstance(value, list):
        found += [each for at, item in enumerate(value) for each in _paths(item, (*path, at))]
    return found


def with_odd_values(lists: Lists, changes: Sequence[tuple[tuple[str, int, tuple[Any, ...]], Any]]) -> Lists:
    """A copy in which each of these places has that value. A place that an earlier change took away is passed over."""
    touched = {(kind, at) for (kind, at, _), _ in changes}
    changed = {
        kind: [copy.deepcopy(obj) if (kind, at) in touched else obj for at, obj in enumerate(items)]
        for kind, items in lists.items()
    }
    for (kind, at, path), odd in changes:
        holder: Any = changed[kind][at]
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = odd
    return changed


def places(lists: Lists) -> list[tuple[str, int, tuple[Any, ...]]]:
    """All values of all objects: the kind, which of its objects, and the path."""
    return [
        (kind, at, path)
        for kind, items in sorted(lists.items())
        for at, obj in enumerate(items)
        for path in _paths(obj)
    ]


NO_OBJECTS: tuple[Any, ...] = (
    None,
    1,
    "x",
    [],
    {},
    {"metadata": None},
    {"metadata": {"name": []}},
    {"spec": [], "status": 3},
)
"""What no apiserver lists."""
