"""What every Kubernetes object shares: metadata, owners, selectors, and the apiserver's Status.

msgspec structs with only the fields that our programs read: a list of ten thousand slices decodes in a second. Unknown
fields are dropped on decoding, so an object read through these types is never written whole: patch it, or work on the raw
dict. Only objects that we create are encoded from structs.
Invariants: frozen; lists are tuples; timestamps and quantities stay the strings that they were.
"""

from typing import Any

import msgspec


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base of all API structs.

    `gc=False` is safe because JSON trees hold no cycles, and saves two thirds of the cost of a large list.
    `kw_only` is not inherited by msgspec's rules, so each class repeats it.
    """


class OwnerReference(Struct, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Struct, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` for cluster-scoped objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that is this object's controller, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Object(Struct, frozen=True, kw_only=True):
    """The base of the top-level kinds."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class LabelSelectorRequirement(Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Condition(Struct, frozen=True, kw_only=True):
    type: str = ""
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class StatusCause(Struct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Struct, frozen=True, kw_only=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int | None = None


class Status(Struct, frozen=True, kw_only=True):
    """The apiserver's answer where there is no object to return: an error, or the outcome of a deletion."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ListMeta(Struct, frozen=True, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


def to_dict(value: msgspec.Struct) -> dict[str, Any]:
    """A struct's JSON as dicts and lists, without fields that have their default."""
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
