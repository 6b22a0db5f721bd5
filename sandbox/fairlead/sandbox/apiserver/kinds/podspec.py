"""Defaults of a pod spec, in pods and in the templates of workloads, and what the apiserver warns of.

A Job's template and a Pod are defaulted by one function, as in Go. Pods get more (`default_pod`): requests from limits,
service links. Admission plugins (priority, tolerations, service account) are not defaults. Warned is of what users of this project may
meet: names that make odd hostnames, environment variables that hide one another, deprecated node labels.
Source: pkg/apis/core/v1/{defaults,conversion}.go, pkg/api/pod/warnings.go, pkg/registry/{core/pod,batch/job}/strategy.go (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import label_complaints


def default_pod_spec(spec: Json) -> None:
    """What defaults.yaml cannot say; its defaults are there already."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in all_containers(spec):
        if not container.get("imagePullPolicy"):
            image = str(container.get("image") or "")
            tag = "" if "@" in image else image.rsplit("/", 1)[-1].partition(":")[2]
            latest = "@" not in image and tag in ("", "latest")
            container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
        if spec.get("hostNetwork"):
            for port in container.get("ports") or []:
                port["hostPort"] = port.get("hostPort") or port.get("containerPort")
    for volume in spec.get("volumes") or []:
        if not set(volume) - {"name"}:
            volume["emptyDir"] = {}


def default_pod(pod: Json) -> None:
    """The defaults that a Pod has and a template lacks, too."""
    default_pod_spec(pod["spec"])
    for container in all_containers(pod["spec"]):
        resources = container.get("resources") or {}
        for name, limit in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, limit)


def all_containers(spec: Json) -> Iterator[Json]:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(key) or []


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
