"""POST pods/x/binding: assigns a pod to a node, once.

Source: k8s.io/kubernetes/pkg/registry/core/pod/storage/storage.go (BindingREST, 1.36).
"""

from __future__ import annotations

from dataclasses import replace

from fairlead.sandbox.apiserver import rendering, statuses
from fairlead.sandbox.apiserver.call import Call, check_write_options, options_of
from fairlead.sandbox.apiserver.jsonvalue import clone
from fairlead.sandbox.apiserver.kinds.errors import FieldError, not_supported, quote, required
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.storage.store import Moved, Stored
from fairlead.sandbox.apiserver.verbs.writing import ATTEMPTS, attributes_of, commit
from fairlead.sandbox.apiserver.wire.bodies import read_object
from fairlead.sandbox.apiserver.wire.exchange import Response, json_response

_BODY = ("", "v1", "Binding")
CREATED: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def bind(call: Call) -> Response:
    """Assign `target.name` to the pod. Raises 404, 409 (gated, assigned, deleted), 422."""
    call.context.dry_run = check_write_options(call.request, "CreateOptions")
    given: Json = read_object(call.request, call.kind, call.state.registry, body_kind=_BODY).value
    call = _of_pod(call, given)
    errors = _validate(given)
    if errors:
        raise statuses.invalid_kind("", "Binding", call.target.name, errors)
    given.setdefault("metadata", {})["namespace"] = call.namespace
    attributes = attributes_of(call, "CREATE", given, None, options_of(call, "CreateOptions"))
    attributes.body_kind = _BODY
    await call.state.admission.mutate(attributes)
    await call.state.admission.validate(attributes)
    for attempt in range(ATTEMPTS):
        stored = call.state.store.get(call.kind.storage, call.key)
        if stored is None:
            raise statuses.not_found(call.kind, call.target.name)
        _check(call, given, stored)
        try:
            commit(call, stored, _bound(call, rendering.shown(call.kind, stored.obj), given))
            break
        except Moved as error:
            if attempt == ATTEMPTS - 1:
                raise statuses.modified(call.kind, call.target.name) from error
    return json_response(CREATED, 201)


def _of_pod(call: Call, given: Json) -> Call:
    """A POST to `bindings` names the pod only in its body."""
    pods = call.state.registry.find("", "v1", "pods")
    if pods is None:
        raise statuses.no_such_resource()
    name = call.target.name or (given.get("metadata") or {}).get("name", "")
    target = replace(call.target, resource="pods", name=name, subresource="binding")
    return Call(call.state, call.request, target, pods, call.user, call.context)


def _validate(given: Json) -> list[FieldError]:
    target = given.get("target") or {}
    errors = []
    if target.get("kind", "") not in {"", "Node"}:
        errors.append(not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        errors.append(required("target.name"))
    return errors


def _check(call: Call, given: Json, stored: Stored) -> None:
    pod, name = stored.obj, call.target.name
    metadata, spec = pod["metadata"], pod.get("spec", {})
    wanted = given.get("metadata") or {}
    if wanted.get("uid") and wanted["uid"] != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {wanted['uid']}, UID in object meta: {metadata['uid']}"
    elif wanted.get("resourceVersion") and wanted["resourceVersion"] != str(stored.revision):
        why = statuses.MODIFIED
    elif metadata.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f"pod {name} is already assigned to node {quote(spec['nodeName'])}"
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    else:
        return
    message = f"Operation cannot be fulfilled on pods/binding {quote(name)}: {why}"
    raise statuses.ApiError(409, "Conflict", message, {"name": name, "kind": "pods/binding"})


def _bound(call: Call, pod: Json, given: Json) -> Json:
    new = clone(pod)
    new.setdefault("spec", {})["nodeName"] = given["target"]["name"]
    for field in ("annotations", "labels"):
        added = (given.get("metadata") or {}).get(field)
        if added:
            new["metadata"][field] = {**new["metadata"].get(field, {}), **added}
    status = new.setdefault("status", {})
    status.pop("nominatedNodeName", None)  # ClearingNominatedNodeNameAfterBinding, on since 1.35
    conditions = status.setdefault("conditions", [])
    scheduled = next((one for one in conditions if one.get("type") == "PodScheduled"), None)
    if scheduled is None:
        scheduled = {"type": "PodScheduled"}
        conditions.append(scheduled)
    now = call.context.timestamp()
    changed = scheduled.get("status") != "True"
    for field in ("reason", "message", "observedGeneration"):
        scheduled.pop(field, None)
    scheduled["status"] = "True"
    scheduled.setdefault("lastProbeTime", None)
    if changed:
        scheduled["lastTransitionTime"] = now
    return new
