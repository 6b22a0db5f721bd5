"""What a cluster gives a pod of Fairlead on this machine: volumes as directories, credentials, and a place in its Services' Endpoints.

Credentials are a kubeconfig, or the directory that a container finds its service account in. Both hold a token of the pod's service
account, requested as kubelet does and bound to the pod, hence to its node. Endpoints stand for kube-controller-manager's controller, with
one subset per pod: on one address, no two pods share a port.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import SECRETS, SERVICES, Raw, Resource
from fairlead.sandbox import files
from fairlead.sandbox.install.pod_commands import only_container, port_number
from fairlead.sandbox.objects import Obj, labels_of, meta, name_of, spec_of


@dataclass(frozen=True, kw_only=True)
class PodFiles:
    """Writes below `workdir`, as the admin of the cluster at `url`."""

    admin: Client
    url: str
    ca_pem: bytes
    workdir: Path

    async def secrets(self, pod: Obj) -> AsyncIterator[tuple[str, Path]]:
        """Each Secret volume as a directory of files. Raises NotFound where a Secret is missing: such a pod does not start."""
        for volume in spec_of(pod).get("volumes") or ():
            if "secret" not in volume:
                continue
            secret = await self.admin.get(SECRETS, volume["secret"]["secretName"], names.NAMESPACE)
            folder = self.workdir / name_of(pod) / volume["name"]
            folder.mkdir(parents=True)
            for key, value in (secret.get("data") or {}).items():
                (folder / key).write_bytes(base64.b64decode(value))
            yield volume["name"], folder

    def empty_dirs(self, pod: Obj) -> Iterator[tuple[str, Path]]:
        """Each emptyDir as a directory of the pod's own. Its limit of size is not kept."""
        for volume in spec_of(pod).get("volumes") or ():
            if "emptyDir" in volume:
                folder = self.workdir / name_of(pod) / volume["name"]
                folder.mkdir(parents=True)
                yield volume["name"], folder

    async def service_account(self, pod: Obj) -> Path:
        """The directory that is mounted into a container: token, ca.crt and namespace."""
        folder = self.workdir / name_of(pod) / "serviceaccount"
        folder.mkdir(parents=True)
        (folder / "token").write_text(await self._token(pod))
        (folder / "ca.crt").write_bytes(self.ca_pem)
        (folder / "namespace").write_text(names.NAMESPACE)
        return folder

    async def _token(self, pod: Obj) -> str:
        """As kubelet asks for it: of the pod's account, bound to the pod and so to its node."""
        account = spec_of(pod)["serviceAccountName"]
        path = f"/api/v1/namespaces/{names.NAMESPACE}/serviceaccounts/{account}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [],
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": meta(pod)["uid"]},
            },
        }
        given = msgspec.json.decode(await self.admin.request("POST", path, body=body))
        return str(given["status"]["token"])

    async def kubeconfig(self, pod: Obj) -> Path:
        file = self.workdir / f"{name_of(pod)}.kubeconfig"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(files.kubeconfig(self.url, self.ca_pem, "pod", await self._token(pod)))
        return file


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
