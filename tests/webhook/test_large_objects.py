"""Objects of tenants that are as large as the apiserver takes them: judged in little time, or refused with the reason.

Times are of this process's CPU, and the bounds generous; what must not grow is bounded by count in any case: patch and message.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review import size
from fairlead.webhook.review.envelope import encode
from fairlead.webhook.serve.limits import Limits
from tests.support import cpu
from tests.support.webhook import facts, review
from tests.webhook.test_floods import Site, serving
from tests.webhook.test_server import envelope

Json = dict[str, Any]
BOUND_S = 0.15
"""Three times what a review may take: other work shares the machine."""
N = 30_000
GPU: Json = {"limits": {names.LEGACY_GPU: 1}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def policy(name: str, **spec: Any) -> TenancyPolicy:
    return TenancyPolicy.read({"metadata": {"name": name}, "spec": spec})


POLICIES = (
    policy("requests", resourceRequests="EqualLimits", mode="Warn"),
    policy("bypass", deviceBypass="Reject", mode="Enforce"),
    policy("tolerations", tolerations={"missing": "Default", "tolerations": [{"key": "gpu", "operator": "Exists"}]}),
    policy("legacy", legacyRequests="Reject", mode="Audit"),
)


def container(name: str = "c", **more: Any) -> Json:
    return {"name": name, "resources": GPU} | more


def template(metadata: Json | None = None, **spec: Any) -> Json:
    return {"metadata": metadata or {}, "spec": {"containers": [container()]} | spec}


def pod(metadata: Json | None = None, **spec: Any) -> Json:
    made = template(metadata, **spec)
    return {"kind": "Pod", "metadata": {"name": "p", "namespace": "ml", **made["metadata"]}, "spec": made["spec"]}


def workload(kind: str, **spec: Any) -> Json:
    return {"kind": kind, "metadata": {"name": "w", "namespace": "ml"}, "spec": spec}


def claim(**devices: Any) -> Json:
    return workload("ResourceClaim", devices=devices)


def terms(count: int, values: int) -> Json:
    expression = {"key": "nvidia.com/gpu.product", "operator": "In", "values": [f"v{i}" for i in range(values)]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}] * count}}}


def request(index: int, selectors: int = 0) -> Json:
    texts = [{"cel": {"expression": f"device.driver == 'x' && {index} < {i}"}} for i in range(selectors)]
    return {"name": f"r{index}", "exactly": {"deviceClassName": names.GPU_CLASS, "selectors": texts}}


def entries(count: int, template_name: str = "h100") -> list[Json]:
    return [{"name": f"r{i}", "resourceClaimTemplateName": template_name} for i in range(count)]


LARGE: dict[str, tuple[str, Callable[[int], Json]]] = {
    "containers": ("containers", lambda n: pod(containers=[container(f"c{i}") for i in range(n)])),
    "env": ("env", lambda n: pod(containers=[container(env=[{"name": f"e{i}"} for i in range(n)])])),
    "mounts": (
        "volumeMounts",
        lambda n: pod(containers=[container(volumeMounts=[{"mountPath": f"/nvidia/../{i}"} for i in range(n)])]),
    ),
    "volumes": ("volumes", lambda n: pod(volumes=[{"hostPath": {"path": f"/dev/../d/{i}"}} for i in range(n)])),
    "claims": ("resourceClaims", lambda n: pod(resourceClaims=entries(n))),
    "gates": ("schedulingGates", lambda n: pod(schedulingGates=[{"name": f"g{i}"} for i in range(n)])),
    "tolerations": ("tolerations", lambda n: pod(tolerations=[{"key": f"k{i}"} for i in range(n)])),
    "node selector": ("nodeSelector", lambda n: pod(nodeSelector={f"nvidia.com/gpu.{i}": "a" for i in range(n)})),
    "affinity terms": ("nodeSelectorTerms", lambda n: pod(affinity=terms(n, 1))),
    "annotations": ("annotations", lambda n: pod({"annotations": {f"a/{i}": "" for i in range(n)}})),
    "our annotations": (
        names.ANNOTATION_PREFIX,
        lambda n: pod({"annotations": {f"{names.ANNOTATION_PREFIX}{i}": "" for i in range(n)}}),
    ),
    "owners": ("ownerReferences", lambda n: pod({"ownerReferences": [{"kind": "Job"} for _ in range(n)]})),
    "limits": (
        "resources",
        lambda n: pod(containers=[{"resources": {"limits": {f"nvidia.com/mig-{i}g.10gb": 1 for i in range(n)}}}]),
    ),
    "Job": (
        "containers",
        lambda n: workload("Job", template=template(containers=[container(f"c{i}") for i in range(n)])),
    ),
    "JobSet": (
        "pod templates",
        lambda n: workload(
            "JobSet",
            replicatedJobs=[{"name": f"r{i}", "template": {"spec": {"template": template()}}} for i in range(n)],
        ),
    ),
    "RayCluster": (
        "pod templates",
        lambda n: workload(
            "RayCluster",
            headGroupSpec={"template": template()},
            workerGroupSpecs=[{"groupName": f"g{i}", "template": template()} for i in range(n)],
        ),
    ),
    "PyTorchJob": (
        "pod templates",
        lambda n: workload("PyTorchJob", pytorchReplicaSpecs={f"R{i}": {"template": template()} for i in range(n)}),
    ),
    "TrainJob": ("annotations", lambda n: workload("TrainJob", annotations={f"a/{i}": "" for i in range(n)})),
    "claim's requests": ("requests", lambda n: claim(requests=[request(i) for i in range(n)])),
    "claim's configurations": (
        "config",
        lambda n: claim(requests=[request(0)], config=[{"opaque": {"driver": names.DRIVER}} for _ in range(n)]),
    ),
    "claim's selectors": ("selectors", lambda n: claim(requests=[request(0, n)])),
}
"""By what is large: the field that the refusal names, and the object."""
CEL_IS_BOUNDED_ELSEWHERE = {"claim's selectors"}


def judged(object_: Json) -> Iterator[tuple[float, Any]]:
    """CPU time and verdict of each review of the object, with and without policies."""
    for handle in (dispatch.mutate, dispatch.validate):
        for governing in ((), POLICIES):
            asked, known = review(object_), facts(policies=governing)
            with cpu.measured() as spent:
                verdict = handle(asked, known)
                encode("u", verdict)
            yield spent.seconds, verdict


def test_what_all_containers_have_together_counts() -> None:
    half = size.MAXIMA["env"] // 2 + 1
    each = [container(f"c{number}", env=[{"name": f"e{i}"} for i in range(half)]) for number in range(2)]
    (fault,) = size.faults("pods", pod(containers=each))
    assert fault.startswith(
        f"spec.containers[].env: {2 * half} env in all, but at most {size.MAXIMA['env']} are allowed"
    )
    assert size.faults("pods", pod(containers=each[:1])) == []


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", LARGE)
def test_what_is_too_large_is_refused_with_field_number_and_maximum(case: str) -> None:
    field, made = LARGE[case]
    object_ = made(N)
    refused = 0
    for seconds, verdict in judged(object_):
        assert seconds < BOUND_S
        if verdict.cause == "unmanaged":
            continue  # claims are validated only
        refused += 1
        assert not verdict.allowed
        assert verdict.cause == "size"
        assert f"at most {size.MAXIMA[field]} are allowed in one object" in verdict.message
        assert len(encode("u", verdict)) < 2_000
    assert refused >= 2


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", sorted(LARGE.keys() - CEL_IS_BOUNDED_ELSEWHERE))
def test_what_is_as_large_as_allowed_is_judged_in_time(case: str) -> None:
    field, made = LARGE[case]
    object_ = made(size.MAXIMA[field] - 2)
    for seconds, verdict in judged(object_):
        assert verdict.cause != "size"
        assert seconds < BOUND_S
        assert len(verdict.message) < 120_000
        assert len(verdict.patch) < 8 * 1_000


async def test_the_user_is_told_that_an_object_is_too_large() -> None:
    async def ask(site: Site, body: bytes) -> Json:
        reader, writer = await site.connect()
        writer.write(
            b"POST /mutate HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        answer = await reader.read()
        writer.close()
        found: Json = json.loads(answer.partition(b"\r\n\r\n")[2])["response"]
        return found

    async with serving(Limits()) as site:
        for object_, said in (
            ({"spec": [{}] * 300_000}, "holds more than"),
            (LARGE["containers"][1](20_000), "20000 containers"),
        ):
            response = await ask(site, envelope(object_))
            assert response["allowed"] is False
            assert said in response["status"]["message"]
            assert response["uid"] == "u1"
