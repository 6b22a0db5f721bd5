"""Who may do what: roles, bindings, the questions about them, and acting as another."""

from datetime import timedelta

import pytest

from fairlead.sandbox.apiserver import roles
from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.request import Access, Json
from fairlead.sandbox.apiserver.rbac import GROUP, Rbac, covers
from tests.support.apiserver.inside import Inside, OpenStrategy, open_kinds

ROLES = f"/apis/{GROUP}/v1"
REVIEWS = "authorization.k8s.io"


def review(plural, kind, group=REVIEWS):
    return Kind(group, "v1", plural, kind, False, OpenStrategy(), verbs=("create",), subresources=())


@pytest.fixture
async def inside():
    kinds = [
        *open_kinds(),
        review("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        review("subjectaccessreviews", "SubjectAccessReview"),
        review("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        review("selfsubjectreviews", "SelfSubjectReview", "authentication.k8s.io"),
        review("tokenreviews", "TokenReview", "authentication.k8s.io"),
    ]
    found = Inside(kinds)
    found.state.authorizer = Rbac(found.state)
    for name in ("ml", "ops"):
        await found.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return found


async def role(inside, name, rules, namespace=""):
    plural = "roles" if namespace else "clusterroles"
    scope = f"namespaces/{namespace}/" if namespace else ""
    status, body = await inside.post(f"{ROLES}/{scope}{plural}", {"metadata": {"name": name}, "rules": rules})
    assert status == 201, body


async def bind(inside, role_name, subject, namespace="", kind="ClusterRole"):
    plural = "rolebindings" if namespace else "clusterrolebindings"
    scope = f"namespaces/{namespace}/" if namespace else ""
    body = {
        "metadata": {"generateName": "b-"},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name},
        "subjects": [subject],
    }
    status, answer = await inside.post(f"{ROLES}/{scope}{plural}", body)
    assert status == 201, answer


USER = {"kind": "User", "apiGroup": GROUP, "name": "ann"}
READ_PODS = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}


async def test_a_cluster_role_bound_in_a_namespace_holds_there_only(inside):
    await role(inside, "reader", [READ_PODS])
    await bind(inside, "reader", USER, "ml")
    assert (await inside.get("/api/v1/namespaces/ml/pods", user="ann"))[0] == 200
    assert (await inside.get("/api/v1/namespaces/ops/pods", user="ann"))[0] == 403
    status, body = await inside.get("/api/v1/pods", user="ann")
    assert (status, body["message"].endswith("at the cluster scope")) == (403, True)
    await bind(inside, "reader", USER)
    assert (await inside.get("/api/v1/pods", user="ann"))[0] == 200


async def test_aggregated_roles_have_the_rules_of_those_they_select(inside):
    selector = {"clusterRoleSelectors": [{"matchLabels": {"into": "all"}}]}
    await inside.post(f"{ROLES}/clusterroles", {"metadata": {"name": "all"}, "aggregationRule": selector})
    await bind(inside, "all", USER)
    assert (await inside.get("/api/v1/pods", user="ann"))[0] == 403
    await inside.post(
        f"{ROLES}/clusterroles", {"metadata": {"name": "part", "labels": {"into": "all"}}, "rules": [READ_PODS]}
    )
    assert (await inside.get("/api/v1/pods", user="ann"))[0] == 200


async def test_a_list_of_one_name_is_allowed_by_that_name(inside):
    await role(inside, "one", [{**READ_PODS, "resourceNames": ["p"]}])
    await bind(inside, "one", USER)
    assert (await inside.get("/api/v1/namespaces/ml/pods?fieldSelector=metadata.name%3Dp", user="ann"))[0] == 200
    assert (await inside.get("/api/v1/namespaces/ml/pods", user="ann"))[0] == 403


WRITE_RBAC = {"verbs": ["*"], "apiGroups": [GROUP], "resources": ["clusterroles", "clusterrolebindings"]}


async def test_a_user_cannot_grant_permissions_that_the_user_does_not_hold(inside):
    await role(inside, "installer", [{**WRITE_RBAC, "verbs": ["create", "update", "patch", "get"]}, READ_PODS])
    await bind(inside, "installer", USER)
    more = {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]}
    status, body = await inside.post(f"{ROLES}/clusterroles", {"metadata": {"name": "x"}, "rules": [more]}, user="ann")
    assert (status, body["reason"]) == (403, "Forbidden")
    assert body["message"].endswith('not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}')
    less = {"metadata": {"name": "x"}, "rules": [{**READ_PODS, "resourceNames": ["p"]}]}
    assert (await inside.post(f"{ROLES}/clusterroles", less, user="ann"))[0] == 201
    binding = {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "x"}, "subjects": [USER]}
    assert (await inside.post(f"{ROLES}/clusterrolebindings", binding, user="ann"))[0] == 201
    await role(inside, "strong", [more])
    binding = {**binding, "metadata": {"name": "c"}, "roleRef": {"kind": "ClusterRole", "name": "strong"}}
    assert (await inside.post(f"{ROLES}/clusterrolebindings", binding, user="ann"))[0] == 403


@pytest.mark.parametrize(
    ("rule", "access", "allowed"),
    [
        ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, Access("get", "x", "y", "z"), True),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}, Access("get", "", "pods", "log"), False),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}, Access("get", "", "pods", "log"), True),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["*/log"]}, Access("get", "", "pods", "log"), True),
        ({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["pods"]}, Access("get", "", "pods"), False),
        ({"verbs": ["get"], "nonResourceURLs": ["/api/*"]}, Access("get", path="/api/v1"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/api"]}, Access("get", path="/api/v1"), False),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}, Access("get", path="/api"), False),
    ],
)
def test_rules_cover_what_they_name(rule, access, allowed):
    assert covers(rule, access) is allowed


async def ask(inside, spec, user="ann", plural="selfsubjectaccessreviews"):
    return await inside.post(f"/apis/{REVIEWS}/v1/{plural}", {"spec": spec}, user=user)


async def test_can_i_is_answered_with_the_reason(inside):
    await role(
        inside,
        "asker",
        [READ_PODS, {"verbs": ["create"], "apiGroups": [REVIEWS], "resources": ["selfsubjectaccessreviews"]}],
    )
    await bind(inside, "asker", USER)
    status, body = await ask(inside, {"resourceAttributes": {"verb": "get", "resource": "pods"}})
    assert (status, body["status"]["allowed"]) == (201, True)
    assert 'of ClusterRole "asker" to User "ann"' in body["status"]["reason"]
    _, body = await ask(inside, {"resourceAttributes": {"verb": "delete", "resource": "pods"}})
    assert body["status"] == {"allowed": False}
    status, body = await ask(inside, {})
    assert status == 422


async def test_a_token_for_another_audience_is_good_for_a_review_that_names_it_and_for_nothing_else(inside):
    async def review(token, *audiences):
        spec = {"token": token} | ({"audiences": audiences} if audiences else {})
        _, body = await inside.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})
        return body["status"].get("audiences")

    user = inside.state.tokens.user_of_token(inside.state.tokens.issue("bob"))
    bound = inside.state.tokens.bind(user, ("page", "other"), inside.state.now() + timedelta(minutes=10))
    assert await review(bound, "page", "x") == ["page"]
    assert await review(bound) is None
    assert await review(inside.state.tokens.issue("bob"), "page") is None
    assert await review(inside.state.tokens.issue("bob")) == ["https://kubernetes.default.svc"]
    assert (await inside.get("/api/v1/pods", headers={"Authorization": f"Bearer {bound}"}))[0] == 401
    over = inside.state.tokens.bind(user, ("page",), inside.state.now())
    assert await review(over, "page") is None


async def test_acting_as_another_takes_a_permission_and_gives_only_theirs(inside):
    headers = {"Impersonate-User": "ann"}
    assert (await inside.get("/api/v1/pods", headers=headers))[0] == 403
    status, body = await inside.get("/api/v1/pods", headers=headers, user="bob")
    assert (status, body["message"]) == (
        403,
        'users "ann" is forbidden: User "bob" cannot impersonate resource "users" in API group "" at the cluster scope',
    )
    assert (await inside.get("/api/v1/pods", headers={**headers, "Impersonate-Group": "system:masters"}))[0] == 200


def cluster_role(name: str) -> Json:
    return next(one for one in roles.cluster_roles() if one["metadata"]["name"] == name)


@pytest.mark.parametrize(
    ("name", "access", "allowed"),
    [
        ("system:kube-scheduler", Access("update", "resource.k8s.io", "resourceclaims", "binding"), True),
        ("system:kube-scheduler", Access("create", "", "pods", "binding"), True),
        ("system:kube-scheduler", Access("delete", "", "nodes"), False),
        ("system:node", Access("update", "resource.k8s.io", "resourceslices"), False),
        ("system:controller:resource-claim-controller", Access("create", "resource.k8s.io", "resourceclaims"), True),
        ("system:controller:job-controller", Access("create", "", "pods"), True),
        ("system:controller:job-controller", Access("create", "", "secrets"), False),
    ],
)
def test_the_systems_own_roles_allow_what_they_do_in_a_real_cluster(name, access, allowed):
    assert any(covers(rule, access) for rule in cluster_role(name)["rules"]) is allowed
