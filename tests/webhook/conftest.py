"""An apiserver with manifests/base, a tenant and the webhook as its own ServiceAccount, for tests of the whole path."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube.client import Client
from fairlead.kube.resources import CLUSTER_ROLES
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.install.manifests import load
from fairlead.sandbox.release import Release
from fairlead.webhook import app
from fairlead.webhook.options import WebhookOptions
from tests.support.kubernetes import of_this_run

ROOT = Path(__file__).parents[2]
SERVICE_ACCOUNTS = ("system:serviceaccounts", f"system:serviceaccounts:{names.NAMESPACE}", "system:authenticated")
TENANT_RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims", "resourceclaimtemplates"], "verbs": ["*"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
]


@dataclass
class Cluster:
    """An apiserver with manifests/base, namespace ml, a tenant alice in it; the webhook where a test starts it."""

    server: ApiServer
    admin: Client
    alice: Client
    workdir: Path
    service_accounts: tuple[str, ...] = SERVICE_ACCOUNTS

    def kubeconfig(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        path = self.workdir / f"{user.replace(':', '-')}.kubeconfig"
        path.write_text(self.server.kubeconfig(user, groups=groups))
        return path

    async def allow(self, rule: dict[str, Any]) -> None:
        """Give the tenant one rule more."""
        role = await self.admin.get(CLUSTER_ROLES, "tenant")
        await self.admin.patch(CLUSTER_ROLES, "tenant", {"rules": [*role["rules"], rule]})

    @contextlib.asynccontextmanager
    async def webhook(self, **options: Any) -> AsyncIterator[None]:
        ready = asyncio.Event()
        kubeconfig = self.kubeconfig(names.WEBHOOK_USER, SERVICE_ACCOUNTS)
        given = WebhookOptions(kubeconfig=kubeconfig, bind="127.0.0.1:0", url="https://127.0.0.1:0", **options)
        task = asyncio.create_task(app.run(given, ready=ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        try:
            if task.done():
                await task
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with served(tmp_path, of_this_run()) as made:
        yield made


@contextlib.asynccontextmanager
async def served(tmp_path: Path, release: Release) -> AsyncIterator[Cluster]:
    server = ApiServer(workdir=tmp_path, release=release)
    await server.start()
    admin_config, alice_config = tmp_path / "admin", tmp_path / "alice"
    admin_config.write_text(server.kubeconfig())
    alice_config.write_text(server.kubeconfig("alice", groups=("system:authenticated",)))
    try:
        async with Client.connect(admin_config) as admin, Client.connect(alice_config) as alice:
            applier = Applier(admin)
            await applier.apply(load(ROOT / "manifests" / "base"))
            await applier.apply(
                [
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}},
                    {
                        "apiVersion": "rbac.authorization.k8s.io/v1",
                        "kind": "ClusterRole",
                        "metadata": {"name": "tenant"},
                        "rules": TENANT_RULES,
                    },
                    {
                        "apiVersion": "rbac.authorization.k8s.io/v1",
                        "kind": "RoleBinding",
                        "metadata": {"name": "alice", "namespace": "ml"},
                        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenant"},
                        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
                    },
                ]
            )
            yield Cluster(server, admin, alice, tmp_path)
    finally:
        await server.stop()
