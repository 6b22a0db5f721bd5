"""The Endpoints of Fairlead's Services: the pods that are ready, each with the ports it has on this machine.

Stands for kube-controller-manager's endpoints controller, with one subset per pod: on one address, no two pods share a port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import SERVICES, Raw, Resource
from fairlead.sandbox.install.pod_commands import only_container, port_number
from fairlead.sandbox.objects import Obj, labels_of, name_of, spec_of

ENDPOINTS: Final = Resource(group="", version="v1", plural="endpoints", kind="Endpoints", namespaced=True, type=dict)

ReadyPod = tuple[Obj, Mapping[int, int]]
"""A pod, and the port of this machine for each of its ports."""


async def publish(admin: Client, ready: Sequence[ReadyPod]) -> None:
    """Write the Endpoints of every Service in Fairlead's namespace; subsets in the order of `ready`."""
    for service in (await admin.list(SERVICES, names.NAMESPACE)).items:
        subsets = [_subset(pod, ports, service) for pod, ports in ready if _selects(service, pod)]
        try:
            found = await admin.get(ENDPOINTS, name_of(service), names.NAMESPACE)
            await admin.replace(ENDPOINTS, found | {"subsets": subsets})
        except errors.NotFound:
            metadata = {"name": name_of(service), "namespace": names.NAMESPACE}
            body: Raw = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
            await admin.create(ENDPOINTS, body, names.NAMESPACE)


def _selects(service: Obj, pod: Obj) -> bool:
    selector = spec_of(service).get("selector") or {}
    return bool(selector) and selector.items() <= labels_of(pod).items()


def _subset(pod: Obj, ports: Mapping[int, int], service: Obj) -> Obj:
    container = only_container(pod)
    listed = [
        {"name": port.get("name", ""), "port": ports[port_number(container, port.get("targetPort", port["port"]))]}
        for port in spec_of(service)["ports"]
    ]
    return {"addresses": [{"ip": "127.0.0.1"}], "ports": listed}
