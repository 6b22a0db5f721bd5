"""Defaults of a pod spec, in pods and in the templates of workloads, and what the apiserver warns of.

A Job's template and a Pod are defaulted by one function, as in Go. Pods get more (`default_pod`): requests from limits,
service links. Admission plugins (priority, tolerations, service account) are not defaults. Warned is of what users of this project may
meet: names that make odd hostnames, environment variables that hide one another, deprecated node labels.
Source: pkg/apis/core/v1/{defaults,conversion}.go, pkg/api/pod/warnings.go, pkg/registry/{core/pod,batch/job}/strategy.go (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import label_complaints

_VOLUME_META_KEYS = {"name"}
_FILE_MODE = 0o644


def _set(obj: Json, key: str, value: Any) -> None:
    if obj.get(key) in (None, ""):
        obj[key] = value


def default_pod_spec(spec: Json) -> None:
    _set(spec, "restartPolicy", "Always")
    _set(spec, "terminationGracePeriodSeconds", 30)
    _set(spec, "dnsPolicy", "ClusterFirst")
    _set(spec, "securityContext", {})
    _set(spec, "schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in all_containers(spec):
        _default_container(container)
        if spec.get("hostNetwork"):
            for port in container.get("ports") or []:
                _set(port, "hostPort", port.get("containerPort"))
    for volume in spec.get("volumes") or []:
        _default_volume(volume)


def default_pod(pod: Json) -> None:
    """The defaults that a Pod has and a template lacks."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    _set(spec, "enableServiceLinks", True)
    for container in all_containers(spec):
        resources = container.get("resources") or {}
        for name, limit in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, limit)


def all_containers(spec: Json) -> Iterator[Json]:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(key) or []


def _default_container(container: Json) -> None:
    _set(container, "resources", {})
    _set(container, "terminationMessagePath", "/dev/termination-log")
    _set(container, "terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        image = str(container.get("image") or "")
        tag = "" if "@" in image else image.rsplit("/", 1)[-1].partition(":")[2]
        latest = "@" not in image and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    for port in container.get("ports") or []:
        _set(port, "protocol", "TCP")
    for variable in container.get("env") or []:
        source = variable.get("valueFrom") or {}
        if isinstance(source.get("fieldRef"), dict):
            _set(source["fieldRef"], "apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(probe), dict):
            _default_probe(container[probe])
    for hook in ("postStart", "preStop"):
        _default_http((container.get("lifecycle") or {}).get(hook) or {})


def _default_probe(probe: Json) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(key):
            probe[key] = value
    _default_http(probe)
    if isinstance(probe.get("grpc"), dict):
        probe["grpc"].setdefault("service", "")


def _default_http(handler: Json) -> None:
    get = handler.get("httpGet")
    if isinstance(get, dict):
        _set(get, "path", "/")
        _set(get, "scheme", "HTTP")


def _default_volume(volume: Json) -> None:
    if not set(volume) - _VOLUME_META_KEYS:
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "downwardAPI", "projected"):
        if isinstance(volume.get(kind), dict) and volume[kind].get("defaultMode") is None:
            volume[kind]["defaultMode"] = _FILE_MODE
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    items = list((volume.get("downwardAPI") or {}).get("items") or [])
    for source in (volume.get("projected") or {}).get("sources") or []:
        token = source.get("serviceAccountToken")
        if isinstance(token, dict):
            _set(token, "expirationSeconds", 3600)
        items += (source.get("downwardAPI") or {}).get("items") or []
    for item in items:
        if isinstance(item.get("fieldRef"), dict):
            _set(item["fieldRef"], "apiVersion", "v1")


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory of all containers."""
    asked, limited = False, True
    for key in ("containers", "initContainers"):
        for container in spec.get(key) or []:
            resources = container.get("resources") or {}
            requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
            for name in ("cpu", "memory"):
                request, limit = requests.get(name, "0"), limits.get(name, "0")
                if request not in ("0", 0) or limit not in ("0", 0):
                    asked = True
                if limit in ("0", 0) or request != limit:
                    limited = False
    if not asked:
        return "BestEffort"
    return "Guaranteed" if limited else "Burstable"


_DEPRECATED_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}


def name_warning(name: str, use: str) -> Iterator[str]:
    """For names that are subdomains but no labels."""
    complaints = label_complaints(name)
    if complaints:
        yield (
            f"metadata.name: this is used in {use}, which can result in surprising behavior; a DNS label is recommended: "
            f"[{' '.join(complaints)}]"
        )


def pod_warnings(pod: Json) -> Iterator[str]:
    yield from name_warning(pod["metadata"].get("name", ""), "the Pod's hostname")
    yield from template_warnings(pod.get("spec", {}), "spec")


def template_warnings(spec: Json, path: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or {}:
        if key in _DEPRECATED_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_DEPRECATED_LABELS[key]}"
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield (
            f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        )
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            seen: set[str] = set()
            for at, variable in enumerate(container.get("env") or []):
                name = variable.get("name", "")
                if name in seen:
                    yield (
                        f'{path}.{kind}[{index}].env[{at}]: hides previous definition of "{name}", which may be dropped '
                        "when using apply"
                    )
                seen.add(name)
