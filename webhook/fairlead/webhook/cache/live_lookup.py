"""What the caches do not have, asked of the apiserver: once for each review, and only what the review names.

Exists because `kubectl apply` makes a template and, a moment later, the pod that uses it: a cache that lags must not turn a
managed pod into an unmanaged one. A snapshot that lacks something raises `UnaskedError`; it is answered, and the snapshot
made again. Keeps nothing from one review to the next. Writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import Resource
from fairlead.webhook.review.envelope import Review

log = logging.getLogger(__name__)

SAR_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
What = tuple[str, str, str]
"""Resource, namespace and name."""


class UnaskedError(Exception):
    """Something that has to be asked first."""

    def __init__(self, what: What, ask: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(what)
        self.what, self.ask = what, ask


class Answers:
    """The apiserver's answers for one review. Each method raises UnaskedError until it was asked."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._given: dict[What, Any] = {}

    async def find(self, unasked: UnaskedError) -> None:
        """Raises ApiError."""
        self._given[unasked.what] = await unasked.ask()

    def live(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        """What the apiserver has under that name, None if nothing."""
        what = (resource.plural, namespace or "", name)
        return self._answer(what, lambda: _or_none(self._client.get(resource, name, namespace)))

    def may_release(self, review: Review) -> bool:
        """Whether RBAC lets the user write allocations: who may give devices to a pod may let it go, too."""
        return bool(self._answer(("subjectaccessreviews", "", review.username), lambda: self._allowed(review)))

    def serves(self, api: str) -> bool:
        """Whether the cluster serves an API group. One that cannot be asked counts as served: nothing is done then."""
        return bool(self._answer(("apis", "", api), lambda: self._served(api)))

    def _answer(self, what: What, ask: Callable[[], Awaitable[Any]]) -> Any:
        if what not in self._given:
            raise UnaskedError(what, ask)
        return self._given[what]

    async def _served(self, api: str) -> bool:
        try:
            await self._client.request("GET", f"/apis/{api}")
        except errors.NotFound:
            return False
        except errors.ApiError as error:
            log.warning("whether %s is served cannot be asked: %s", api, error)
        return True

    async def _allowed(self, review: Review) -> bool:
        attributes = {
            "group": "resource.k8s.io",
            "resource": "resourceclaims",
            "subresource": "binding",
            "verb": "update",
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": review.username,
                "groups": sorted(review.groups),
                "resourceAttributes": attributes,
            },
        }
        try:
            answer = msgspec.json.decode(await self._client.request("POST", SAR_PATH, body=body))
        except errors.ApiError as error:
            log.warning("whether %s may release pods cannot be found out: %s", review.username, error)
            return False
        return bool(answer.get("status", {}).get("allowed"))


async def _or_none(read: Awaitable[Any]) -> Any:
    try:
        return await read
    except errors.NotFound:
        return None
