"""Version, discovery, OpenAPI, roles and checks of permissions, by release: as control planes of these releases answered."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.kube.releases import TRIED, Minor
from tests.sandbox.releases.conftest import Of

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
SCHEDULER = "system:kube-scheduler"
CLAIM_CONTROLLER = "system:serviceaccount:kube-system:resource-claim-controller"
TAINTS = "system:controller:device-taint-eviction-controller"


@pytest.mark.parametrize(("minor", "served"), [((1, 34), False), ((1, 35), False), ((1, 36), True)])
async def test_mutating_policies_are_served_since_1_36(of: Of, minor: Minor, served: bool) -> None:
    async with of(minor) as api:
        _, listed = await api.get("/apis/admissionregistration.k8s.io/v1")
        names = {one["name"] for one in listed["resources"]}
        assert ("mutatingadmissionpolicies" in names) is served
        assert ("mutatingadmissionpolicybindings" in names) is served
        assert {"validatingadmissionpolicies", "mutatingwebhookconfigurations"} <= names
        status, _ = await api.get("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies")
        assert status == (200 if served else 404)


@pytest.mark.parametrize(
    ("minor", "claims", "volumes"),
    [
        ((1, 34), "EJAWH5WrAYg=", "Bl3MtjZ/n/s="),
        ((1, 35), "wgAZaHcZxUg=", "Bl3MtjZ/n/s="),
        ((1, 36), "wgAZaHcZxUg=", "tIjydgKBC5w="),
    ],
)
async def test_discovery_shows_in_which_version_objects_are_stored(
    of: Of, minor: Minor, claims: str, volumes: str
) -> None:
    async with of(minor) as api:
        hashes: dict[str, str | None] = {}
        for group in ("resource.k8s.io", "storage.k8s.io"):
            _, listed = await api.get(f"/apis/{group}/v1")
            hashes |= {one["name"]: one.get("storageVersionHash") for one in listed["resources"]}
        assert (hashes["resourceclaims"], hashes["volumeattributesclasses"]) == (claims, volumes)


async def allowed(api: Any, user: str, verb: str, resource: str, subresource: str = "", namespace: str = "") -> bool:
    attributes = {"group": "resource.k8s.io", "verb": verb, "resource": resource, "subresource": subresource}
    spec = {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}
    if namespace:
        attributes["namespace"] = namespace
    _, answer = await api.post(REVIEWS, {"spec": spec})
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize(("minor", "newer"), [((1, 34), False), ((1, 35), False), ((1, 36), True)])
async def test_roles_have_what_the_releases_gates_bring(of: Of, minor: Minor, newer: bool) -> None:
    async with of(minor) as api:
        assert await allowed(api, SCHEDULER, "update", "resourceclaims", "binding") is newer
        assert await allowed(api, CLAIM_CONTROLLER, "patch", "resourceclaims", "binding") is newer
        assert await allowed(api, SCHEDULER, "create", "resourceclaims") is newer
        assert await allowed(api, SCHEDULER, "update", "resourceclaims", "status")
        status, _ = await api.get(f"{ROLES}/{TAINTS}")
        assert status == (200 if newer else 404)


@pytest.mark.parametrize("minor", TRIED)
async def test_who_may_edit_a_namespace_makes_claims_in_every_release(of: Of, minor: Minor) -> None:
    async with of(minor) as api:
        binding = {
            "metadata": {"name": "eve"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}],
        }
        await api.post("/apis/rbac.authorization.k8s.io/v1/namespaces/ml/rolebindings", binding)
        assert await allowed(api, "eve", "create", "resourceclaims", namespace="ml")
        assert await allowed(api, "eve", "get", "resourceclaims", "status", namespace="ml")
        assert not await allowed(api, "eve", "update", "resourceclaims", "status", namespace="ml")


@pytest.mark.parametrize(("minor", "refused"), [((1, 34), False), ((1, 35), False), ((1, 36), True)])
async def test_an_allocation_needs_the_binding_subresource_since_1_36(of: Of, minor: Minor, refused: bool) -> None:
    """So before, whoever may write claims' statuses allocates."""
    rules = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims", "resourceclaims/status"], "verbs": ["*"]}
    ]
    async with of(minor) as api:
        await api.post(ROLES, {"metadata": {"name": "statuses"}, "rules": rules})
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}
        await api.post(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": "statuses"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "statuses"},
                "subjects": [subject],
            },
        )
        request = {"name": "a", "exactly": {"deviceClassName": "x"}}
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
        _, made = await api.post(CLAIMS, claim, user="mallory")
        key = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
        results = [{"request": "a", **key}]
        status = {"allocation": {"devices": {"results": results}}, "devices": [{**key, "data": {"busy": 1}}]}
        code, answer = await api.put(f"{CLAIMS}/c/status", {**made, "status": status}, user="mallory")
        assert code == (422 if refused else 200)
        if refused:
            causes = {cause["field"] for cause in answer["details"]["causes"]}
            assert causes == {"status.allocation", "status.devices"}
