"""Live lookups: what the informer cache lacks is read from the apiserver, once per review and only what the review names.

`kubectl apply` creates a template and, a moment later, the pod that uses it: a cache that lags must not turn a managed pod into
an unmanaged one. A snapshot that lacks something raises LookupNeededError; the lookup is done, and the snapshot taken again.
Keeps nothing from one review to the next. Writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.nulls import Decoder
from fairlead.kube.resources import Resource
from fairlead.webhook.review.envelope import Review

log = logging.getLogger(__name__)

SAR_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
LookupKey = tuple[str, str, str]
"""Resource, namespace and name."""


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


_answers = Decoder(_AccessReview)


class LookupNeededError(Exception):
    """The snapshot needs a lookup that was not done yet."""

    def __init__(self, key: LookupKey, read: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(key)
        self.key, self.read = key, read


class LiveLookup:
    """The results of one review's lookups. Each method raises LookupNeededError until `perform` has done its lookup."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._results: dict[LookupKey, Any] = {}

    async def perform(self, needed: LookupNeededError) -> None:
        """Raises ApiError."""
        self._results[needed.key] = await needed.read()

    def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        """The object of that name, None if there is none."""
        key = (resource.plural, namespace or "", name)
        return self._result(key, lambda: _or_none(self._client.get(resource, name, namespace)))

    def may_remove_gate(self, review: Review) -> bool:
        """Whether RBAC lets the user write allocations: a user who may allocate devices to a pod may also release it."""
        return bool(self._result(("subjectaccessreviews", "", review.username), lambda: self._allowed(review)))

    def serves(self, api_group: str) -> bool:
        """Whether the cluster serves an API group. A group whose lookup fails counts as served: the object is left alone."""
        return bool(self._result(("apis", "", api_group), lambda: self._served(api_group)))

    def _result(self, key: LookupKey, read: Callable[[], Awaitable[Any]]) -> Any:
        if key not in self._results:
            raise LookupNeededError(key, read)
        return self._results[key]

    async def _served(self, api_group: str) -> bool:
        try:
            await self._client.request("GET", f"/apis/{api_group}")
        except errors.NotFound:
            return False
        except errors.ApiError as error:
            log.warning("whether API group %s is served cannot be looked up: %s", api_group, error)
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
            answer = _answers.decode(await self._client.request("POST", SAR_PATH, body=body))
        except (errors.ApiError, msgspec.MsgspecError) as error:
            log.warning("whether %s may remove gates cannot be looked up: %s", review.username, error)
            return False
        return answer.status.allowed


async def _or_none(read: Awaitable[Any]) -> Any:
    try:
        return await read
    except errors.NotFound:
        return None
