"""DELETE: at once, after a grace period, or when the last finalizer is removed.

A single deletion, a collection's and an eviction follow one rule. The finalizers `orphan` and `foregroundDeletion` say what
the garbage collector does with dependents; the apiserver itself deletes no other object.
Source: k8s.io/apiserver/pkg/registry/rest/delete.go, pkg/registry/generic/registry/store.go (1.36).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead.sandbox.apiserver import rendering, statuses
from fairlead.sandbox.apiserver.call import Call, check_write_options, options_of
from fairlead.sandbox.apiserver.kinds.decode import fit
from fairlead.sandbox.apiserver.kinds.errors import FieldError, invalid, not_supported
from fairlead.sandbox.apiserver.kinds.request import DecodeError, Json, clone, timestamp
from fairlead.sandbox.apiserver.rendering import negotiate
from fairlead.sandbox.apiserver.store import Moved, Stored
from fairlead.sandbox.apiserver.verbs import writing
from fairlead.sandbox.apiserver.verbs.reading import selection
from fairlead.sandbox.apiserver.verbs.writing import ATTEMPTS, attributes_of, releasable
from fairlead.sandbox.apiserver.wire.bodies import ParseError, parse
from fairlead.sandbox.apiserver.wire.exchange import Response

_POLICIES = ("Foreground", "Background", "Orphan")
_GC_FINALIZERS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


@dataclass(frozen=True)
class DeleteOptions:
    grace_period_s: int | None = None
    propagation: str = ""  # "" = the kind's default
    uid: str = ""
    resource_version: str = ""
    waits: bool = False  # foreground cascade: an answer before it is done is 202

    def as_json(self) -> Json:
        """The options as admission sees them."""
        shown: Json = {}
        if self.grace_period_s is not None:
            shown["gracePeriodSeconds"] = self.grace_period_s
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        if any(preconditions.values()):
            shown["preconditions"] = {k: v for k, v in preconditions.items() if v}
        if self.propagation:
            shown["propagationPolicy"] = self.propagation
        return shown


def read_options(call: Call) -> DeleteOptions:
    """From the body (DeleteOptions), or from the query where there is none. Sets dry-run."""
    request = call.request
    call.context.dry_run = check_write_options(request, "DeleteOptions")
    given: Json = {}
    if request.body.strip():
        try:
            value = parse(request.body, request.content_type).value
        except ParseError as error:
            raise statuses.bad_request(str(error)) from error
        if not isinstance(value, dict) or value.get("kind", "DeleteOptions") != "DeleteOptions":
            raise statuses.bad_request("decoded object cannot be converted to DeleteOptions")
        try:
            fit(value, "DeleteOptions")
        except DecodeError as error:
            raise statuses.cannot_decode_as("DeleteOptions", "v1", "DeleteOptions", str(error)) from error
        given = value
    else:
        if request.param("propagationPolicy"):
            given["propagationPolicy"] = request.param("propagationPolicy")
        if request.param("gracePeriodSeconds"):
            given["gracePeriodSeconds"] = call.number("gracePeriodSeconds")
        if "orphanDependents" in request.query:
            given["orphanDependents"] = request.flag("orphanDependents")
    if "All" in (given.get("dryRun") or []):
        call.context.dry_run = True
    return parse_options(given)


def parse_options(given: Json) -> DeleteOptions:
    """Raises 422 for values that make no sense."""
    errors: list[FieldError] = []
    propagation, orphan = given.get("propagationPolicy") or "", given.get("orphanDependents")
    if propagation and orphan is not None:
        message = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", propagation, message))
    if propagation and propagation not in _POLICIES:
        errors.append(not_supported("propagationPolicy", propagation, [*_POLICIES, "nil"]))
    grace: Any = given.get("gracePeriodSeconds")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise statuses.bad_request(
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
        )
    if grace is not None and grace < 0:
        grace = 1  # as in the real one: negative means "as short as possible"
    if errors:
        raise statuses.invalid_kind("meta.k8s.io", "DeleteOptions", "", errors)
    waits = propagation == "Foreground" or orphan is False
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    preconditions = given.get("preconditions") or {}
    uid, version = preconditions.get("uid") or "", preconditions.get("resourceVersion") or ""
    return DeleteOptions(grace, propagation, uid, version, waits)


async def delete(call: Call) -> Response:
    """DELETE of one object: a Status when it is removed, the object while something holds it (or where the kind says so)."""
    wanted = negotiate(call.request.accept)
    options = read_options(call)
    stored, gone = await delete_object(call, options)
    if gone and call.kind.strategy.short_status_on_delete:
        return rendering.respond(statuses.success(call.kind, call.target.name, stored.obj["metadata"]["uid"]), wanted)
    status = 202 if options.waits and not gone else 200
    return rendering.one(call.kind, stored, wanted, call.state.now(), include="Metadata", status=status)


async def delete_collection(call: Call) -> Response:
    """DELETE of all objects that the selectors match; answers the list of them."""
    wanted = negotiate(call.request.accept)
    options = read_options(call)
    selects, _ = selection(call.request, call.kind)
    found = [one for one in call.state.store.entries(call.kind.storage, call.namespace) if selects(one)]
    for stored in found:
        target = replace(call.target, namespace=stored.key[0], name=stored.key[1], subresource="")
        each = Call(call.state, call.request, target, call.kind, call.user, call.context)
        try:
            await delete_object(each, options)
        except statuses.ApiError as error:
            if error.code != 404:
                raise
    metadata = {"resourceVersion": str(call.state.store.revision)}
    return rendering.many(call.kind, found, metadata, wanted, call.state.now(), include="Metadata")


async def delete_object(call: Call, options: DeleteOptions, *, admit: bool = True) -> tuple[Stored, bool]:
    """The object as it is or was, and whether it is removed. Raises 404, 409, 403. `admit` False: an eviction, admitted
    as such before.
    """
    writing.check_deletable(call)
    for attempt in range(ATTEMPTS):
        stored = call.state.store.get(call.kind.storage, call.key)
        if stored is None:
            raise statuses.not_found(call.kind, call.target.name)
        _check_preconditions(call, stored, options)
        if admit:
            await _admit(call, stored, options)
        try:
            return _delete(call, stored, options)
        except Moved as error:
            if attempt == ATTEMPTS - 1:
                raise statuses.modified(call.kind, call.target.name) from error
    raise AssertionError("unreachable")


async def _admit(call: Call, stored: Stored, options: DeleteOptions) -> None:
    """Run admission; for an object without grace period on the object as it is and again as marked, as the real one."""
    grace_s = call.kind.strategy.grace_period_s(stored.obj, options.grace_period_s)
    shown = options if grace_s is None else replace(options, grace_period_s=grace_s)
    old = rendering.shown(call.kind, stored.obj)
    rounds = [old]
    metadata = old["metadata"]
    if grace_s == 0 and not metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
        marked = clone(old)
        _mark(marked["metadata"], call.state.now(), 0)
        rounds.append(marked)
    for one in rounds:
        attributes = attributes_of(call, "DELETE", None, one, options_of(call, "DeleteOptions", shown.as_json()))
        await call.state.admission.mutate(attributes)
        await call.state.admission.validate(attributes)


def _check_preconditions(call: Call, stored: Stored, options: DeleteOptions) -> None:
    metadata = stored.obj["metadata"]
    for field, wanted, have, verb in (
        ("UID", options.uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, str(stored.revision), "modified"),
    ):
        if wanted and wanted != have:
            why = (
                f"the {field} in the precondition ({wanted}) does not match the {field} in record ({have}). "
                f"The object might have been {verb}"
            )
            raise statuses.conflict(call.kind, call.target.name, why, by_kind=True)


def _delete(call: Call, stored: Stored, options: DeleteOptions) -> tuple[Stored, bool]:
    kind, store = call.kind, call.state.store
    new = clone(stored.obj)
    metadata = new["metadata"]
    marked = bool(metadata.get("deletionTimestamp"))
    if options.propagation or not set(_GC_FINALIZERS.values()) & set(metadata.get("finalizers", [])):
        _set_finalizers(metadata, options.propagation or kind.strategy.default_propagation(stored.obj))
    if not marked:
        kind.strategy.prepare_delete(new, call.context)
    namespace = kind.plural == "namespaces" and not kind.group
    held = bool(metadata.get("finalizers")) or (namespace and bool(new.get("spec", {}).get("finalizers")))
    grace = kind.strategy.grace_period_s(stored.obj, options.grace_period_s)
    if marked:
        _shorten(metadata, options.grace_period_s)
    elif not metadata.get("deletionTimestamp") and (grace is not None or held):
        _mark(metadata, call.state.now(), grace or 0)
        if namespace:
            metadata.pop("deletionGracePeriodSeconds", None)
            new.setdefault("status", {})["phase"] = "Terminating"
    if releasable(kind, new) or not metadata.get("deletionTimestamp"):
        if call.context.dry_run:
            return stored, True
        last = store.remove(kind.storage, stored.key, expect=stored.revision, final=new)
        kind.strategy.committed(stored.obj, None, call.context)
        return last, True
    if new == stored.obj or call.context.dry_run:
        return Stored(stored.key, new, stored.revision), False
    result = store.put(kind.storage, stored.key, new, expect=stored.revision)
    kind.strategy.committed(stored.obj, result.obj, call.context)
    return result, False


def _set_finalizers(metadata: Json, propagation: str) -> None:
    """`orphan` and `foregroundDeletion` as the propagation policy asks for."""
    wanted = _GC_FINALIZERS.get(propagation)
    kept = [one for one in metadata.get("finalizers", []) if one not in _GC_FINALIZERS.values() or one == wanted]
    if wanted and wanted not in kept:
        kept.append(wanted)
    metadata.pop("finalizers", None)
    if kept:
        metadata["finalizers"] = kept


def _mark(metadata: Json, now: datetime, grace_s: int) -> None:
    metadata["deletionTimestamp"] = timestamp(now + _duration(grace_s))
    metadata["deletionGracePeriodSeconds"] = grace_s
    if metadata.get("generation"):
        metadata["generation"] += 1


def _duration(seconds: int) -> timedelta:
    """As Go has it: nanoseconds in 64 bits, which wrap round."""
    nanoseconds = (seconds * 10**9 + 2**63) % 2**64 - 2**63
    return timedelta(microseconds=nanoseconds // 1000)


def _shorten(metadata: Json, asked_s: int | None) -> None:
    """A second deletion may only shorten the grace period."""
    have_s = metadata.get("deletionGracePeriodSeconds") or 0
    if asked_s is None or asked_s >= have_s:
        return
    due = datetime.strptime(metadata["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    metadata["deletionTimestamp"] = timestamp(due - _duration(have_s) + _duration(asked_s))
    metadata["deletionGracePeriodSeconds"] = asked_s
