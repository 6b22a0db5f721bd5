"""A small set of kinds without rules, and a client for the server's inside: for tests of the generic half.

`open_kinds()` accepts any object; `Inside` sends requests to a Dispatcher without a socket.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

from fairlead.sandbox.apiserver.authn import Tokens
from fairlead.sandbox.apiserver.dispatch import Dispatcher
from fairlead.sandbox.apiserver.faults import Faults
from fairlead.sandbox.apiserver.kinds.base import SCALE, STATUS, Kind, Registry, Strategy, Subresource
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.store import Store
from fairlead.sandbox.apiserver.wire.exchange import Request, Response, Stream

NOON = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


class OpenStrategy(Strategy):
    """Any object."""


class WithGeneration(Strategy):
    generation = True


class Custom(Strategy):
    custom_resource = True
    generation = True


class OpenPods(Strategy):
    """Pods as far as the generic half cares: grace, no status in the answer to DELETE, their own fields."""

    generation = True
    status_resets_metadata = False
    short_status_on_delete = False

    def grace_period_s(self, obj: Json, requested: int | None) -> int | None:
        if not obj.get("spec", {}).get("nodeName"):
            return 0
        return 30 if requested is None else requested

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        spec, status = obj.get("spec", {}), obj.get("status", {})
        return {"spec.nodeName": spec.get("nodeName", ""), "status.phase": status.get("phase", "")}


class OpenNamespaces(Strategy):
    short_status_on_delete = False

    def prepare_create(self, obj: Json, context: Any) -> None:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}


class OpenLeases(Strategy):
    allow_create_on_update = True
    allow_unconditional_update = False


_POD_SUBS = (
    STATUS,
    Subresource("binding", ("create",), kind="Binding", version="v1"),
    Subresource("eviction", ("create",), kind="Eviction", group="policy", version="v1"),
    Subresource("log", ("get",)),
)


def open_kinds() -> list[Kind]:
    """A cluster's kinds, without their rules."""
    plain, counted = OpenStrategy(), WithGeneration()
    finalize = Subresource("finalize", ("update",))
    rbac, resource = "rbac.authorization.k8s.io", "resource.k8s.io"
    return [
        Kind(
            "",
            "v1",
            "namespaces",
            "Namespace",
            False,
            OpenNamespaces(),
            short_names=("ns",),
            subresources=(STATUS, finalize),
        ),
        Kind("", "v1", "configmaps", "ConfigMap", True, plain, short_names=("cm",), subresources=()),
        Kind("", "v1", "secrets", "Secret", True, plain, subresources=()),
        Kind("", "v1", "events", "Event", True, plain, subresources=()),
        Kind("", "v1", "serviceaccounts", "ServiceAccount", True, plain, subresources=()),
        Kind("", "v1", "nodes", "Node", False, plain),
        Kind("", "v1", "pods", "Pod", True, OpenPods(), short_names=("po",), subresources=_POD_SUBS),
        Kind("apps", "v1", "deployments", "Deployment", True, counted, subresources=(STATUS, SCALE)),
        Kind("batch", "v1", "jobs", "Job", True, counted),
        Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, counted),
        Kind("coordination.k8s.io", "v1", "leases", "Lease", True, OpenLeases(), subresources=()),
        Kind(resource, "v1", "resourceclaims", "ResourceClaim", True, plain),
        Kind(resource, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, plain, subresources=()),
        Kind(resource, "v1", "resourceslices", "ResourceSlice", False, counted, subresources=()),
        Kind(resource, "v1", "deviceclasses", "DeviceClass", False, counted, subresources=()),
        Kind(rbac, "v1", "clusterroles", "ClusterRole", False, plain, subresources=()),
        Kind(rbac, "v1", "clusterrolebindings", "ClusterRoleBinding", False, plain, subresources=()),
        Kind(rbac, "v1", "roles", "Role", True, plain, subresources=()),
        Kind(rbac, "v1", "rolebindings", "RoleBinding", True, plain, subresources=()),
        Kind("example.com", "v1", "widgets", "Widget", True, Custom(), short_names=("w",)),
    ]


class Inside:
    """The apiserver's inside with a caller: `await inside.get("/api/v1/…")` gives (status, body)."""

    def __init__(self, kinds: list[Kind] | None = None, *, history_limit: int = 10_000) -> None:
        self.now = NOON
        self.state = State(
            Store(history_limit=history_limit),
            Registry(kinds or open_kinds()),
            lambda: self.now,
            Random(7),
            Tokens(Random(8)),
        )
        self.faults = Faults(lambda _: 0)
        self.dispatcher = Dispatcher(self.state, self.faults)
        self.last: Response | None = None

    async def call(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        user: str = "admin",
        groups: tuple[str, ...] = (),
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, Any]:
        """Status and decoded body."""
        response = await self.send(
            method, target, body, user=user, groups=groups, headers=headers, content_type=content_type
        )
        assert isinstance(response, Response)
        self.last = response
        if response.content_type.startswith("application/json"):
            return response.status, json.loads(response.body)
        return response.status, response.body.decode()

    async def send(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        user: str = "admin",
        groups: tuple[str, ...] = (),
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Response | Stream | None:
        token = self.state.tokens.issue(user, groups or (("system:masters",) if user == "admin" else ()))
        sent = {"Authorization": f"Bearer {token}", "User-Agent": "tests/1", **(headers or {})}
        data = b""
        if body is not None:
            sent.setdefault("Content-Type", content_type)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.dispatcher.handle(Request.of(method, target, sent, data))

    async def get(self, target: str, **more: Any) -> tuple[int, Any]:
        return await self.call("GET", target, **more)

    async def post(self, target: str, body: Any, **more: Any) -> tuple[int, Any]:
        return await self.call("POST", target, body, **more)

    async def put(self, target: str, body: Any, **more: Any) -> tuple[int, Any]:
        return await self.call("PUT", target, body, **more)

    async def patch(self, target: str, body: Any, kind: str = "merge", **more: Any) -> tuple[int, Any]:
        """`kind`: merge, json, strategic or apply."""
        types = {
            "merge": "application/merge-patch+json",
            "json": "application/json-patch+json",
            "strategic": "application/strategic-merge-patch+json",
            "apply": "application/apply-patch+yaml",
        }
        return await self.call("PATCH", target, body, content_type=types[kind], **more)

    async def delete(self, target: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        return await self.call("DELETE", target, body, **more)

    async def watch(self, target: str, **more: Any) -> Stream:
        response = await self.send("GET", target, **more)
        assert isinstance(response, Stream)
        return response
