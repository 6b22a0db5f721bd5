"""Any JSON gets an answer, never an exception; unmanaged objects are never changed; a second pass changes nothing."""

import contextlib
import copy
import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.api.foreign import METADATA_KEYS
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.objects.fields import MalformedError
from fairlead.webhook.review.envelope import BadReviewError, decode, encode
from fairlead.webhook.review.facts import Facts, GangMember, needs
from tests.support.engine.examples import examples
from tests.support.webhook import CLASSES, claim_spec, facts, patched, review

Json = dict[str, Any]
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))  # other work may hold the machine

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mostly(draw: st.DrawFn, good: st.SearchStrategy[Any]) -> Any:
    return draw(good if draw(st.integers(0, 5)) else junk)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


quantity = st.sampled_from([1, 2, "1", "4", "0", 0, "500m", "1.5", 33, "-1", "x"])
resources = st.sampled_from([names.LEGACY_GPU, "nvidia.com/mig-1g.10gb", "nvidia.com/mig-x", "cpu", "amd.com/gpu"])
amounts = mostly(st.dictionaries(resources, mostly(quantity), max_size=3))
container = some(
    name=st.sampled_from(["a", "b"]),
    restartPolicy=mostly(st.sampled_from(["Always", None])),
    resources=mostly(some(limits=amounts, requests=amounts, claims=mostly(st.just([{"name": "gpu"}])))),
)
use = some(
    name=mostly(st.sampled_from(["gpu", "fairlead-gpu-0"])),
    resourceClaimTemplateName=mostly(st.sampled_from(["h100", "nic", "later", "fairlead-gpu-2"])),
    resourceClaimName=mostly(st.sampled_from(["shared", "gone", "p-gpu-x"])),
)
gate = some(name=mostly(st.sampled_from([names.ADMISSION_GATE, "example.com/other"])))
OURS = (names.GANG, names.GANG_SIZE, names.QUEUE, names.TOPOLOGY, names.MIN_RUNTIME, "a/b")
THEIRS = (*dict.fromkeys(word.key for word in METADATA_KEYS), names.KUEUE_LEAST, names.KUEUE_PRIORITY)


def notes(*keys: str) -> st.SearchStrategy[Any]:
    said = mostly(st.sampled_from(["llm", "8", "4", "required:rack", "30m", "", "L L"]))
    return mostly(st.dictionaries(st.sampled_from(keys), said, max_size=4))


SOURCES = '{"claims":{"gpu":{"claim":"p-gpu-x","template":"h100","uid":"u"}},"hmac":"%s"}'
records = st.sampled_from([SOURCES % "", SOURCES % "0", "{}", "[]", '{"claims":{"gpu":1},"hmac":""}'])
fairleads = st.fixed_dictionaries(
    {},
    optional={
        names.CLAIM_SOURCES: records,
        names.CLAIM_NAMES: st.sampled_from(["named", "generated", "x"]),
        names.RELEASED_AT: st.just("x"),
    },
)
owner = some(kind=st.just("Job"), name=st.just("j"), uid=mostly(st.just("u")), controller=mostly(st.just(True)))
metadata = some(
    name=st.just("p"),
    namespace=st.just("ml"),
    annotations=notes(*OURS) | notes(*OURS, *THEIRS) | mostly(fairleads),
    ownerReferences=mostly(st.lists(mostly(owner), max_size=2)),
    labels=notes(*THEIRS, names.QUEUE),
)
spec = some(
    containers=mostly(st.lists(mostly(container), max_size=3)),
    initContainers=mostly(st.lists(mostly(container), max_size=2)),
    resourceClaims=mostly(st.lists(mostly(use), max_size=3)),
    schedulingGates=mostly(st.lists(mostly(gate), max_size=2)),
    nodeName=mostly(st.sampled_from(["", "n1"])),
    schedulerName=mostly(st.sampled_from(["volcano", "mine"])),
    schedulingGroup=mostly(some(podGroupName=mostly(st.sampled_from(["llm", ""])))),
)
pods = some(metadata=mostly(metadata), spec=mostly(spec))


def known() -> Facts:
    return facts(
        classes=CLASSES,
        claims={("ml", "shared"): claim_spec()},
        gangs={("ml", "llm"): (GangMember(name="other", size=8),)},
    )


def of(kind: str, object_: Json, **user: Any) -> Any:
    named = review({"kind": kind, "metadata": {"name": "p", "namespace": "ml"}}, **user)
    return msgspec.structs.replace(named, object=object_ or {"x": 1})


CLAIMS_NO_LIST: Json = {"resources": {"limits": {names.LEGACY_GPU: 1}, "claims": {"a": "b"}}}


@settings(RELAXED, max_examples=examples(300))
@given(pods)
@example({"spec": {"containers": [CLAIMS_NO_LIST]}})
def test_any_pod_shaped_json_gets_an_answer_and_a_second_pass_changes_nothing(pod: Json) -> None:
    before = copy.deepcopy(pod)
    with contextlib.suppress(MalformedError):
        needs(of("Pod", pod))
    first = dispatch.mutate(of("Pod", pod), known())
    assert pod == before
    assert first.allowed or first.message.startswith("Pod")
    json.loads(encode("u", first))
    if not first.allowed:
        return
    stored = patched(pod, first)
    second = dispatch.mutate(of("Pod", stored), known())
    assert (second.allowed, second.patch) == (True, ())
    assert dispatch.validate(of("Pod", stored), known()).message == ""


def foreign(pod: Json) -> bool:
    text = json.dumps(pod)
    ours = (
        "nvidia.com/",
        "h100",
        "later",
        "fairlead-gpu",
        "shared",
        "gone",
        "p-gpu-x",
        names.RELEASED_AT,
        names.CLAIM_SOURCES,
    )
    return not any(word in text for word in ours)


@settings(RELAXED, max_examples=examples(200))
@given(pods.filter(foreign))
def test_an_unmanaged_pod_is_never_changed(pod: Json) -> None:
    verdict = dispatch.mutate(of("Pod", pod), known())
    assert verdict.patch == ()
    assert verdict.allowed or verdict.cause == "malformed"


@settings(RELAXED, max_examples=examples(150))
@given(pods, pods)
def test_any_update_gets_an_answer(old: Json, new: Json) -> None:
    update = of("Pod", new, operation="UPDATE", old=old or {"x": 1})
    assert dispatch.mutate(update, known()).patch == ()
    json.loads(encode("u", dispatch.validate(update, known())))


@settings(RELAXED, max_examples=examples(200))
@given(
    mostly(metadata | some(generateName=st.just("p-"), labels=notes(*THEIRS))),
    mostly(
        some(
            parallelism=mostly(st.integers(-1, 9)),
            completions=mostly(st.integers(-1, 9)),
            suspend=mostly(st.booleans()),
            template=mostly(pods),
        )
    ),
)
def test_any_job_shaped_json_gets_an_answer(head: Any, job_spec: Any) -> None:
    job, run = {"metadata": head, "spec": job_spec}, {"metadata": head, "spec": job_spec}
    for kind, body in (("Job", job), ("CronJob", {"metadata": head, "spec": {"jobTemplate": run}})):
        first = dispatch.mutate(of(kind, body), known())
        if first.allowed:
            stored = patched(body, first)
            assert dispatch.mutate(of(kind, stored), known()).patch == ()
        dispatch.validate(of(kind, body), known())


debug_containers = mostly(st.lists(some(name=mostly(st.just("d")), env=mostly(st.just([{"name": "A"}]))), max_size=3))


@settings(RELAXED, max_examples=examples(100))
@given(debug_containers, debug_containers)
@example([{"name": {}}], [{"name": []}])
def test_any_ephemeral_containers_get_an_answer(old: Any, new: Any) -> None:
    spec = {"deviceBypass": "Reject"}
    policy = TenancyPolicy.stored({"metadata": {"name": "no-bypass"}, "spec": spec})
    update = of(
        "Pod",
        {"spec": {"ephemeralContainers": new}},
        operation="UPDATE",
        subresource="ephemeralcontainers",
        old={"spec": {"ephemeralContainers": old}},
    )
    known = facts(policies=(policy,))
    for judge in (dispatch.mutate, dispatch.validate):
        json.loads(encode("u", judge(update, known)))


@given(
    junk, st.sampled_from(["ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "Queue", "Flavor", "TenancyPolicy"])
)
def test_any_object_of_any_kind_gets_an_answer(value: Any, kind: str) -> None:
    for body in ({"spec": value}, {"spec": {"devices": value}}, {"spec": {"spec": value}}):
        verdict = dispatch.validate(of(kind, body), known())
        assert verdict.allowed or verdict.message
        try:
            needs(of(kind, body))
        except MalformedError as error:
            assert str(error)  # noqa: PT017


@settings(RELAXED)
@given(junk)
def test_any_envelope_is_a_review_or_an_error(value: Any) -> None:
    for body in (value, {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": value}):
        try:
            decode(json.dumps(body).encode())
        except BadReviewError as refused:
            assert refused.status == 400  # noqa: PT017
