"""Two users of namespace ml on a sandbox without programs: mallory has the role `edit`, omar may do everything there (`*`)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fairlead.kube.client import Client
from fairlead.kube.resources import CLUSTER_ROLES, NAMESPACES, ROLE_BINDINGS, raw
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from tests.support.kubernetes import of_this_run

NAMESPACE, EDITOR, OWNER = "ml", "mallory", "omar"
GROUP = "rbac.authorization.k8s.io"
EVERYTHING: dict[str, Any] = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


async def bind_tenants(admin: Client) -> None:
    """In a namespace that exists."""
    await admin.create(raw(CLUSTER_ROLES), {"metadata": {"name": "everything"}, "rules": [EVERYTHING]})
    for user, role in ((EDITOR, "edit"), (OWNER, "everything")):
        body = {
            "metadata": {"name": user},
            "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": GROUP},
            "subjects": [{"kind": "User", "name": user, "apiGroup": GROUP}],
        }
        await admin.create(raw(ROLE_BINDINGS), body, NAMESPACE)


@contextlib.asynccontextmanager
async def with_tenants(workdir: Path) -> AsyncIterator[Cluster]:
    options = ClusterOptions(workdir=workdir, nodes=(), run_programs=False, release=of_this_run())
    async with Cluster(options) as made, made.client() as admin:
        await admin.create(raw(NAMESPACES), {"metadata": {"name": NAMESPACE}})
        await bind_tenants(admin)
        yield made
