"""Traps of JupyterHub and Kubeflow Notebooks 2.

Sources: kubespawner 7.1.0 kubespawner/spawner.py (start_timeout, profile_list); zero-to-jupyterhub's values (singleuser, and
hub.config, which is applied after it); kubeflow/notebooks v2 WorkspaceKind, whose podTemplate has no claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.cli.checks.traps.base import Json, Trap, at, has_limits, mapping, mappings, number

START_TIMEOUT_S = 60.0
"""KubeSpawner's default; the chart's is 300."""
CHART_TIMEOUT_S = 300.0
WAIT_S = 600.0
SPAWNER = "c.KubeSpawner"


def kube_spawner(hub: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """Settings of a jupyterhub_config.py, as `settings` read them."""
    said = mapping(hub, "spec")
    yield from _timeout(
        f"{SPAWNER}.start_timeout", said, START_TIMEOUT_S, asks=any(map(_asks, (said, *_profiles(said))))
    )
    yield from _half(f"{SPAWNER}.", said)
    for index, profile in enumerate(_profiles(said)):
        yield from _half(f"{SPAWNER}.profile_list[{index}].kubespawner_override.", {**said, **profile}, only=profile)


def chart_values(hub: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """Values of the chart of JupyterHub: `singleuser` in the words of KubeSpawner, then what hub.config says of it."""
    user = mapping(hub, "spec", "singleuser")
    of_hub = mapping(hub, "spec", "hub", "config", "KubeSpawner")
    said: Json = {
        "extra_resource_limits": at(user, "extraResource", "limits"),
        "extra_resource_guarantees": at(user, "extraResource", "guarantees"),
        "extra_pod_config": at(user, "extraPodConfig"),
        "profile_list": at(user, "profileList"),
        **({"start_timeout": user["startTimeout"]} if "startTimeout" in user else {}),
        **of_hub,
    }
    field = "hub.config.KubeSpawner.start_timeout" if "start_timeout" in of_hub else "singleuser.startTimeout"
    yield from _timeout(field, said, CHART_TIMEOUT_S, asks=any(map(_asks, (said, *_profiles(said)))))
    if (
        _pod_claims(said)
        and not at(hub, "spec", "hub", "extraConfig")
        and not any(map(_container_claims, (said, *_profiles(said))))
    ):
        yield _unseen("hub.config.KubeSpawner.extra_container_config", "singleuser.extraPodConfig")


def _profiles(said: Json) -> list[Json]:
    return [mapping(each, "kubespawner_override") for each in mappings(said, "profile_list")]


def _pod_claims(said: Json) -> bool:
    return bool(at(said, "extra_pod_config", "resourceClaims"))


def _container_claims(said: Json) -> bool:
    return bool(at(said, "extra_container_config", "resources", "claims"))


def _asks(said: Json) -> bool:
    """Whether a server with these settings asks for GPUs."""
    own = {"limits": said.get("extra_resource_limits"), "requests": said.get("extra_resource_guarantees")}
    resources = (own, at(said, "extra_container_config", "resources"))
    return _pod_claims(said) or _container_claims(said) or any(map(has_limits, resources))


def _timeout(field: str, said: Json, default: float, *, asks: bool) -> Iterator[Trap]:
    if not asks or ("start_timeout" in said and said["start_timeout"] is None):
        return  # it is computed, and so not known
    seconds = number(said.get("start_timeout"), default)
    if seconds < WAIT_S:
        yield Trap(
            field=field,
            text=f"{seconds:.0f} s: the hub deletes a pod that is not ready by then, and waiting for a GPU counts: the server of a user who "
            "waits in a queue never starts. Raise it to what users may wait, 3600 for an hour",
        )


def _half(where: str, said: Json, *, only: Json | None = None) -> Iterator[Trap]:
    """`only`: a profile's part of the settings; without a claim of its own it says nothing new."""
    pod, container = f"{where}extra_pod_config", f"{where}extra_container_config"
    if only is not None and not (_pod_claims(only) or _container_claims(only)):
        return
    if any(key in said and said[key] is None for key in ("extra_pod_config", "extra_container_config")):
        return
    if _pod_claims(said) and not _container_claims(said):
        yield _unseen(container, pod)
    elif _container_claims(said) and not _pod_claims(said):
        yield Trap(
            field=pod, text=f"has no resourceClaims, and {container} names a claim: the pod is refused. Write both"
        )


def _unseen(missing: str, there: str) -> Trap:
    return Trap(
        field=missing,
        text=f"has no resources.claims, and {there} has a claim: the container would not see its GPU. Write both",
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
