"""What kubelet gives a pod of Fairlead on this machine: its Secret and emptyDir volumes as directories, and its credentials.

These are a kubeconfig, or the directory that a container finds its service account in. Both hold a token of the pod's service account, requested as kubelet does and bound to the pod, hence to its node.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from fairlead.api import names
from fairlead.kube.client import Client
from fairlead.kube.resources import SECRETS
from fairlead.sandbox.objects import Obj, meta, name_of, spec_of


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
        cluster = {"server": self.url, "certificate-authority-data": base64.b64encode(self.ca_pem).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"token": await self._token(pod)}}],
            "contexts": [{"name": "pod", "context": {"cluster": "sandbox", "user": "pod"}}],
            "current-context": "pod",
        }
        file = self.workdir / f"{name_of(pod)}.kubeconfig"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(config))
        return file
