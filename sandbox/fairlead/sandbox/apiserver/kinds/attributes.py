"""One request as admission sees it, and the interface of admission.

Here and not in admission/, so that the generic half depends on the interface only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fairlead.sandbox.apiserver.kinds.base import Context, Kind
from fairlead.sandbox.apiserver.kinds.request import Json, UserInfo


@dataclass
class Attributes:
    """One request as admission sees it. `object` may be replaced or changed by mutate(); never by validate()."""

    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    kind: Kind
    namespace: str
    name: str
    subresource: str
    user: UserInfo
    object: Json | None  # DELETE: None
    old_object: Json | None  # CREATE: None
    options: Json  # {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": …}
    dry_run: bool
    context: Context  # services, warnings
    body_kind: tuple[str, str, str] | None = (
        None  # group, version, kind of `object` if not the resource's own (pods/binding)
    )
    audit: dict[str, str] = field(default_factory=dict)  # audit annotations


class Admission(Protocol):
    """The chain between decoding and storing. Refuses by raising Rejected."""

    async def mutate(self, attributes: Attributes) -> None: ...

    async def validate(self, attributes: Attributes) -> None: ...

    async def close(self) -> None: ...


class NoAdmission:
    """Admits everything."""

    async def close(self) -> None:
        return

    async def mutate(self, attributes: Attributes) -> None:
        return

    async def validate(self, attributes: Attributes) -> None:
        return
