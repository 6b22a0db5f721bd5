"""Amounts of cpu, memory and other resources as integers, and what a pod requests of them.

Pure. Source: kubernetes component-helpers/resource (PodRequests), 1.36.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fairlead.kube.quantity import Quantity
from fairlead.sandbox.objects import Obj, containers_of, spec_of


@lru_cache(maxsize=4096)
def amount(resource: str, text: str) -> int:
    """A quantity as an integer: thousandths for cpu, whole units for everything else."""
    quantity = Quantity.of(text)
    return quantity.scaled(-3) if resource == "cpu" else int(quantity)


def amounts(quantities: Mapping[str, Any]) -> dict[str, int]:
    return {resource: amount(resource, str(value)) for resource, value in quantities.items()}


def pod_requests(pod: Obj) -> dict[str, int]:
    """What a pod requests: all containers together, or its largest init container where that is more, plus overhead."""
    total: dict[str, int] = {}
    for container in containers_of(pod):
        add(total, _requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec_of(pod).get("initContainers") or ():
        wanted = _requests(container)
        if container.get("restartPolicy") == "Always":
            add(sidecars, wanted)
            wanted = {}
        for resource in {*wanted, *sidecars}:
            together = wanted.get(resource, 0) + sidecars.get(resource, 0)
            peak[resource] = max(peak.get(resource, 0), together)
    add(total, sidecars)
    for resource, value in peak.items():
        total[resource] = max(total.get(resource, 0), value)
    add(total, amounts(spec_of(pod).get("overhead") or {}))
    return total


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    # A limit without a request is a request. The apiserver defaults it; an object that did not pass it lacks it.
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, value in more.items():
        total[resource] = total.get(resource, 0) + value
