"""Which objects the apiserver sends: as few as its conditions can say, and each with a handler."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from fairlead import cel
from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.kube import errors
from fairlead.sandbox.apiserver.admission.matching import selects
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.registration import configurations, registrar
from fairlead.webhook.registration.configurations import Target

Json = dict[str, Any]
TARGET = Target(bundle="PEM", url="https://127.0.0.1:9443")
CONFIGURATIONS = {"mutating": configurations.mutating(TARGET), "validating": configurations.validating(TARGET)}
WEBHOOKS = [(phase, webhook) for phase, found in CONFIGURATIONS.items() for webhook in found["webhooks"]]
IDS = [f"{phase}-{webhook['name']}" for phase, webhook in WEBHOOKS]


WITH_POLICY = configurations.validating(
    replace(TARGET, policies=(TenancyPolicy.read({"metadata": {"name": "p"}, "spec": {"maxGangSize": 8}}),))
)


def matching(
    phase: str,
    object_: Json,
    *,
    old: Json | None = None,
    operation: str = "CREATE",
    user: str = "alice",
    configuration: Json | None = None,
) -> set[str]:
    """Names of the webhooks that the apiserver would call; without a policy where no configuration is given."""
    kind = object_["kind"]
    plural = kind.lower() + ("es" if kind.endswith("s") else "s")
    request = {"kind": {"kind": kind}, "operation": operation, "userInfo": {"username": user}}
    bindings = {"object": object_, "oldObject": old, "request": request}
    called = set()
    for webhook in (configuration or CONFIGURATIONS[phase])["webhooks"]:
        if not any(plural in rule["resources"] and operation in rule["operations"] for rule in webhook["rules"]):
            continue
        labels = [(one["metadata"].get("labels") or {}) for one in (object_, old) if one is not None]
        if not any(selects(webhook["objectSelector"], one) for one in labels):
            continue
        conditions = (c["expression"] for c in webhook.get("matchConditions", ()))
        if all(cel.compile(text, cel.ADMISSION).evaluate(bindings) is True for text in conditions):
            called.add(webhook["name"].removesuffix(".fairlead.dev"))
    return called


def pod(
    *, annotations: Json | None = None, labels: Json | None = None, limits: Json | None = None, **spec: Any
) -> Json:
    resources: Json = {} if limits is None else {"limits": limits, "requests": limits}
    metadata: Json = {"name": "p", "namespace": "ml"}
    metadata |= {k: v for k, v in (("annotations", annotations), ("labels", labels)) if v is not None}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c", "resources": resources}]} | spec}


GATE: Json = {"schedulingGates": [{"name": names.ADMISSION_GATE}]}
CLAIMS: Json = {"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]}

PODS = [
    ("nothing of ours", pod(), set()),
    ("a foreign limit", pod(limits={"cpu": "1", "amd.com/gpu": 1}), set()),
    (
        "foreign annotations, labels and gates",
        pod(annotations={"a": "b"}, labels={"a": "b"}, schedulingGates=[{"name": "x"}]),
        set(),
    ),
    ("claims of whomever", pod(**CLAIMS), {"claims.pods"}),
    ("a legacy limit", pod(limits={names.LEGACY_GPU: 1}), {"pods"}),
    ("a legacy MIG limit", pod(limits={"nvidia.com/mig-1g.10gb": 1}), {"pods"}),
    (
        "a legacy limit of an init container",
        pod(initContainers=[{"resources": {"limits": {names.LEGACY_GPU: 1}}}]),
        {"pods"},
    ),
    ("claims and an annotation of ours", pod(annotations={names.GANG: "llm"}, **CLAIMS), {"pods"}),
    ("the queue label", pod(labels={names.QUEUE: "ml"}), {"pods"}),
    ("our gate", pod(**GATE), {"pods"}),
]


@pytest.mark.parametrize(("what", "body", "called"), PODS, ids=[row[0] for row in PODS])
@pytest.mark.parametrize("phase", ["mutating", "validating"])
def test_a_pod_is_sent_only_if_it_may_be_managed(phase: str, what: str, body: Json, called: set[str]) -> None:
    sent = {"pods"} if called else set()
    assert matching(phase, body) == (sent if phase == "mutating" else called - {"claims.pods"}), what
    assert matching("validating", body, configuration=WITH_POLICY) == called - {"claims.pods"}


@pytest.mark.parametrize("value", [names.REVIEWED_TEMPLATE, names.REVIEWED_POD, "", "forged"])
@pytest.mark.parametrize(("what", "body", "called"), PODS, ids=[row[0] for row in PODS])
def test_a_label_that_somebody_writes_keeps_no_pod_from_the_webhook(
    what: str, body: Json, called: set[str], value: str
) -> None:
    """Nor from its failure policy: what is marked is refused while the webhook is down."""
    labelled = copy.deepcopy(body)
    labelled["metadata"].setdefault("labels", {})[names.REVIEWED] = value
    sent = {"reviewed.pods"} if value == names.REVIEWED_TEMPLATE else {"pods"} if called else set()
    assert matching("mutating", labelled) == sent, what
    assert matching("validating", labelled) == (set() if what == "our gate" else {"reviewed.pods"})
    assert matching("validating", labelled, configuration=WITH_POLICY) == {"reviewed.pods"}
    failing = {w["name"]: w["failurePolicy"] for w in CONFIGURATIONS["validating"]["webhooks"]}
    assert failing["reviewed.pods.fairlead.dev"] == failing["pods.fairlead.dev"] == "Fail"


def reviewed(body: Json) -> Json:
    labels = {**(body["metadata"].get("labels") or {}), names.REVIEWED: names.REVIEWED_POD}
    return {**body, "metadata": {**body["metadata"], "labels": labels}}


SETTLED = [
    ("gated", reviewed(pod(annotations={names.GANG: "llm"}, **GATE, **CLAIMS)), set()),
    (
        "gated by us and others",
        reviewed(pod(**CLAIMS, schedulingGates=[{"name": "x"}, *GATE["schedulingGates"]])),
        set(),
    ),
    (
        "gated with a limit that is left to a device plugin",
        reviewed(pod(limits={names.LEGACY_GPU: 1}, **GATE)),
        {"reviewed.pods"},
    ),
    (
        "gated by others",
        reviewed(pod(annotations={names.GANG: "llm"}, **CLAIMS, schedulingGates=[{"name": "x"}])),
        {"reviewed.pods"},
    ),
    ("without a gate", pod(annotations={names.GANG: "llm"}, **CLAIMS), {"pods"}),
]


@pytest.mark.parametrize(("what", "body", "called"), SETTLED, ids=[row[0] for row in SETTLED])
def test_without_a_policy_a_pod_is_validated_only_where_a_gate_could_be_missing(
    what: str, body: Json, called: set[str]
) -> None:
    assert matching("validating", body) == called
    assert matching("validating", body, configuration=WITH_POLICY) == (called or {"reviewed.pods"})
    assert matching("mutating", body), "what only Fairlead writes is refused here"


@pytest.mark.parametrize(("what", "body", "called"), PODS, ids=[row[0] for row in PODS])
@pytest.mark.parametrize("phase", ["mutating", "validating"])
def test_a_job_is_sent_only_if_its_pods_may_be_managed(phase: str, what: str, body: Json, called: set[str]) -> None:
    template = {"metadata": body["metadata"], "spec": body["spec"]}
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    cron = {"kind": "CronJob", "metadata": {"name": "j"}, "spec": {"jobTemplate": {"spec": job["spec"]}}}
    wanted = {name.replace("pods", "jobs") for name in called}
    assert matching(phase, job) == wanted
    assert matching(phase, cron) == wanted


NO_IDLE = configurations.validating(
    replace(TARGET, policies=(TenancyPolicy.read({"metadata": {"name": "p"}, "spec": {"keepIdle": "Reject"}}),))
)


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        (None, "true", True),
        ("false", "true", True),
        ("true", "true", False),
        ("true", None, False),
        (None, "no", False),
    ],
)
def test_an_update_of_a_pod_is_sent_only_where_a_policy_refuses_what_it_says_of_idleness(
    before: str | None, after: str | None, sent: bool
) -> None:
    old, new = (reviewed(pod(annotations={names.KEEP_IDLE: said} if said else {}, **GATE)) for said in (before, after))
    update: Json = {"old": old, "operation": "UPDATE"}
    assert matching("validating", new, **update, configuration=NO_IDLE) == ({"idle.pods"} if sent else set())
    for configuration in (CONFIGURATIONS["validating"], WITH_POLICY):
        pods = [
            w
            for w in configuration["webhooks"]
            if {"UPDATE"} & set(w["rules"][0]["operations"]) and "pods" in w["rules"][0]["resources"]
        ]
        assert not pods, "an update of a pod is not even looked at"


def claim(class_name: str, *, driver: str = "", template: bool = False, alternatives: bool = False) -> Json:
    ask = {"deviceClassName": class_name}
    request: Json = {"name": "r", "firstAvailable": [ask]} if alternatives else {"name": "r", "exactly": ask}
    spec: Json = {"devices": {"requests": [request]}}
    if driver:
        spec["devices"]["config"] = [{"opaque": {"driver": driver}}]
    kind = "ResourceClaimTemplate" if template else "ResourceClaim"
    return {"kind": kind, "metadata": {"name": "c"}, "spec": {"spec": spec} if template else spec}


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("alternatives", [False, True])
def test_marked_claims_must_be_judged_and_others_may(template: bool, alternatives: bool) -> None:
    more: Json = {"template": template, "alternatives": alternatives}
    assert matching("validating", claim(names.GPU_CLASS, **more)) == {"claims"}
    assert matching("validating", claim(names.MIG_CLASS, **more)) == {"claims"}
    assert matching("validating", claim("nic.example.com", **more)) == {"other.claims"}
    assert matching("validating", claim("nic.example.com", driver=names.DRIVER, **more)) == {"claims"}


@pytest.mark.parametrize("class_name", [names.GPU_CLASS, "nic.example.com"])
def test_a_claim_that_says_that_the_controller_made_it_is_judged_all_the_same(class_name: str) -> None:
    forged = claim(class_name)
    forged["metadata"]["labels"] = {names.MANAGED_BY: names.MANAGED_BY_VALUE}
    assert matching("validating", forged) == {"made.claims"}
    assert matching("validating", forged, user=names.CONTROLLER_USER) == set()
    assert matching("validating", forged, user=names.CONTROLLER_USER, configuration=WITH_POLICY) == {"made.claims"}


CLAIM_CONTROLLER = "system:serviceaccount:kube-system:resource-claim-controller"


@pytest.mark.parametrize("user", [names.CONTROLLER_USER, CLAIM_CONTROLLER, "system:kube-controller-manager"])
@pytest.mark.parametrize("class_name", [names.GPU_CLASS, "nic.example.com"])
def test_claims_that_controllers_make_are_judged_where_there_is_a_policy(user: str, class_name: str) -> None:
    wanted = {"claims" if class_name == names.GPU_CLASS else "other.claims"}
    assert matching("validating", claim(class_name), user=user) == set()
    assert matching("validating", claim(class_name), user=user, configuration=WITH_POLICY) == wanted


def test_templates_that_our_controller_makes_are_never_judged_and_others_always() -> None:
    made = claim(names.GPU_CLASS, template=True)
    for configuration in (CONFIGURATIONS["validating"], WITH_POLICY):
        assert matching("validating", made, user=names.CONTROLLER_USER, configuration=configuration) == set()
        assert matching("validating", made, configuration=configuration) == {"claims"}


def test_another_managed_driver_brings_its_own_classes() -> None:
    target = Target(bundle="", drivers=("gpu.nvidia.com",))
    assert target.classes == ("gpu.nvidia.com", "mig.nvidia.com")
    assert "['gpu.nvidia.com', 'mig.nvidia.com']" in str(configurations.validating(target))


@pytest.mark.parametrize(("phase", "webhook"), WEBHOOKS, ids=IDS)
def test_every_webhook_is_safe(phase: str, webhook: Json) -> None:
    assert webhook["sideEffects"] == "None"
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert webhook["timeoutSeconds"] <= 5
    assert webhook.get("reinvocationPolicy") == ("IfNeeded" if phase == "mutating" else None)
    excluded, ignored = webhook["namespaceSelector"]["matchExpressions"]
    assert {"kube-system", names.NAMESPACE} <= set(excluded["values"])
    assert ignored == {"key": names.IGNORE_LABEL, "operator": "DoesNotExist"}
    own = webhook["name"] == "own.fairlead.dev"
    if webhook["failurePolicy"] == "Fail" and not own:
        assert webhook.get("matchConditions") or webhook["objectSelector"], "what fails closed must be narrowed down"
    for rule in webhook["rules"]:
        assert "*" not in [*rule["apiGroups"], *rule["apiVersions"], *rule["operations"], *rule["resources"]]


@pytest.mark.parametrize(("phase", "webhook"), WEBHOOKS, ids=IDS)
def test_every_rule_has_a_handler(phase: str, webhook: Json) -> None:
    table = dispatch.MUTATING if phase == "mutating" else dispatch.VALIDATING
    for rule in webhook["rules"]:
        (group,) = rule["apiGroups"]
        for resource in rule["resources"]:
            assert (f"{resource}.{group}" if group else resource) in table


class Configurations:
    """A cluster with the two configurations, as the client sees it."""

    def __init__(self) -> None:
        self.stored: dict[str, Json] = {}
        self.writes: list[str] = []

    async def get(self, resource: Any, name: str) -> Json:
        if resource.kind not in self.stored:
            raise errors.NotFound("no")
        return self.stored[resource.kind]

    async def create(self, resource: Any, obj: Json) -> Json:
        self.writes.append(f"create {resource.kind}")
        self.stored[resource.kind] = obj | {"metadata": obj["metadata"] | {"resourceVersion": "1"}}
        return obj

    async def replace(self, resource: Any, obj: Json) -> Json:
        assert obj["metadata"]["resourceVersion"] == "1"
        self.writes.append(f"replace {resource.kind}")
        self.stored[resource.kind] = obj
        return obj


async def test_configurations_are_written_once_and_repaired_when_changed() -> None:
    cluster: Any = Configurations()
    assert await registrar.ensure(cluster, TARGET)
    assert cluster.writes == ["create MutatingWebhookConfiguration", "create ValidatingWebhookConfiguration"]
    assert not await registrar.ensure(cluster, TARGET)
    cluster.stored["MutatingWebhookConfiguration"]["webhooks"][0]["failurePolicy"] = "Ignore"
    assert await registrar.ensure(cluster, TARGET)
    assert cluster.writes[2:] == ["replace MutatingWebhookConfiguration"]
    assert await registrar.ensure(cluster, replace(TARGET, bundle="NEW"))
    assert cluster.writes[3:] == ["replace MutatingWebhookConfiguration", "replace ValidatingWebhookConfiguration"]


async def test_the_role_of_the_installation_owns_them_and_then_a_new_role() -> None:
    cluster: Any = Configurations()
    cluster.stored["ClusterRole"] = {"metadata": {"uid": "first"}}
    assert await registrar.ensure(cluster, TARGET)
    assert not await registrar.ensure(cluster, TARGET)
    cluster.stored["ClusterRole"] = {"metadata": {"uid": "second"}}
    assert await registrar.ensure(cluster, TARGET)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (owner,) = cluster.stored[kind]["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "name": "fairlead-webhook",
            "uid": "second",
        }


def test_the_policy_after_the_last_with_webhooks_of_its_own_is_judged_by_shared_ones_and_told() -> None:
    """Enforced policies get webhooks of their own first; no policy is dropped."""

    def bypass(name: str, mode: str) -> TenancyPolicy:
        return TenancyPolicy.read({"metadata": {"name": name}, "spec": {"deviceBypass": "Reject", "mode": mode}})

    given = [bypass(f"p{i:02}", "Enforce") for i in range(configurations.BYPASSES_MAX)]
    full = replace(TARGET, policies=tuple(given))
    assert configurations.sharing_policies(full) == []
    over = replace(TARGET, policies=(bypass("a-warning", "Warn"), *given))
    assert configurations.sharing_policies(over) == ["a-warning"]
    for made in (configurations.mutating, configurations.validating):
        before, after = ({w["name"]: w for w in made(target)["webhooks"]} for target in (full, over))
        shared = {name: found for name, found in after.items() if name not in before}
        assert set(shared) == {"shared.pods.fairlead.dev", "shared.debug.fairlead.dev"}
        for webhook in shared.values():
            assert webhook["failurePolicy"] == "Ignore", "it is asked about pods of all namespaces"
            assert "matchLabels" not in webhook["namespaceSelector"]
        assert len(after) == len({webhook["name"] for webhook in made(over)["webhooks"]})
