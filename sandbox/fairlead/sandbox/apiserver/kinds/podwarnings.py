"""Warnings about pods and Jobs.

Those that users of this project may meet: names that make odd hostnames, environment variables that hide one another,
deprecated node labels. Source: pkg/api/pod/warnings.go, pkg/registry/{core/pod,batch/job}/strategy.go (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import label_complaints

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
