"""Binding, eviction, scale, tokens: the doors that are more than a view."""

from fairlead.sandbox.apiserver.kinds.base import Kind, Subresource
from tests.support.apiserver.inside import Inside, OpenStrategy, open_kinds

PODS = "/api/v1/namespaces/ml/pods"
BUDGETS = "/apis/policy/v1/namespaces/ml/poddisruptionbudgets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/ml/deployments"


async def pod(inside, name="p", gates=(), **metadata):
    spec = {"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}
    _, body = await inside.post(PODS, {"metadata": {"name": name, **metadata}, "spec": spec})
    return body


async def bind(inside, name="p", node="n1", **metadata):
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}
    return await inside.post(f"{PODS}/{name}/binding", body)


async def test_binding_sets_the_node_and_the_condition(inside):
    await pod(inside)
    status, body = await bind(inside, annotations={"a": "b"})
    assert (status, body["status"]) == (201, "Success")
    _, found = await inside.get(f"{PODS}/p")
    assert (found["spec"]["nodeName"], found["metadata"]["annotations"]) == ("n1", {"a": "b"})
    assert found["metadata"]["generation"] == 1
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_a_pod_is_bound_once_and_not_while_gated_or_going(inside):
    await pod(inside)
    await bind(inside)
    status, body = await bind(inside, node="n2")
    assert (status, body["message"]) == (
        409,
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"',
    )
    await pod(inside, "gated", gates=["x"])
    assert "non-empty .spec.schedulingGates" in (await bind(inside, "gated"))[1]["message"]
    await pod(inside, "going", finalizers=["a.b/c"])
    await inside.delete(f"{PODS}/going")
    assert "is being deleted" in (await bind(inside, "going"))[1]["message"]
    assert (await bind(inside, "none"))[0] == 404
    assert (await inside.post(f"{PODS}/gated/binding", {"target": {}}))[0] == 422


async def running(inside, name="p"):
    body = await pod(inside, name, labels={"app": "web"})
    await bind(inside, name)
    await inside.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
    return body


async def budget(inside, allowed, name="b", **spec):
    spec.setdefault("selector", {"matchLabels": {"app": "web"}})
    await inside.post(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    if allowed is not None:
        status = {"observedGeneration": 1, "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1}
        await inside.patch(f"{BUDGETS}/{name}/status", {"status": status})


async def evict(inside, name="p", **options):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return await inside.post(f"{PODS}/{name}/eviction", {**body, **({"deleteOptions": options} if options else {})})


async def test_an_eviction_is_a_deletion_that_says_why(inside):
    await running(inside)
    assert (await evict(inside))[0] == 201
    _, found = await inside.get(f"{PODS}/p")
    assert found["metadata"]["deletionGracePeriodSeconds"] == 30
    assert [one["reason"] for one in found["status"]["conditions"] if one["type"] == "DisruptionTarget"] == [
        "EvictionByEvictionAPI"
    ]


async def test_a_budget_allows_so_many_evictions_and_no_more(inside):
    await running(inside, "p")
    await running(inside, "q")
    await budget(inside, 1)
    assert (await evict(inside, "p"))[0] == 201
    status, body = await evict(inside, "q")
    assert (status, body["reason"]) == (429, "TooManyRequests")
    assert body["details"]["causes"][0] == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
    }
    assert "deletionTimestamp" not in (await inside.get(f"{PODS}/q"))[1]["metadata"]


async def test_budgets_do_not_keep_what_does_not_run(inside):
    await pod(inside, labels={"app": "web"})
    await inside.patch(f"{PODS}/p/status", {"status": {"phase": "Pending"}})
    await budget(inside, 0)
    assert (await evict(inside, gracePeriodSeconds=0))[0] == 201
    assert (await inside.get(f"{PODS}/p"))[0] == 404


async def test_scale_shows_and_sets_replicas_of_anything(inside):
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}}
    await inside.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    _, scale = await inside.get(f"{DEPLOYMENTS}/d/scale")
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 2}, "a=b")
    scale["spec"]["replicas"] = 3
    assert (await inside.put(f"{DEPLOYMENTS}/d/scale", scale))[1]["spec"] == {"replicas": 3}
    assert (await inside.put(f"{DEPLOYMENTS}/d/scale", scale))[0] == 409, "the revision is that of before"
    assert (await inside.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 4}}))[1]["spec"] == {"replicas": 4}
    assert (await inside.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": -1}}))[0] == 422
    _, deployment = await inside.get(f"{DEPLOYMENTS}/d")
    assert (deployment["spec"]["replicas"], deployment["metadata"]["generation"]) == (4, 3)


async def test_a_token_for_a_pods_service_account_knows_its_node():
    token = Subresource("token", ("create",), kind="TokenRequest", group="authentication.k8s.io", version="v1")
    accounts = Kind("", "v1", "serviceaccounts", "ServiceAccount", True, OpenStrategy(), subresources=(token,))
    inside = Inside([kind for kind in open_kinds() if kind.plural != "serviceaccounts"] + [accounts])
    await inside.post("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    await inside.post("/api/v1/namespaces/ml/serviceaccounts", {"metadata": {"name": "driver"}})
    await pod(inside)
    await bind(inside)
    request = {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}, "expirationSeconds": 600}}
    status, body = await inside.post("/api/v1/namespaces/ml/serviceaccounts/driver/token", request)
    assert (status, body["status"]["expirationTimestamp"]) == (201, "2026-11-20T12:10:00Z")
    user = inside.state.tokens.user_of_token(body["status"]["token"])
    assert user is not None
    assert user.name == "system:serviceaccount:ml:driver"
    assert user.extra["authentication.kubernetes.io/node-name"] == ("n1",)
