"""The targets by name. Each is made when it is needed: some import a whole program, some work in a directory of their own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.fuzz.target import Target

TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "http-requests": "http.requests",
        "http-answers": "http.answers",
        "apiserver-objects": "apiserver.objects",
        "apiserver-watches": "apiserver.watches",
        "discovery": "apiserver.discovery",
        "lease": "apiserver.lease",
        "kubeconfig": "credentials.kubeconfig",
        "controller-views": "controller.views",
        "admission-reviews": "webhook.reviews",
        "cel-selectors": "cel.selectors",
        "cel-policies": "cel.policies",
        "driver-records": "driver_files.records",
        "driver-states": "driver_files.states",
        "gpu-profiles": "driver_files.profiles",
        "mig-layouts": "driver_files.layouts",
        "kubelet-calls": "kubelet.calls",
        "allocations": "kubelet.allocations",
        "texts": "texts.texts",
        "metadata": "texts.metadata",
        "kinds-and-configs": "texts.kinds",
        "imports": "imports.configurations",
    }
)
"""The function that makes it, with its module in this package."""


def made(name: str, scratch: Path) -> Target:
    """scratch: an empty directory that the target may use until the end of the process."""
    module, _, function = TARGETS[name].partition(".")
    target: Target = getattr(importlib.import_module(f"{__name__}.{module}"), function)(scratch)
    return target
