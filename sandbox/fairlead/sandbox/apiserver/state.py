"""What all handlers share: store, kinds, admission, authorizer, clock, randomness, and counts of what was answered. There are no globals.

Implements `Services`, the interface that kinds and admission have to it. `Completed`, `WebhookCall` and `Conversions` are what a real
apiserver's audit log and metrics count; benchmarks and tests learn by them what a cluster pays for a pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Protocol
from uuid import UUID

from fairlead.sandbox.apiserver.authn import ANONYMOUS, Tokens
from fairlead.sandbox.apiserver.kinds.base import Admission, Kind, NoAdmission, Registry
from fairlead.sandbox.apiserver.kinds.request import Access, Json, UserInfo
from fairlead.sandbox.apiserver.store import Store, WatchLag
from fairlead.sandbox.release import NEWEST, Release

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: no words


Audit = Callable[[UserInfo, Access, bool], None]
"""Called with every question to the authorizer and its answer."""


class Authorizer(Protocol):
    """Whether a user is permitted an access. `explain` adds the reason; `rules_of` lists PolicyRules."""

    def allows(self, user: UserInfo, access: Access) -> bool: ...

    def explain(self, user: UserInfo, access: Access) -> tuple[bool, str]: ...

    def rules_of(self, user: UserInfo, namespace: str) -> Sequence[Json]: ...


class AllowAll:
    """Every authenticated user may do everything."""

    def allows(self, user: UserInfo, access: Access) -> bool:
        return user is not ANONYMOUS

    def explain(self, user: UserInfo, access: Access) -> tuple[bool, str]:
        return True, ""

    def rules_of(self, user: UserInfo, namespace: str) -> Sequence[Json]:
        return [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


@dataclass
class State:
    """The state of one apiserver. While `stopping` is set, open watches end."""

    store: Store
    registry: Registry
    clock: Callable[[], datetime]
    random: Random
    tokens: Tokens
    admission: Admission = field(default_factory=NoAdmission)
    authorizer: Authorizer = field(default_factory=AllowAll)
    release: Release = NEWEST
    stopping: bool = False
    watchers: dict[asyncio.Event, None] = field(default_factory=dict)  # set one to wake its watch; in order
    bookmark_interval_s: float = 5.0  # a real one sends them about every minute
    lag: WatchLag | None = None
    validating: asyncio.Lock = field(default_factory=asyncio.Lock)  # one costly step between two turns of the loop
    watch_queue_limit: int = 10_000
    audit: Audit | None = None
    on_completed: Callable[[Completed], None] | None = None
    on_webhook_call: Callable[[WebhookCall], None] | None = None
    on_conversion: Callable[[Conversions], None] | None = None

    _storages: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry.subscribe(self._on_kind)

    def _on_kind(self, _kind: Kind, _served: bool) -> None:
        self._storages.clear()
        self.wake_watchers()

    def stop(self) -> None:
        """End all open watches."""
        self.stopping = True
        self.wake_watchers()

    def wake_watchers(self) -> None:
        for watcher in self.watchers:
            watcher.set()

    def now(self) -> datetime:
        return self.clock()

    def get(self, group: str, plural: str, name: str, namespace: str = "") -> Json | None:
        stored = self.store.get(self._storage(group, plural), (namespace, name))
        return stored.obj if stored else None

    def list(self, group: str, plural: str, namespace: str = "") -> Sequence[Json]:
        return [stored.obj for stored in self.store.entries(self._storage(group, plural), namespace)]

    def replace(self, group: str, plural: str, obj: Json) -> None:
        """Stores the next version of an object, which must not be kept: a write of the apiserver's own."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        self.store.put(self._storage(group, plural), key, obj, expect=int(metadata["resourceVersion"]))

    def allows(self, user: UserInfo, access: Access) -> bool:
        verdict = self.authorizer.allows(user, access)
        if self.audit is not None:
            self.audit(user, access, verdict)
        return verdict

    def webhook_called(self, call: WebhookCall) -> None:
        if self.on_webhook_call is not None:
            self.on_webhook_call(call)

    def converted(self, conversions: Conversions) -> None:
        if self.on_conversion is not None:
            self.on_conversion(conversions)

    def _storage(self, group: str, plural: str) -> str:
        key = group, plural
        if key not in self._storages:
            kinds = self.registry.of_resource(group, plural)
            self._storages[key] = kinds[0].storage if kinds else f"{group}/{plural}"
        return self._storages[key]

    def new_uid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def new_name(self, prefix: str) -> str:
        """generateName: at most 58 characters of the prefix and five random ones."""
        return prefix[:58] + "".join(self.random.choices(_SUFFIX_ALPHABET, k=5))


@dataclass(frozen=True)
class Completed:
    """One request about a resource, answered or refused (`code`), by the user who sent it.

    `verb` is the authorizer's, except "apply" for a server-side apply, as the metrics of a real apiserver have it.
    """

    user: UserInfo
    verb: str
    resource: str
    subresource: str
    code: int
    dry_run: bool


@dataclass(frozen=True)
class WebhookCall:
    """One AdmissionReview that is sent to a webhook."""

    webhook: str
    mutating: bool
    operation: str
    resource: str
    subresource: str


@dataclass(frozen=True)
class Conversions:
    """How many objects were converted for the CEL of one webhook or policy in one request: `object` and `oldObject` each count.

    An apiserver converts them before it looks at an expression, whether or not one reads them: once for all match conditions,
    and of a policy whose match conditions hold once more each for its validations, its messages and its audit annotations.
    Source: k8s.io/apiserver/pkg/admission/plugin/cel/condition.go, policy/validating/validator.go (1.36).
    """

    owner: str
    operation: str
    resource: str
    subresource: str
    objects: int
