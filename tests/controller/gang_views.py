"""Gangs as pods and claims show them, for tests: pods, claims, and what they refer to, without a cluster."""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.controller.gangs.admission import recovery, requests
from fairlead.controller.gangs.build import build_gang
from fairlead.controller.gangs.membership import gangs
from fairlead.controller.gangs.membership.members import ANYWHERE, GroupTerms, VolumeNeeds
from fairlead.kube import batch, core, resource, timestamps

NOW = 1_800_000_000.0
CLASS = msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{names.DRIVER}'"}}]}}, resource.DeviceClass)  # fmt: skip
OTHER_CLASS = msgspec.convert({"metadata": {"name": "nic"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'nic.example.com'"}}]}}, resource.DeviceClass)  # fmt: skip


def spec(device_class="gpu"):
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class}}]}}


def template(name="t", device_class="gpu"):
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ml"}, "spec": {"spec": spec(device_class)}},
        resource.ResourceClaimTemplate,
    )


def pod(name, *, gang=None, size=None, gated=True, phase="Pending", node="", claim=None, template="t", **meta):
    annotations = ({names.GANG: gang} if gang else {}) | ({names.GANG_SIZE: str(size)} if size else {})
    use = {"name": "gpu", "resourceClaimTemplateName": template} if template else {}
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": annotations,
                "creationTimestamp": timestamps.seconds(NOW - 60),
            } | meta,
            "spec": {
                "nodeName": node,
                "schedulingGates": [{"name": names.ADMISSION_GATE}] if gated else [],
                "resourceClaims": [use] if use else [],
            },
            "status": {
                "phase": phase,
                "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim}] if claim else [],
            },
        },
        core.Pod,
    )  # fmt: skip


def claim(name, owner, *, node=None, reserved=(), ours=False, age_s=0.0, **meta):
    status: dict[str, Any] = {}
    if node:
        status["allocation"] = {
            "devices": {"results": [{"request": "r", "driver": names.DRIVER, "pool": node, "device": name}]},
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
            },
            "allocationTimestamp": timestamps.seconds(NOW - age_s),
        }
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in reserved]
    owners = [{"kind": "Pod", "name": owner, "uid": f"uid-{owner}", "controller": True}] if owner else []
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "namespace": "ml", "uid": f"uid-{name}", "ownerReferences": owners,
                "annotations": {names.POD_CLAIM_NAME: "gpu"},
                "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE} if ours else {},
            } | meta,
            "spec": spec(),
            "status": status,
        },
        resource.ResourceClaim,
    )  # fmt: skip


@dataclass
class Objects:
    claims: list[resource.ResourceClaim] = field(default_factory=list)
    templates: dict[str, resource.ResourceClaimTemplate] = field(default_factory=lambda: {"t": template()})
    jobs: list[batch.Job] = field(default_factory=list)
    groups: dict[tuple[str, str], GroupTerms] = field(default_factory=dict)
    drivers: tuple[str, ...] = (names.DRIVER,)
    shared_drivers: tuple[str, ...] = ()
    volumes: dict[str, VolumeNeeds] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # of the namespace
    workload_sizes: dict[str, int] = field(default_factory=dict)
    classes: dict[str, resource.DeviceClass] = field(default_factory=lambda: {"gpu": CLASS, "nic": OTHER_CLASS})

    def claim(self, namespace, name):
        return next((each for each in self.claims if each.metadata.name == name), None)

    def claims_of(self, pod):
        return [c for c in self.claims if c.metadata.controller and c.metadata.controller.uid == pod.metadata.uid]

    def template(self, namespace, name):
        return self.templates.get(name)

    def jobs_of(self, gang):
        return [each for each in self.jobs if each.spec.template.metadata.annotations.get(names.GANG) == gang[1]]

    def job_of(self, pod):
        owner = pod.metadata.controller
        return next((each for each in self.jobs if owner is not None and each.metadata.uid == owner.uid), None)

    def volume_needs(self, pod):
        return self.volumes.get(pod.metadata.name, ANYWHERE)

    def pod_group(self, api, namespace, name):
        return self.groups.get((api, name))

    def namespace_labels(self, namespace):
        return self.labels

    def workload_size(self, gang, source):
        return self.workload_sizes.get(source)

    def workload_priority(self, name):
        return self.priorities.get(name)


def view(*pods, objects=None, known=False):
    found = build_gang(gangs.gang_id(pods[0]), pods, objects or Objects(), known=known)
    assert found is not None
    return found


def step(gang, *, timeout_s=60.0, nodes=("n1", "n2"), tried=MappingProxyType({})):
    return recovery.next_step(gang, now=NOW, timeout_s=timeout_s, tried=tried, node_exists=lambda name: name in nodes)


def gated_with(*numbers, size=3, total=3, node="n1", age_s=0.0):
    """A gang of gated pods, of which `numbers` have their claims written."""
    held = [claim(f"c{n}", f"p{n}", node=node, reserved=[f"p{n}"], age_s=age_s) for n in numbers]
    held += [claim(f"c{n}", f"p{n}") for n in range(total) if n not in numbers]
    pods = [pod(f"p{n}", gang="g", size=size, claim=f"c{n}") for n in range(total)]
    return view(*pods, objects=Objects(held))


def released_with(bound, unbound, *, size, age_s):
    total = bound + unbound
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"], age_s=age_s) for n in range(total)]
    pods = [
        pod(f"p{n}", gang="g", size=size, claim=f"c{n}", gated=False, node="n1" if n < bound else "")
        for n in range(total)
    ]
    return view(*pods, objects=Objects(held))


def problem_of(gang):
    """Why the gang is not asked for, in words; "" where it is."""
    found = requests.blocking_problem(gang)
    return "" if found is None else found.message


def asked(gang):
    """What the engine is asked for."""
    found = requests.gang_request(gang, requests.GangRecord(), {})
    assert found is not None
    return found
