"""Traps of JupyterHub and Kubeflow Notebooks 2.

Sources: kubespawner 7.1.0 kubespawner/spawner.py (start_timeout); zero-to-jupyterhub's values (singleuser); kubeflow/notebooks v2
WorkspaceKind, whose podTemplate has no claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.cli.checks.traps.base import Json, Trap, at, has_limits, mapping, mappings, number

START_TIMEOUT_S = 60.0
"""KubeSpawner's default; the chart's is 300."""
CHART_TIMEOUT_S = 300.0
WAIT_S = 600.0


def kube_spawner(hub: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """Settings of a jupyterhub_config.py, as `settings` read them."""
    said = mapping(hub, "spec")
    limits = {"limits": said.get("extra_resource_limits")}
    claims = at(said, "extra_pod_config", "resourceClaims"), at(said, "extra_container_config", "resources", "claims")
    yield from _timeout(
        "c.KubeSpawner.start_timeout",
        number(said.get("start_timeout"), START_TIMEOUT_S),
        asks=any(claims) or has_limits(limits) or has_limits(at(said, "extra_container_config", "resources")),
    )
    yield from _half("c.KubeSpawner.extra_pod_config", "c.KubeSpawner.extra_container_config", *claims)


def chart_values(hub: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """Values of the chart of JupyterHub."""
    said = mapping(hub, "spec", "singleuser")
    resources = {"limits": at(said, "extraResource", "limits"), "requests": at(said, "extraResource", "guarantees")}
    profiles = [mapping(each, "kubespawner_override") for each in mappings(said, "profileList")]
    asks = has_limits(resources) or bool(at(said, "extraPodConfig", "resourceClaims"))
    asks = asks or any(
        has_limits({"limits": each.get("extra_resource_limits")}) or at(each, "extra_pod_config", "resourceClaims")
        for each in profiles
    )
    yield from _timeout("singleuser.startTimeout", number(said.get("startTimeout"), CHART_TIMEOUT_S), asks=asks)


def _timeout(field: str, seconds: float, *, asks: bool) -> Iterator[Trap]:
    if asks and seconds < WAIT_S:
        yield Trap(
            field=field,
            text=f"{seconds:.0f} s: the hub deletes a pod that is not ready by then, and waiting for a GPU counts: the server of a user who "
            "waits in a queue never starts. Raise it to what users may wait, 3600 for an hour",
        )


def _half(pod: str, container: str, of_pod: object, of_container: object) -> Iterator[Trap]:
    if bool(of_pod) != bool(of_container):
        missing, there = (container, pod) if of_pod else (pod, container)
        what = "resources.claims" if of_pod else "resourceClaims"
        yield Trap(
            field=missing,
            text=f"has no {what}, and {there} has a claim: the container would not see its GPU. Write both"
            if of_pod
            else f"has no {what}, and {there} names a claim: the pod is refused. Write both",
        )


def workspace_kind(kind: Json, others: Sequence[Json]) -> Iterator[Trap]:
    template = mapping(kind, "spec", "podTemplate")
    if template.get("resourceClaims"):
        yield _unknown("spec.podTemplate.resourceClaims")
    for index, value in enumerate(mappings(template, "options", "podConfig", "values")):
        if at(value, "spec", "resources", "claims") or at(value, "spec", "resourceClaims"):
            yield _unknown(f"spec.podTemplate.options.podConfig.values[{index}].spec")


def _unknown(field: str) -> Trap:
    return Trap(
        field=field,
        text="WorkspaceKinds have no claims: the pod gets none. Write limits (nvidia.com/gpu) into the option's resources",
    )
