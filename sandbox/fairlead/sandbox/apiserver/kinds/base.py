"""The interface between the generic apiserver and the kinds: a kind's names, its schema, its rules.

The generic half (store, handlers, patches, watch, discovery) contains no kind, and the kinds contain no HTTP.
Objects are plain dicts as in JSON; a Strategy changes the dict it is given in place. Nothing here does I/O.

The server assembles the two halves from these entry points (all of the kinds half):
    kinds.catalogue.kinds() -> list[Kind]             built-in kinds, groups in the order discovery shows them
    admission.chain(services) -> Admission            built-in plugins, webhooks and policies, in the real order
    openapi.document(path, registry) -> bytes | None  GET /openapi/v3[/path] ("" = the index); None = 404
    Strategy.committed(old, new, context)             e.g. the CRD strategy adds and removes Kinds in `context.services.registry`

The order for a write, as in the real one:
    create: decode, default, [meta filled], admission.mutate, prepare_create, drop_disabled, validate_create, admission.validate, store, committed
    update: decode, default, admission.mutate, prepare_update, drop_disabled, validate_update, admission.validate, store, committed
After a mutation the object is decoded and defaulted again. Generic metadata rules (names' presence, immutable uid and
creationTimestamp, finalizers, labels and annotations, ownerReferences, managedFields) are the core's and not a Strategy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, Protocol

from fairlead.sandbox.apiserver.kinds.errors import FieldError
from fairlead.sandbox.apiserver.kinds.request import Access, Json, UserInfo, timestamp

READ_WRITE = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
SUBRESOURCE_VERBS = ("get", "patch", "update")


class Services(Protocol):
    """What kinds and admission may read of the server, synchronously and without side effects."""

    registry: Registry

    def now(self) -> datetime: ...  # UTC, from the server's clock

    @property
    def random(self) -> Random: ...

    def get(self, group: str, plural: str, name: str, namespace: str = "") -> Json | None:
        """The stored object. Shared: do not change it."""
        ...

    def list(self, group: str, plural: str, namespace: str = "") -> Sequence[Json]:
        """Stored objects, in key order. Shared: do not change them."""
        ...

    def allows(self, user: UserInfo, access: Access) -> bool: ...


@dataclass
class Context:
    """One request, as strategies get it."""

    user: UserInfo
    services: Services
    verb: str  # create, update, patch, delete, deletecollection, as in RBAC
    subresource: str = ""
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)  # texts of `Warning: 299 - "..."` headers

    def timestamp(self) -> str:
        """Now, as metav1.Time: second precision, Z."""
        return timestamp(self.services.now())


@dataclass(frozen=True)
class Column:
    """A table column. `value` is what kubectl prints."""

    name: str
    type: str = "string"  # string, integer, number, boolean, date
    format: str = ""  # "name" for the first
    description: str = ""
    priority: int = 0  # 1 = only with -o wide


@dataclass(frozen=True)
class Subresource:
    """`status`, `scale`, `binding`, … The core implements status, scale, binding, eviction, log, finalize and token.

    group/version/kind name the body where it is not the parent's kind (Scale, Binding, Eviction).
    """

    name: str
    verbs: tuple[str, ...] = SUBRESOURCE_VERBS
    kind: str = ""  # "" = the parent's
    group: str = ""
    version: str = ""
    spec_replicas: str = ".spec.replicas"  # scale only: JSON paths
    status_replicas: str = ".status.replicas"
    label_selector: str = ""  # a string field at this path, else the core renders .spec.selector


STATUS = Subresource("status")
SCALE = Subresource("scale", kind="Scale", group="autoscaling", version="v1")


OPEN_SCHEMA: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Strategy:
    """The rules of a kind. The base accepts everything that fits the schema; a kind overrides what it needs.

    `schema` is an OpenAPI v3 schema of the whole object as one nested dict without $ref (sub-dicts may be shared), with
    the extensions that patches need: x-kubernetes-list-type, -list-map-keys, -map-type, -patch-strategy ("merge",
    "merge,retainKeys", "replace"), -patch-merge-key, -preserve-unknown-fields, -int-or-string, -embedded-resource.
    metadata need be no more than {"type": "object"}: the core has that of ObjectMeta.
    """

    schema: Json = OPEN_SCHEMA
    allow_create_on_update = False  # PUT to a missing name creates (leases, nodes' leases, …)
    allow_unconditional_update = True  # PUT without resourceVersion overwrites
    status_resets_metadata = (
        True  # a status write leaves metadata as it was; False: only spec (most of the built-in kinds)
    )
    status_resets_owners = False  # where it writes metadata: not ownerReferences
    generation_before_drop = False  # it counts changes of disabled fields, too, which are dropped after it
    generation = False  # metadata.generation: 1 at create, +1 when anything but metadata and status changes
    custom_resource = False  # served as apiextensions does: no strategic merge, other verbs order
    short_status_on_delete = True  # DELETE answers a Status; False: the deleted object (pods, …)

    # -- shape
    def decode(self, obj: Json) -> list[str]:
        """Drop what is not in the schema, in place; name each dropped field (`unknown field "spec.x"`).

        Raises DecodeError with Go's text when a value has the wrong type.
        """
        return []

    def zero(self) -> Json:
        """The fields besides metadata that an object of this kind has when none is set: nulls, empty structs, zeros."""
        return {}

    def default(self, obj: Json) -> None:
        """Set defaults, in place (also on reads of objects stored before a default existed)."""

    def from_storage(self, obj: Json) -> Json:
        """The stored object as this version shows it; apiVersion and kind are set by the core. Must not change `obj`."""
        return obj

    def to_storage(self, obj: Json) -> Json:
        """The other way. For kinds served in two shapes (core and events.k8s.io Events)."""
        return obj

    # -- writes
    def narrow(self, subresource: str, new: Json, old: Json) -> bool:
        """Restore in `new` what a subresource of the kind's own does not write. False: it has no such subresource."""
        return False

    def prepare_create(self, obj: Json, context: Context) -> None:
        """Drop what a client may not set (status), set what the server decides."""

    def prepare_update(self, new: Json, old: Json, context: Context) -> None:
        """Keep what this write may not change. The base keeps status where `status` is a subresource (the core does it)."""

    def prepare_status(self, new: Json, old: Json, context: Context) -> None:
        """As prepare_update, for /status. The core has already restored everything but status (and labels …)."""

    def drop_disabled(self, new: Json, old: Json | None) -> None:
        """Drop the fields that a gate which is off guards; after prepare_…, whatever is written. `old` is None on create."""

    def validate_ahead(self, obj: Json) -> Sequence[Callable[[], object]]:
        """The costly parts of validate_create, which finds their results again; the core lets other requests in between."""
        return ()

    def validate_create(self, obj: Json, context: Context) -> list[FieldError]:
        return []

    def validate_update(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        return []

    def validate_status(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        return []

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """Complaints about metadata.name (or generateName if `prefix`). The base requires a DNS-1123 subdomain."""
        from fairlead.sandbox.apiserver.names import subdomain_complaints

        return subdomain_complaints(name, prefix=prefix)

    def warnings(self, new: Json, old: Json | None, context: Context) -> list[str]:
        return []

    # -- deletion
    def grace_period_s(self, obj: Json, requested: int | None) -> int | None:
        """Seconds of grace (pods), or None where the kind has no graceful deletion. 0 deletes at once."""
        return None

    def prepare_delete(self, obj: Json, context: Context) -> None:
        """At the first DELETE, in place: add what holds the object; it is not marked again if that is done here (CRDs)."""

    def default_propagation(self, obj: Json) -> str:
        """What DELETE without propagationPolicy means: Background, or Orphan for a few old kinds (jobs)."""
        return "Background"

    def committed(self, old: Json | None, new: Json | None, context: Context) -> None:
        """Called after a change is stored (new is None: removed). For CRDs and the like; may write to the registry."""

    # -- reads
    def selectable_fields(self, obj: Json) -> dict[str, str]:
        """Field selector values beyond metadata.name and metadata.namespace. The keys must not depend on `obj`."""
        return {}

    def columns(self) -> list[Column]:
        return [Column("Name", format="name"), Column("Created At", type="date")]

    def cells(self, obj: Json, now: datetime) -> list[Any]:
        """One value per column. For "date" columns of built-in kinds give what is printed ("3m")."""
        meta = obj.get("metadata", {})
        return [meta.get("name", ""), meta.get("creationTimestamp")]


@dataclass(frozen=True)
class Kind:
    """One served resource in one version. Versions of the same group and plural share their objects."""

    group: str  # "" = core
    version: str
    plural: str
    kind: str
    namespaced: bool
    strategy: Strategy
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = READ_WRITE
    subresources: tuple[Subresource, ...] = (STATUS,)
    storage: str = ""  # "group/plural" of the objects; set where two groups show the same ones (events)
    storage_version_hash: bool = True
    storage_version: str = ""  # in which the real one stores it, where that is not `version`: for the hash in discovery
    deprecation_warning: str = ""

    def __post_init__(self) -> None:
        if not self.singular:
            object.__setattr__(self, "singular", self.kind.lower())
        if not self.list_kind:
            object.__setattr__(self, "list_kind", self.kind + "List")
        if not self.storage:
            object.__setattr__(self, "storage", f"{self.group}/{self.plural}")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`resourceclaims.resource.k8s.io`, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def subresource(self, name: str) -> Subresource | None:
        return next((one for one in self.subresources if one.name == name), None)


class Registry:
    """The kinds served now. Groups keep the order in which they were added; within a group, versions do."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._listeners: list[Callable[[Kind, bool], None]] = []
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Serve a kind, or replace it in place."""
        self._kinds[kind.group, kind.version, kind.plural] = kind
        for listener in self._listeners:
            listener(kind, True)

    def remove(self, group: str, version: str, plural: str) -> None:
        kind = self._kinds.pop((group, version, plural), None)
        if kind is not None:
            for listener in self._listeners:
                listener(kind, False)

    def subscribe(self, listener: Callable[[Kind, bool], None]) -> None:
        """`listener(kind, served)` at every change: open watches of a removed kind end."""
        self._listeners.append(listener)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def of_kind(self, group: str, version: str, kind: str) -> Kind | None:
        return next((k for k in self._kinds.values() if (k.group, k.version, k.kind) == (group, version, kind)), None)

    def of_resource(self, group: str, plural: str) -> list[Kind]:
        """All versions of a resource, preferred first."""
        return [k for k in self._kinds.values() if k.group == group and k.plural == plural]

    def groups(self) -> dict[str, list[str]]:
        """Group → versions, preferred first."""
        groups: dict[str, list[str]] = {}
        for group, version, _ in self._kinds:
            versions = groups.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return groups

    def in_version(self, group: str, version: str) -> list[Kind]:
        """Kinds of a group version, sorted by plural as discovery shows them."""
        found = (k for k in self._kinds.values() if k.group == group and k.version == version)
        return sorted(found, key=lambda k: k.plural)

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._kinds.values()))


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
