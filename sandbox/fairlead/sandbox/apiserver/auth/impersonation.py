"""Impersonation (`kubectl --as`): permitted by the verb `impersonate` on users, groups, uids and userextras.

Source: k8s.io/apiserver/pkg/endpoints/filters/impersonation.go (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.authn import identity
from fairlead.sandbox.apiserver.kinds.request import Access, UserInfo
from fairlead.sandbox.apiserver.state import Authorizer

_USER, _GROUP, _UID, _EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"


def effective(user: UserInfo, headers: Mapping[str, str], authorizer: Authorizer) -> UserInfo:
    """The user of the request, or the one in its Impersonate-* headers. Raises 403, 500."""
    name = headers.get(_USER, "")
    groups = [one.strip() for one in headers.get(_GROUP, "").split(",") if one.strip()]
    extra = {
        unquote(header.removeprefix(_EXTRA)): tuple(one.strip() for one in value.split(","))
        for header, value in headers.items()
        if header.startswith(_EXTRA)
    }
    uid = headers.get(_UID, "")
    if not name:
        if groups or extra or uid:
            raise statuses.internal(f"requested {groups or extra or uid} without impersonating a user")
        return user
    for access in _required(name, groups, extra, uid):
        if not authorizer.allows(user, access):
            raise statuses.forbidden_access(
                user, access.verb, access.group, access.resource, access.subresource, access.namespace, access.name
            )
    return identity(name, groups, extra, uid)


def _required(name: str, groups: list[str], extra: Mapping[str, tuple[str, ...]], uid: str) -> Iterator[Access]:
    """The permissions that the real user needs."""
    group = "authentication.k8s.io"
    parts = name.split(":")
    if name.startswith("system:serviceaccount:") and len(parts) == 4:
        yield Access("impersonate", resource="serviceaccounts", namespace=parts[2], name=parts[3])
    else:
        yield Access("impersonate", resource="users", name=name)
    for one in groups:
        yield Access("impersonate", resource="groups", name=one)
    if uid:
        yield Access("impersonate", group, "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield Access("impersonate", group, "userextras", key, name=value)
