"""A pod's volumes as directories of this machine, and each volumeMount as a bind mount of one.

hostPath is the simulated node's directory where it has one, else the machine's own; emptyDir is a directory that every user
may write; a Secret is read-only, and so is the service account's token, which admission adds to every pod. Another kind is
an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fairlead.sandbox.files import here
from fairlead.sandbox.install.pod_files import PodFiles
from fairlead.sandbox.objects import Obj, name_of, spec_of


class VolumeError(ValueError):
    """A volume or a mount that kubelet would refuse, or that is not known here. Names the pod and the field."""


@dataclass(frozen=True)
class Mount:
    source: Path
    target: PurePosixPath
    read_only: bool


@dataclass(frozen=True, kw_only=True)
class Volumes:
    """Of one pod. `host_paths`: directories of its node and where they are on this machine."""

    pod: Obj
    workdir: Path
    files: PodFiles
    host_paths: Mapping[str, Path]

    async def mounts(self, container: Mapping[str, Any]) -> list[Mount]:
        """Outer ones first. Raises VolumeError, or NotFound where a Secret is missing."""
        sources = {name: path async for name, path in self.files.secrets(self.pod)}
        read_only = set(sources)
        for volume in spec_of(self.pod).get("volumes") or ():
            name = volume["name"]
            if "emptyDir" in volume:
                sources[name] = self.workdir / "volumes" / name
                sources[name].mkdir(parents=True)
                sources[name].chmod(0o777)
            elif "hostPath" in volume:
                sources[name] = self._on_host(volume["hostPath"])
            elif any("serviceAccountToken" in each for each in (volume.get("projected") or {}).get("sources", ())):
                sources[name] = await self.files.service_account(self.pod)
                read_only.add(name)
            elif name not in sources:
                raise VolumeError(f"pod {name_of(self.pod)}: volumes: {volume}: this kind is not known here")
        return sorted(self._mounts(container, sources, read_only), key=lambda mount: mount.target)

    def _mounts(
        self, container: Mapping[str, Any], sources: Mapping[str, Path], read_only: set[str]
    ) -> Iterator[Mount]:
        for mount in container.get("volumeMounts") or ():
            unknown = mount.keys() - {"name", "mountPath", "readOnly", "mountPropagation"}
            if unknown or mount["name"] not in sources:
                raise VolumeError(
                    f"pod {name_of(self.pod)}: volumeMounts: {mount}: {sorted(unknown) or 'no such volume'}"
                )
            fixed = mount["name"] in read_only or bool(mount.get("readOnly"))
            yield Mount(sources[mount["name"]], PurePosixPath(mount["mountPath"]), fixed)

    def _on_host(self, volume: Mapping[str, Any]) -> Path:
        path = PurePosixPath(volume["path"])
        found = here(path, self.host_paths)
        if volume.get("type") == "DirectoryOrCreate" and found != Path(path):
            found.mkdir(parents=True, exist_ok=True)
        if not found.is_dir():
            raise VolumeError(f"pod {name_of(self.pod)}: hostPath {volume['path']}: not a directory of this machine")
        return found
