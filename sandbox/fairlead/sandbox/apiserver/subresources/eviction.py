"""POST pods/x/eviction: a deletion that the PodDisruptionBudgets must allow.

Reads a budget's status, which the disruption controller writes; does not compute it.
Source: k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go (1.36).
"""

from __future__ import annotations

from dataclasses import replace

from fairlead.sandbox.apiserver import rendering, statuses
from fairlead.sandbox.apiserver.call import Call, check_write_options, options_of
from fairlead.sandbox.apiserver.jsonvalue import clone
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.selectors import matches_labels
from fairlead.sandbox.apiserver.subresources.binding import CREATED
from fairlead.sandbox.apiserver.verbs.deletion import delete_object, parse_options
from fairlead.sandbox.apiserver.verbs.writing import attributes_of, commit
from fairlead.sandbox.apiserver.wire.bodies import read_object
from fairlead.sandbox.apiserver.wire.exchange import Response, json_response

_BODY = ("policy", "v1", "Eviction")
_RETRY_S = 10


async def evict(call: Call) -> Response:
    """Delete the pod if its budget allows. Raises 404, 429 (budget), 500 (two budgets)."""
    call.context.dry_run = check_write_options(call.request, "CreateOptions")
    given: Json = read_object(call.request, call.kind, call.state.registry, body_kind=_BODY).value
    name = (given.get("metadata") or {}).get("name") or call.target.name
    if name != call.target.name:
        raise statuses.bad_request("name in URL does not match name in Eviction object")
    options = given.get("deleteOptions") or {}
    if "All" in (options.get("dryRun") or []):
        call.context.dry_run = True
    given.setdefault("metadata", {})["namespace"] = call.namespace
    attributes = attributes_of(call, "CREATE", given, None, options_of(call, "CreateOptions"))
    attributes.body_kind = _BODY
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
