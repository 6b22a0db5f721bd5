"""POST, PUT and PATCH: from a body to a stored object, in the real one's order.

decode → default → managed fields → mutating admission → the kind's preparation → validation → validating admission →
store. An update is a function from the stored object to the new one; where the client gave no resourceVersion, it is
tried again when the object changed meanwhile (admission may wait for webhooks). No object is created in a missing or terminating
namespace, and the system's own cannot be deleted; the namespace controller empties a terminating one and ends with PUT /finalize.
Source: k8s.io/apiserver/pkg/registry/generic/registry/store.go, pkg/endpoints/handlers, namespace/lifecycle/admission.go (1.36).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from fairlead.sandbox.apiserver import meta, rbac, rendering, statuses
from fairlead.sandbox.apiserver.call import IGNORE, STRICT, Call, check_write_options, options_of
from fairlead.sandbox.apiserver.kinds.base import Attributes, Context, Kind
from fairlead.sandbox.apiserver.kinds.errors import FieldError, invalid
from fairlead.sandbox.apiserver.kinds.request import Access, DecodeError, Json
from fairlead.sandbox.apiserver.ownership import managed
from fairlead.sandbox.apiserver.rendering import negotiate
from fairlead.sandbox.apiserver.store import Moved, Stored
from fairlead.sandbox.apiserver.wire.bodies import read_object
from fairlead.sandbox.apiserver.wire.exchange import Response

ATTEMPTS = 5  # of an update whose object changes meanwhile
_NAME_ATTEMPTS = 8  # of generateName
Transform = Callable[[Stored | None], Json]


def decode(call: Call, obj: Json, duplicates: list[str] | None = None, *, report: bool = True) -> None:
    """Fit the object to its kind, in place: types, unknown fields (reported as fieldValidation says), defaults."""
    try:
        problems = [f'duplicate field "{path}"' for path in duplicates or ()]
        problems += meta.decode(obj, call.kind.kind)
        problems += call.kind.strategy.decode(obj)
    except DecodeError as error:
        raise statuses.cannot_decode(call.kind, str(error)) from error
    if report and problems and call.field_validation == STRICT:
        raise statuses.cannot_decode(call.kind, "strict decoding error: " + ", ".join(problems))
    if report and call.field_validation != IGNORE:
        call.context.warnings += problems
    call.kind.strategy.default(obj)


def attributes_of(call: Call, operation: str, new: Json | None, old: Json | None, options: Json) -> Attributes:
    name = call.target.name
    if not name and new is not None:
        name = new["metadata"].get("name", "")
    return Attributes(
        operation=operation,
        kind=call.kind,
        namespace=name if call.kind.plural == "namespaces" and not call.kind.group else call.namespace,
        name=name,
        subresource=call.target.subresource,
        user=call.user,
        object=new,
        old_object=old,
        options=options,
        dry_run=call.context.dry_run,
        context=call.context,
    )


async def mutate(call: Call, attributes: Attributes) -> Json:
    """Run mutating admission; decode the object again when it changed."""
    before = msgspec.json.encode(attributes.object)
    await call.state.admission.mutate(attributes)
    obj = attributes.object
    assert obj is not None
    if msgspec.json.encode(obj) != before:
        decode(call, obj, report=False)
    return obj


async def create(call: Call) -> Response:
    """POST to a collection."""
    wanted = negotiate(call.request.accept)
    call.context.dry_run = check_write_options(call.request, "CreateOptions")
    body = read_object(call.request, call.kind, call.state.registry)
    obj = body.value
    decode(call, obj, body.duplicates)
    stored = await create_object(call, obj, options_of(call, "CreateOptions"))
    return rendering.one(call.kind, stored, wanted, call.state.now(), include=_include(call), status=201)


async def create_object(call: Call, obj: Json, options: Json, *, track: bool = True) -> Stored:
    """A decoded object, through admission and validation into the store."""
    strategy, context = call.kind.strategy, call.context
    meta.wipe(call, obj)
    if track:
        managed.track(call, obj, None)
    check_open(call, obj)
    attributes = attributes_of(call, "CREATE", obj, None, options)
    obj = await mutate(call, attributes)
    meta.fill(call, obj)
    strategy.prepare_create(obj, context)
    strategy.drop_disabled(obj, None)
    meta.bump_generation(call.kind, obj, None)
    name = obj["metadata"].get("name", "")
    await _validate_ahead(call, obj)
    errors = meta.validate_create(call.kind, obj) + strategy.validate_create(obj, context)
    if errors:
        raise statuses.invalid(call.kind, name, errors)
    rbac.check(call, obj, None)
    context.warnings += strategy.warnings(obj, None, context)
    attributes.object, attributes.name = obj, name
    await call.state.admission.validate(attributes)
    return _store_new(call, obj)


async def _validate_ahead(call: Call, obj: Json) -> None:
    """The costly parts of validation. The real apiserver has other cores for other requests; here they have two thirds of the loop."""
    clock = asyncio.get_running_loop().time
    for step in call.kind.strategy.validate_ahead(obj):
        async with call.state.validating:
            began = clock()
            step()
            await asyncio.sleep(2 * (clock() - began))


def _store_new(call: Call, obj: Json) -> Stored:
    metadata = obj["metadata"]
    for attempt in range(_NAME_ATTEMPTS):
        key = (call.namespace, metadata["name"])
        if call.state.store.get(call.kind.storage, key) is None:
            break
        if not metadata.get("generateName") or call.target.name:
            raise statuses.already_exists(call.kind, metadata["name"])
        if attempt == _NAME_ATTEMPTS - 1:
            raise statuses.generate_name_conflict(call.kind, metadata["name"])
        metadata["name"] = call.state.new_name(metadata["generateName"])
    if call.context.dry_run:
        return Stored(key, obj, 0)
    stored = call.state.store.put(call.kind.storage, key, call.kind.strategy.to_storage(obj), expect=None)
    call.kind.strategy.committed(None, stored.obj, call.context)
    return stored


async def update(call: Call) -> Response:
    """PUT to an object or one of its plain subresources (status, and those that change the object itself)."""
    wanted = negotiate(call.request.accept)
    call.context.dry_run = check_write_options(call.request, "UpdateOptions")
    body = read_object(call.request, call.kind, call.state.registry)
    decode(call, body.value, body.duplicates)
    meta.match_url(call, body.value)
    given = body.value["metadata"].get("resourceVersion", "")
    raw = msgspec.json.encode(body.value)

    def transform(stored: Stored | None) -> Json:
        obj: Json = msgspec.json.decode(raw)
        if stored is None:
            if call.target.subresource or not call.kind.strategy.allow_create_on_update or given:
                raise statuses.not_found(call.kind, call.target.name)
            return obj
        if not given and not call.kind.strategy.allow_unconditional_update:
            error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise statuses.invalid(call.kind, call.target.name, [error])
        return obj

    stored, created = await modify(call, transform, options_of(call, "UpdateOptions"))
    status = 201 if created else 200
    return rendering.one(call.kind, stored, wanted, call.state.now(), include=_include(call), status=status)


def _include(call: Call) -> str:
    return call.request.param("includeObject") or "Metadata"


async def modify(call: Call, transform: Transform, options: Json, *, track: bool = True) -> tuple[Stored, bool]:
    """Replace the stored object by `transform` of it. Returns what the client is shown, and whether it was created."""
    for attempt in range(ATTEMPTS):
        stored = call.state.store.get(call.kind.storage, call.key)
        new = transform(stored)
        if stored is None:
            _check_may_create(call)
            create_options = {**options, "kind": "CreateOptions"}
            return await create_object(call, new, create_options, track=track), True
        given = new["metadata"].get("resourceVersion", "")
        if given and given != str(stored.revision):
            raise statuses.modified(call.kind, call.target.name)
        try:
            return await _replace(call, stored, new, options, track=track), False
        except Moved as error:
            # Only a write that gave no revision may be repeated on the newer object.
            if (given and call.target.verb == "update") or attempt == ATTEMPTS - 1:
                raise statuses.modified(call.kind, call.target.name) from error
    raise AssertionError("unreachable")


def _check_may_create(call: Call) -> None:
    """A PUT or an apply that creates needs the permission to create, too."""
    target = call.target
    access = Access("create", target.group, target.resource, target.subresource, target.namespace, target.name)
    if not call.state.allows(call.user, access):
        raise statuses.forbidden_access(
            call.user, "create", target.group, target.resource, target.subresource, target.namespace, target.name
        )


async def _replace(call: Call, stored: Stored, new: Json, options: Json, *, track: bool) -> Stored:
    kind, context, state = call.kind, call.context, call.state
    old = rendering.shown(kind, stored.obj)
    _check_uid(call, new, old)
    subresource = call.target.subresource
    restrict(kind, subresource, new, old)
    meta.prepare_update(new, old)
    if track:
        managed.track(call, new, old, subresource=subresource)
    attributes = attributes_of(call, "UPDATE", new, old, options)
    new = await mutate(call, attributes)
    restrict(kind, subresource, new, old)
    meta.prepare_update(new, old)
    errors = meta.validate_update(kind, new, old) + _prepare_and_validate(kind, subresource, new, old, context)
    if errors:
        raise statuses.invalid(kind, call.target.name, errors)
    rbac.check(call, new, old)
    context.warnings += kind.strategy.warnings(new, old, context)
    attributes.object = new
    await state.admission.validate(attributes)
    return commit(call, stored, new)


def restrict(kind: Kind, subresource: str, new: Json, old: Json) -> None:
    """Restore what this endpoint does not write: the status, or for /status everything else."""
    if subresource == "status":
        for field in [field for field in new if field not in ("status", "metadata")]:
            del new[field]
        for field, value in old.items():
            if field not in ("status", "metadata"):
                new[field] = value
        if kind.strategy.status_resets_metadata:
            kept = {key: new["metadata"].get(key) for key in ("resourceVersion", "managedFields")}
            if not kind.strategy.custom_resource:  # Go's ResetObjectMetaForStatus leaves it: another one is refused
                kept["uid"] = new["metadata"].get("uid")
            new["metadata"] = {**old["metadata"], **{key: value for key, value in kept.items() if value}}
        elif kind.strategy.status_resets_owners:
            owners = old["metadata"].get("ownerReferences")
            new["metadata"].pop("ownerReferences", None)
            if owners:
                new["metadata"]["ownerReferences"] = owners
    elif kind.strategy.narrow(subresource, new, old):
        pass
    elif kind.subresource("status") is not None:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]


def _prepare_and_validate(kind: Kind, subresource: str, new: Json, old: Json, context: Context) -> list[FieldError]:
    strategy = kind.strategy
    if subresource == "status":
        strategy.prepare_status(new, old, context)
        strategy.drop_disabled(new, old)
        return strategy.validate_status(new, old, context)
    strategy.prepare_update(new, old, context)
    if strategy.generation_before_drop:
        meta.bump_generation(kind, new, old)
        strategy.drop_disabled(new, old)
    else:
        strategy.drop_disabled(new, old)
        meta.bump_generation(kind, new, old)
    return strategy.validate_update(new, old, context)


def _check_uid(call: Call, new: Json, old: Json) -> None:
    given, have = new["metadata"].get("uid", ""), old["metadata"].get("uid", "")
    if given and given != have and call.target.verb == "update":
        path = "/".join(part for part in (call.kind.plural, call.namespace, call.target.name) if part)
        raise statuses.conflict(
            call.kind,
            call.target.name,
            f"StorageError: invalid object, Code: 4, Key: /registry/{path}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {given}, UID in object meta: {have}",
        )


def commit(call: Call, stored: Stored, new: Json) -> Stored:
    """Store a validated object, or remove it when it is released; an unchanged object costs no revision."""
    kind, store = call.kind, call.state.store
    new["metadata"]["resourceVersion"] = str(stored.revision)
    kept = kind.strategy.to_storage(new)
    current = store.get(kind.storage, stored.key)
    if current is None or current.revision != stored.revision:
        raise Moved(f"{kind.group_resource} {stored.key} changed while it was written")
    if _content(kept) == _content(stored.obj):
        return stored
    if releasable(kind, new):
        if not call.context.dry_run:
            store.remove(kind.storage, stored.key, expect=stored.revision)
            kind.strategy.committed(stored.obj, None, call.context)
        return Stored(stored.key, kept, stored.revision)
    if call.context.dry_run:
        return Stored(stored.key, kept, stored.revision)
    result = store.put(kind.storage, stored.key, kept, expect=stored.revision)
    kind.strategy.committed(stored.obj, result.obj, call.context)
    return result


def _content(obj: Json) -> Json:
    """The object without the version that it is written in."""
    return {field: value for field, value in obj.items() if field not in ("apiVersion", "kind")}


def releasable(kind: Kind, obj: Json) -> bool:
    """Whether an object that is being deleted may be removed: no finalizer and no grace period is left."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (kind.plural == "namespaces" and not kind.group and obj.get("spec", {}).get("finalizers"))


UNDELETABLE = ("default", "kube-system", "kube-public")


def check_open(call: Call, obj: Json) -> None:
    """Raises 404 for a namespace that does not exist, 403 for one that is terminating."""
    if not call.kind.namespaced or call.kind.group in {"authorization.k8s.io", "authentication.k8s.io"}:
        return
    namespace = call.state.get("", "namespaces", call.namespace)
    if namespace is None:
        raise statuses.not_found_resource("", "namespaces", call.namespace)
    if namespace.get("status", {}).get("phase") != "Terminating":
        return
    name = obj["metadata"].get("name", "")
    error = statuses.forbidden(
        call.kind.group,
        call.kind.plural,
        name,
        f"unable to create new content in namespace {call.namespace} because it is being terminated",
    )
    assert error.details is not None
    error.details["causes"] = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {call.namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    raise error


def check_deletable(call: Call) -> None:
    """Raises 403 for the deletion of a namespace that the system needs."""
    if call.kind.plural == "namespaces" and not call.kind.group and call.target.name in UNDELETABLE:
        raise statuses.forbidden("", "namespaces", call.target.name, "this namespace may not be deleted")
