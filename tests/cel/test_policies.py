"""Expressions of real admission policies and CRD rules, on JSON."""

from typing import Any

import pytest

from fairlead.cel import ADMISSION, RULE, CompileError, EvaluationError, compile  # noqa: A004
from fairlead.cel.library.authz import Authorizer, Decision, Question

FENCE = "object.?status.?allocation.?devices.?results.orValue([]).filter(r, r.driver == 'gpu.example.com').size()"
USER_NODE = "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')"
OBJECT_NODE = '(request.operation == "DELETE" ? oldObject : object).spec.?nodeName.orValue("")'


def evaluate(text: str, **bindings: Any) -> Any:
    return compile(text, ADMISSION).evaluate(bindings)


@pytest.mark.parametrize(
    ("claim", "count"),
    [
        ({}, 0),
        ({"status": {}}, 0),
        ({"status": {"allocation": {}}}, 0),
        ({"status": {"allocation": {"devices": {"results": []}}}}, 0),
        ({"status": {"allocation": {"devices": {"results": [{"driver": "gpu.example.com"}, {"driver": "nic"}]}}}}, 1),
    ],
)
def test_the_fence_counts_devices_of_a_driver(claim: dict[str, Any], count: int) -> None:
    assert evaluate(FENCE, object=claim) == count


def test_the_slice_policy_knows_the_node_of_a_token() -> None:
    extra = {"authentication.kubernetes.io/node-name": ["node-1"]}
    assert evaluate(USER_NODE, request={"userInfo": {"extra": extra}}) == "node-1"
    assert evaluate(USER_NODE, request={"userInfo": {"extra": {}}}) == ""
    with pytest.raises(EvaluationError, match="no such key: extra"):
        evaluate(USER_NODE, request={"userInfo": {}})


def test_the_slice_policy_knows_the_node_of_the_object() -> None:
    new, old = {"spec": {"nodeName": "new"}}, {"spec": {"nodeName": "old"}}
    assert evaluate(OBJECT_NODE, request={"operation": "CREATE"}, object=new, oldObject=None) == "new"
    assert evaluate(OBJECT_NODE, request={"operation": "DELETE"}, object=None, oldObject=old) == "old"
    assert evaluate(OBJECT_NODE, request={"operation": "CREATE"}, object={"spec": {}}, oldObject=None) == ""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("request.userInfo.username == 'system:kube-scheduler'", False),
        ("'system:masters' in request.userInfo.groups", True),
        ("!('x' in object.metadata.?labels.orValue({}))", True),
        ("object.metadata.name.startsWith('gang-') && size(object.spec.members) <= 3", True),
        ("object.spec.members.all(m, has(m.name) && m.name.matches('^[a-z]+$'))", True),
        ("object.spec.members.map(m, m.name).join(',') == 'a,b'", True),
        ("has(oldObject.metadata) && oldObject != null ? object.spec == oldObject.spec : true", True),
        ("oldObject == null || object.spec.size == oldObject.spec.size", True),
        ("quantity(object.spec.memory).isLessThan(quantity('2Gi'))", True),
        ("object.spec.weight >= 1 && object.spec.weight < 2", True),
        ("variables.names.exists(n, n == 'b')", True),
        ("params.?limit.orValue(10) > 5", True),
        ("namespaceObject.metadata.labels['team'] == 'ml'", True),
        ("'gang ' + object.metadata.name + ' has ' + string(size(object.spec.members))", "gang gang-1 has 2"),
        ("object.spec.members.exists_one(m, m.name == 'a')", True),
        ("object.spec.?members[?0].?name.orValue('none')", "a"),
        ("object.metadata.labels.exists(k, k.startsWith('fairlead.dev/'))", True),
    ],
)  # fmt: skip
def test_policies_evaluate_on_json(text: str, want: Any) -> None:
    object_ = {
        "metadata": {"name": "gang-1", "labels": {"fairlead.dev/queue": "q"}},
        "spec": {"members": [{"name": "a"}, {"name": "b"}], "memory": "1Gi", "weight": 1.5, "size": 2},
    }
    got = evaluate(
        text,
        object=object_,
        oldObject=None if "== null" in text else {"metadata": {}, "spec": object_["spec"]},
        request={"userInfo": {"username": "ann", "groups": ["system:masters"]}},
        variables={"names": ["a", "b"]},
        params={"limit": 7},
        namespaceObject={"metadata": {"labels": {"team": "ml"}}},
    )
    assert got == want


def test_variables_may_be_lazy() -> None:
    class Lazy(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            self[name] = value = compile("1 + 1", ADMISSION).evaluate({})
            return value

    lazy = Lazy()
    assert evaluate("variables.two == 2", variables=lazy) is True
    assert lazy == {"two": 2}


def test_an_authorizer_is_called() -> None:
    asked: list[Question] = []

    def ask(question: Question) -> Decision:
        asked.append(question)
        return Decision(allowed=question.verb == "use", reason="because")

    text = "authorizer.group('fairlead.dev').resource('queues').namespace('n').name('q').check('use').allowed()"
    assert evaluate(text, authorizer=Authorizer(ask)) is True
    assert asked == [Question(verb="use", group="fairlead.dev", resource="queues", namespace="n", name="q")]
    assert evaluate("authorizer.path('/healthz').check('get').reason()", authorizer=Authorizer(ask)) == "because"
    text = "authorizer.serviceAccount('ns', 'sa').group('').resource('pods').check('get').allowed()"
    assert evaluate(text, authorizer=Authorizer(ask)) is False
    assert asked[-1].user == "system:serviceaccount:ns:sa"


def test_rules_see_old_and_new() -> None:
    rule = compile("self.replicas >= oldSelf.replicas && self.name == oldSelf.name", RULE)
    assert rule.evaluate({"self": {"replicas": 2, "name": "a"}, "oldSelf": {"replicas": 1, "name": "a"}}) is True
    with pytest.raises(CompileError, match="undeclared reference to 'object'"):
        compile("object.x", RULE)
