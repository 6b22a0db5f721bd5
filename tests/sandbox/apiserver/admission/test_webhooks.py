"""Webhooks beyond the recorded scenarios: which is called, in which order, over which TLS, and what a failure does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fairlead.sandbox.apiserver.kinds.base import Attributes, Context
from fairlead.sandbox.apiserver.kinds.request import UserInfo
from tests.support.apiserver.served import Served
from tests.support.apiserver.webhooks import TestWebhook, deny, patch

MAPS = "/api/v1/namespaces/ml/configmaps"
GROUP = "/apis/admissionregistration.k8s.io/v1"
ON_MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}


def webhook(hook: TestWebhook, name: str = "a.example.com", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": f"{hook.url}/{name}", "caBundle": hook.ca_bundle},
        "rules": [ON_MAPS],
        "timeoutSeconds": 5,
        **more,
    }


async def register(api: Served, *webhooks: dict[str, Any], kind: str = "mutating", name: str = "w") -> None:
    path = f"{GROUP}/{kind}webhookconfigurations"
    code, answer = await api.post(path, {"metadata": {"name": name}, "webhooks": list(webhooks)})
    assert code == 201, answer


async def create(api: Served, name: str = "m", **data: str) -> tuple[int, Any]:
    return await api.post(MAPS, {"metadata": {"name": name, "labels": {"l": "1"}}, "data": data})


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ({}, True),
        ({"rules": [{**ON_MAPS, "operations": ["UPDATE"]}]}, False),
        ({"rules": [{**ON_MAPS, "apiGroups": ["apps"]}]}, False),
        ({"rules": [{**ON_MAPS, "resources": ["*/*"]}]}, True),
        ({"rules": [{**ON_MAPS, "resources": ["configmaps/status"]}]}, False),
        ({"rules": [{**ON_MAPS, "scope": "Cluster"}]}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, True),
        ({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}, False),
        ({"objectSelector": {"matchLabels": {"l": "1"}}}, True),
        ({"objectSelector": {"matchLabels": {"l": "2"}}}, False),
        ({"matchConditions": [{"name": "n", "expression": "request.userInfo.username == 'admin'"}]}, True),
        ({"matchConditions": [{"name": "n", "expression": "object.metadata.name == 'other'"}]}, False),
    ],
)
async def test_only_what_matches_is_asked(api: Served, hook: TestWebhook, more: dict[str, Any], asked: bool) -> None:
    await register(api, webhook(hook, **more))
    code, _ = await create(api)
    assert code == 201
    assert bool(hook.seen) == asked


async def test_a_match_condition_that_fails_counts_as_the_failure_policy_says(api: Served, hook: TestWebhook) -> None:
    failing = [{"name": "n", "expression": "object.data.missing == 'x'"}]
    await register(api, webhook(hook, matchConditions=failing, failurePolicy="Ignore"), name="ignored")
    assert (await create(api))[0] == 201
    await register(api, webhook(hook, matchConditions=failing), name="strict")
    code, answer = await create(api, "n")
    assert code == 403
    assert 'configmaps "n" is forbidden: ' in answer["message"]
    assert not hook.seen


async def test_webhooks_run_by_name_and_see_what_was_done_before(api: Served, hook: TestWebhook) -> None:
    def answer(path: str, request: dict[str, Any]) -> Any:
        done = request["object"]["data"].get("by", "")
        return patch([{"op": "add", "path": "/data/by", "value": done + path[1]}])

    hook.answer = answer
    await register(api, webhook(hook, "b.example.com"), webhook(hook, "c.example.com"), name="second")
    await register(api, webhook(hook, "a.example.com"), name="first")
    _, made = await create(api, by="")
    assert made["data"]["by"] == "abc"


async def test_who_asked_for_it_is_called_again_after_a_later_change(api: Served, hook: TestWebhook) -> None:
    def answer(path: str, request: dict[str, Any]) -> Any:
        name = path[1]
        if name == "z":
            return patch([{"op": "add", "path": "/data/z", "value": "1"}])
        return patch([{"op": "add", "path": f"/data/{name}", "value": str("z" in request["object"]["data"])}])

    hook.answer = answer
    await register(
        api,
        webhook(hook, "a.example.com", reinvocationPolicy="IfNeeded"),
        webhook(hook, "b.example.com"),
        webhook(hook, "z.example.com"),
    )
    _, made = await create(api, x="y")
    assert made["data"] == {"x": "y", "a": "True", "b": "False", "z": "1"}
    assert [seen.path[1] for seen in hook.seen] == ["a", "b", "z", "a"]


async def test_a_webhook_that_is_down_blocks_only_where_it_may(api: Served, hook: TestWebhook) -> None:
    gone = {"url": "https://127.0.0.1:1/x", "caBundle": hook.ca_bundle}
    await register(api, webhook(hook, clientConfig=gone, failurePolicy="Ignore"), name="ignored")
    assert (await create(api))[0] == 201
    await register(api, webhook(hook, clientConfig=gone), name="strict")
    code, answer = await create(api, "n")
    assert code == 500
    assert answer["message"] == (
        'Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: Post '
        '"https://127.0.0.1:1/x?timeout=5s": dial tcp 127.0.0.1:1: connect: connection refused'
    )


async def test_a_service_is_reached_through_its_endpoints(api: Served, tmp_path: Path) -> None:
    (tmp_path / "svc").mkdir()
    async with TestWebhook(tmp_path / "svc") as hook:
        service = {"name": "hook", "namespace": "ml", "path": "/mutate"}
        client = {"service": service, "caBundle": hook.ca_bundle}
        await register(api, webhook(hook, clientConfig=client))
        assert 'service "hook" not found' in (await create(api))[1]["message"]
        spec = {"ports": [{"port": 443, "targetPort": 9443}]}
        await api.post("/api/v1/namespaces/ml/services", {"metadata": {"name": "hook"}, "spec": spec})
        assert 'no endpoints available for service "hook"' in (await create(api))[1]["message"]
        subsets = [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": hook.port}]}]
        await api.post("/api/v1/namespaces/ml/endpoints", {"metadata": {"name": "hook"}, "subsets": subsets})
        code, answer = await create(api)
        # Its certificate is for 127.0.0.1 and not for hook.ml.svc, as a real apiserver would demand.
        assert (code, "tls: failed to verify certificate" in answer["message"]) == (500, True)


async def test_a_patch_that_breaks_the_object_is_the_webhooks_fault(api: Served, hook: TestWebhook) -> None:
    hook.answer = lambda _path, _request: patch([{"op": "add", "path": "/data/n", "value": 5}])
    await register(api, webhook(hook))
    code, answer = await create(api, x="y")
    assert code == 500
    assert "json: cannot unmarshal number into Go struct field ConfigMap.data of type string" in answer["message"]


async def test_a_rule_for_one_version_of_a_custom_kind_sees_the_others(api: Served, hook: TestWebhook) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v1beta1")]
    names = {"kind": "Thing", "plural": "things"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": versions}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await api.post(crds, {"metadata": {"name": "things.example.com"}, "spec": spec})
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}
    await register(api, webhook(hook, rules=[rule]), name="equivalent")
    await register(api, webhook(hook, rules=[rule], matchPolicy="Exact"), name="exact")
    code, _ = await api.post("/apis/example.com/v1beta1/things", {"metadata": {"name": "t"}})
    assert code == 201
    (seen,) = hook.seen
    request = seen.review["request"]
    assert (request["kind"]["version"], request["resource"]["version"]) == ("v1", "v1")
    assert (request["requestKind"]["version"], request["requestResource"]["version"]) == ("v1beta1", "v1beta1")
    assert request["object"]["apiVersion"] == "example.com/v1"


async def test_a_scaling_is_shown_as_a_scale_and_may_be_limited(api: Served, hook: TestWebhook) -> None:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments/scale"]}
    hook.answer = lambda _path, _request: patch([{"op": "replace", "path": "/spec/replicas", "value": 2}])
    await register(api, webhook(hook, rules=[rule]))
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployments = "/apis/apps/v1/namespaces/ml/deployments"
    await api.post(deployments, {"metadata": {"name": "d"}, "spec": spec})
    code, scale = await api.patch(f"{deployments}/d/scale", {"spec": {"replicas": 9}})
    assert (code, scale["spec"]["replicas"]) == (200, 2)
    request = hook.seen[0].review["request"]
    assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert request["resource"]["resource"] == "deployments"
    assert (request["object"]["spec"], request["oldObject"]["spec"]) == ({"replicas": 9}, {"replicas": 1})


async def test_warnings_reach_the_client_and_audit_annotations_the_request(api: Served, hook: TestWebhook) -> None:
    hook.answer = lambda _path, _request: {"allowed": True, "warnings": ["mind"], "auditAnnotations": {"why": "so"}}
    await register(api, webhook(hook))
    kind = api.state.registry.find("", "v1", "configmaps")
    assert kind is not None
    user = UserInfo("admin")
    context = Context(user, api.state, "create")
    options = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "ml"}}
    attributes = Attributes("CREATE", kind, "ml", "m", "", user, obj, None, options, dry_run=False, context=context)
    await api.state.admission.mutate(attributes)
    assert attributes.audit == {"a.example.com/why": "so"}
    assert context.warnings == ["mind"]


async def test_a_registration_that_could_never_work_is_refused(api: Served, hook: TestWebhook) -> None:
    wrong = webhook(hook, "short", clientConfig={"url": "http://x"}, sideEffects="Some", timeoutSeconds=31)
    wrong["matchConditions"] = [{"name": "n", "expression": "object."}]
    complaints = await api.refused(
        f"{GROUP}/mutatingwebhookconfigurations", {"metadata": {"name": "w"}, "webhooks": [wrong]}
    )
    assert [one.split(":")[0] for one in complaints] == [
        "webhooks[0].name",
        "webhooks[0].sideEffects",
        "webhooks[0].timeoutSeconds",
        "webhooks[0].clientConfig.url",
        "webhooks[0].matchConditions[0].expression",
    ]


async def test_a_refusal_that_says_when_to_try_again_reaches_the_client_as_retry_after(
    api: Served, hook: TestWebhook
) -> None:
    status = {"code": 429, "reason": "TooManyRequests", "message": "wait", "details": {"retryAfterSeconds": 1}}
    hook.answer = lambda _path, _request: deny(status)
    await register(api, webhook(hook), kind="validating")
    assert (await create(api))[0] == 429
    assert api.last is not None
    assert api.last.headers["Retry-After"] == "1"


async def test_an_answer_counts_that_came_in_time_and_was_read_late(api: Served, hook: TestWebhook) -> None:
    """An apiserver that is busy with other things is not a slow webhook."""

    def busy(_path: str, _request: dict[str, Any]) -> Any:
        time.sleep(1.1)  # the event loop that both share does nothing else
        return {"allowed": True}

    hook.answer = busy
    await register(api, webhook(hook, timeoutSeconds=1))
    assert (await create(api))[0] == 201
