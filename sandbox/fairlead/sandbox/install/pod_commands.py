"""What a container of Fairlead's image would run: a pod's arguments, environment, paths and ports, on this machine.

Pure. Kubernetes' own rules are kept ($(VAR) in arguments, fieldRef, named ports). Replaced is only what a machine without
containers lacks: a host path by the simulated node's, a port of the pod by a free one. What would fail in a cluster is an
error here: a path that no volume mounts, a port that is not declared, a variable that is not set.

Example: with /registry mounted from the host's /var/lib/kubelet/plugins_registry and container port 8080,
`--registry-dir=/registry --metrics-bind=0.0.0.0:8080` become `--registry-dir=<node>/registry --metrics-bind=127.0.0.1:40000`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from fairlead.sandbox.objects import Obj, meta, name_of, spec_of

_REFERENCE: Final = re.compile(r"\$\((\w+)\)")
_BIND: Final = re.compile(r"(?P<head>.*=)?0\.0\.0\.0:(?P<port>\d+)")
_FIELDS: Final = {
    "metadata.name": lambda pod: meta(pod)["name"],
    "metadata.namespace": lambda pod: meta(pod)["namespace"],
    "metadata.uid": lambda pod: meta(pod)["uid"],
    "spec.nodeName": lambda pod: spec_of(pod)["nodeName"],
    "spec.serviceAccountName": lambda pod: spec_of(pod)["serviceAccountName"],
}


class PodError(ValueError):
    """A pod that a cluster could not run as it is written. Names the pod, the field and the value."""


@dataclass(frozen=True)
class Command:
    """The arguments of `fairlead`, the environment, and the port of this machine for each port of the pod."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    ports: Mapping[int, int]


def command_of(
    pod: Obj, *, host_paths: Mapping[str, Path], volumes: Mapping[str, Path], free_port: Callable[[], int]
) -> Command:
    """`host_paths`: directories of a real node and where they are on this machine. `volumes`: the same for volumes of the
    pod that are on no host (Secrets, emptyDirs), by name. Raises PodError.
    """
    container = only_container(pod)
    if container.get("command"):
        raise PodError(f"pod {name_of(pod)}: command: {container['command']}: the image's entry point is `fairlead`")
    mounts, local = _mounts(pod, container), _local(container, volumes)
    # A variable that names a volume's directory, as the ledger's: without this all clusters of a machine would share what is there.
    environment = {name: str(local.get(value, value)) for name, value in environment_of(pod, container).items()}
    ports = {int(port["containerPort"]): free_port() for port in container.get("ports") or ()}
    arguments = tuple(
        _argument(expanded(str(given), environment, pod), pod, ports, mounts, local, host_paths)
        for given in container.get("args") or ()
    )
    return Command(arguments, environment, ports)


def only_container(pod: Obj) -> Mapping[str, Any]:
    containers = spec_of(pod).get("containers") or []
    if len(containers) != 1:
        raise PodError(f"pod {name_of(pod)}: {len(containers)} containers; Fairlead's pods have one")
    found: Mapping[str, Any] = containers[0]
    return found


def port_number(container: Mapping[str, Any], port: int | str) -> int:
    """A port by number or by name. Raises PodError when the container declares none such."""
    for each in container.get("ports") or ():
        if port in {each.get("name"), each["containerPort"]}:
            return int(each["containerPort"])
    raise PodError(f"container {container['name']}: port {port!r} is not among its ports")


def environment_of(pod: Obj, container: Mapping[str, Any]) -> dict[str, str]:
    """The variables that the manifest sets, fields of the pod filled in. Raises PodError."""
    found = {}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source is None:
            found[variable["name"]] = str(variable.get("value", ""))
            continue
        path = (source.get("fieldRef") or {}).get("fieldPath")
        if path not in _FIELDS:
            raise PodError(f"pod {name_of(pod)}: env {variable['name']}: valueFrom {source} is not known here")
        found[variable["name"]] = str(_FIELDS[path](pod))
    return found


def expanded(text: str, environment: Mapping[str, str], pod: Obj) -> str:
    """$(VAR) replaced. Raises PodError where VAR is not set: kubelet would leave it as it stands."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise PodError(f"pod {name_of(pod)}: argument {text!r}: {match[1]} is not in env")
        return environment[match[1]]

    return _REFERENCE.sub(value, text)


def _mounts(pod: Obj, container: Mapping[str, Any]) -> dict[PurePosixPath, PurePosixPath]:
    """Path in the container to path on the host, of hostPath volumes."""
    volumes = {volume["name"]: volume for volume in spec_of(pod).get("volumes") or ()}
    found = {}
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"])
        if volume is None:
            raise PodError(f"pod {name_of(pod)}: volumeMounts: {mount['name']!r} is no volume of the pod")
        if "hostPath" in volume:
            found[PurePosixPath(mount["mountPath"])] = PurePosixPath(volume["hostPath"]["path"])
    return found


def _local(container: Mapping[str, Any], volumes: Mapping[str, Path]) -> dict[str, Path]:
    """Path in the container to a directory of this machine, of volumes that are not host paths."""
    return {
        mount["mountPath"]: volumes[mount["name"]]
        for mount in container.get("volumeMounts") or ()
        if mount["name"] in volumes
    }


def _argument(
    given: str,
    pod: Obj,
    ports: Mapping[int, int],
    mounts: Mapping[PurePosixPath, PurePosixPath],
    local: Mapping[str, Path],
    host_paths: Mapping[str, Path],
) -> str:
    if bind := _BIND.fullmatch(given):
        port = int(bind["port"])
        if port not in ports:
            raise PodError(f"pod {name_of(pod)}: argument {given!r}: port {port} is not among the container's ports")
        return f"{bind['head'] or ''}127.0.0.1:{ports[port]}"
    flag, equals, value = given.partition("=")
    if not equals or not value.startswith("/"):
        return given
    if value in local:
        return f"{flag}={local[value]}"
    host = _on_host(PurePosixPath(value), mounts)
    if host is None:
        raise PodError(f"pod {name_of(pod)}: argument {given!r}: no volume is mounted there")
    for directory, here in host_paths.items():
        if host.is_relative_to(directory):
            return f"{flag}={here / host.relative_to(directory)}"
    raise PodError(
        f"pod {name_of(pod)}: argument {given!r}: {host} is not known of the node; it has {sorted(host_paths)}"
    )


def _on_host(path: PurePosixPath, mounts: Mapping[PurePosixPath, PurePosixPath]) -> PurePosixPath | None:
    """Where a path of the container is on the host: in a mount, or above one that lies under the same names there."""
    for inside, host in mounts.items():
        if path.is_relative_to(inside):
            return host / path.relative_to(inside)
        if inside.is_relative_to(path):
            below = inside.relative_to(path).parts
            if host.parts[-len(below) :] == below:
                return PurePosixPath(*host.parts[: -len(below)])
    return None
