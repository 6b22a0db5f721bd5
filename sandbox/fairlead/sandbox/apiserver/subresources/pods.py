"""POST pods/x/binding assigns a pod to a node, once; POST pods/x/eviction is a deletion that the PodDisruptionBudgets must allow.

An eviction reads a budget's status, which the disruption controller writes; it does not compute it.
Source: k8s.io/kubernetes/pkg/registry/core/pod/storage/{storage,eviction}.go (1.36).
"""

from __future__ import annotations

from dataclasses import replace

from fairlead.sandbox.apiserver import rendering, statuses
from fairlead.sandbox.apiserver.call import Call, check_write_options, options_of
from fairlead.sandbox.apiserver.kinds.errors import FieldError, not_supported, quote, required
from fairlead.sandbox.apiserver.kinds.request import Json, clone
from fairlead.sandbox.apiserver.selectors import matches_labels
from fairlead.sandbox.apiserver.store import Moved, Stored
from fairlead.sandbox.apiserver.verbs.deletion import delete_object, parse_options
from fairlead.sandbox.apiserver.verbs.writing import ATTEMPTS, attributes_of, commit
from fairlead.sandbox.apiserver.wire.bodies import read_object
from fairlead.sandbox.apiserver.wire.exchange import Response, json_response

_BINDING = ("", "v1", "Binding")
CREATED: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def bind(call: Call) -> Response:
    """Assign `target.name` to the pod. Raises 404, 409 (gated, assigned, deleted), 422."""
    call.context.dry_run = check_write_options(call.request, "CreateOptions")
    given: Json = read_object(call.request, call.kind, call.state.registry, body_kind=_BINDING).value
    call = _of_pod(call, given)
    errors = _validate(given)
    if errors:
        raise statuses.invalid_kind("", "Binding", call.target.name, errors)
    given.setdefault("metadata", {})["namespace"] = call.namespace
    attributes = attributes_of(call, "CREATE", given, None, options_of(call, "CreateOptions"))
    attributes.body_kind = _BINDING
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


_EVICTION = ("policy", "v1", "Eviction")
_RETRY_S = 10


async def evict(call: Call) -> Response:
    """Delete the pod if its budget allows. Raises 404, 429 (budget), 500 (two budgets)."""
    call.context.dry_run = check_write_options(call.request, "CreateOptions")
    given: Json = read_object(call.request, call.kind, call.state.registry, body_kind=_EVICTION).value
    name = (given.get("metadata") or {}).get("name") or call.target.name
    if name != call.target.name:
        raise statuses.bad_request("name in URL does not match name in Eviction object")
    options = given.get("deleteOptions") or {}
    if "All" in (options.get("dryRun") or []):
        call.context.dry_run = True
    given.setdefault("metadata", {})["namespace"] = call.namespace
    attributes = attributes_of(call, "CREATE", given, None, options_of(call, "CreateOptions"))
    attributes.body_kind = _EVICTION
    await call.state.admission.mutate(attributes)
    await call.state.admission.validate(attributes)
    stored = call.state.store.get(call.kind.storage, call.key)
    if stored is None:
        raise statuses.not_found(call.kind, name)
    pod = stored.obj
    if not _ignores_budgets(pod):
        _charge_budget(call, pod)
        _mark(call, stored.key)
    target = replace(call.target, verb="delete", subresource="")
    plain = Call(call.state, call.request, target, call.kind, call.user, call.context)
    await delete_object(plain, parse_options(options), admit=False)
    return json_response(CREATED, 201)


def _ignores_budgets(pod: Json) -> bool:
    phase = pod.get("status", {}).get("phase")
    return phase in {"Succeeded", "Failed", "Pending"} or bool(pod["metadata"].get("deletionTimestamp"))


def _charge_budget(call: Call, pod: Json) -> None:
    """Subtract one disruption from the budget that covers the pod, if one does."""
    budgets = [
        budget
        for budget in call.state.list("policy", "poddisruptionbudgets", call.namespace)
        if (selector := (budget.get("spec") or {}).get("selector")) is not None  # null selects nothing
        and matches_labels(selector, pod["metadata"].get("labels") or {})
    ]
    if len(budgets) > 1:
        raise statuses.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    if not budgets:
        return
    budget = budgets[0]
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.", retry=True)
    if status.get("disruptionsAllowed", 0) <= 0:
        raise _refused(
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
            f"{status.get('currentHealthy', 0)} currently",
            retry=False,
        )
    _charge(call, budget, pod["metadata"]["name"])


def _charge(call: Call, budget: Json, pod_name: str) -> None:
    kind = call.state.registry.find("policy", "v1", "poddisruptionbudgets")
    assert kind is not None
    key = (call.namespace, budget["metadata"]["name"])
    stored = call.state.store.get(kind.storage, key)
    assert stored is not None
    new = clone(rendering.shown(kind, stored.obj))
    new["status"]["disruptionsAllowed"] -= 1
    new["status"].setdefault("disruptedPods", {})[pod_name] = call.context.timestamp()
    commit(Call(call.state, call.request, call.target, kind, call.user, call.context), stored, new)


def _mark(call: Call, key: tuple[str, str]) -> None:
    """Write the condition by which an eviction differs from a failure."""
    stored = call.state.store.get(call.kind.storage, key)
    if stored is None:
        return
    new = clone(rendering.shown(call.kind, stored.obj))
    conditions = new.setdefault("status", {}).setdefault("conditions", [])
    conditions[:] = [one for one in conditions if one.get("type") != "DisruptionTarget"]
    conditions.append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": call.context.timestamp(),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
    )
    commit(call, stored, new)


def _refused(why: str, *, retry: bool) -> statuses.ApiError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    causes = [{"reason": "DisruptionBudget", "message": why}]
    return statuses.too_many_requests(message, _RETRY_S if retry else 0, causes=causes)
