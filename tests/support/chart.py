"""Objects of the chart, for tests that look at several of them."""

from __future__ import annotations

import copy
from typing import Any

from fairlead.api.version import VERSION

HELM_LABELS = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": f"fairlead-{VERSION}"}


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name, without what only helm writes."""
    found = {}
    for each in copy.deepcopy(objects):
        labels = each["metadata"].get("labels") or {}
        for key, value in HELM_LABELS.items():
            if labels.get(key) == value:
                del labels[key]
        if each["kind"] == "CustomResourceDefinition":  # kustomize applies those of manifests/crds, without labels
            each["metadata"].pop("labels", None)
            each["metadata"].pop("annotations", None)
        found[each["kind"], each["metadata"]["name"]] = each
    assert len(found) == len(objects)
    return found


def workloads(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] in {"Deployment", "DaemonSet"}]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(found)
