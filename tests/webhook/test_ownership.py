"""Two queue systems and one pod: refused where the namespace says whose it is, told where it does not."""

from typing import Any

import pytest

from fairlead.api import names, owners
from tests.support.webhook import admitted, facts

Json = dict[str, Any]
KUEUES_GATE: Json = {"schedulingGates": [{"name": names.KUEUE_GATE}]}


def of(system: str, **known: Any) -> Any:
    return facts(namespace_labels={names.QUEUE_SYSTEM: system}, **known)


def pod(labels: Json | None = None, **spec: Any) -> Json:
    body: Json = {
        "containers": [{"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "h100"}],
    }
    metadata = {"name": "w-0", "namespace": "ml", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body | spec}


def job(labels: Json | None = None, pods: Json | None = None, **spec: Any) -> Json:
    metadata = {"name": "train", "namespace": "ml", "labels": labels or {}}
    template = {"spec": pod(**(pods or {}))["spec"]}
    body = {"parallelism": 2, "completions": 2, "template": template} | spec
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


def test_in_a_namespace_of_fairleads_a_pod_that_kueue_holds_is_refused_with_what_to_do():
    _, verdict = admitted(pod({names.KUEUE_QUEUE: "q"}, **KUEUES_GATE), of("fairlead"))
    assert verdict.message == (
        "Pod ml/w-0: Namespace ml is Fairlead's (label fairlead.dev/queue-system), but Kueue lays claim to the pods, too "
        "(spec.schedulingGates has kueue.x-k8s.io/admission): take the namespace out of Kueue's managedJobsNamespaceSelector and "
        "Kueue's labels off the pods, and create them again"
    )
    _, verdict = admitted(pod({names.KUEUE_QUEUE: "q"}), of("fairlead"))
    assert verdict.allowed, "Kueue's word for a queue alone is no claim"


@pytest.mark.parametrize(
    ("scheduler", "title"), [("volcano", "Volcano"), ("kai-scheduler", "KAI-Scheduler"), ("yunikorn", "YuniKorn")]
)
@pytest.mark.parametrize("owner", ["fairlead", "kueue"])
def test_a_scheduler_of_another_system_is_refused_there(scheduler: str, title: str, owner: str):
    _, verdict = admitted(pod(schedulerName=scheduler), of(owner))
    assert not verdict.allowed
    assert f"but {title} lays claim to the pods" in verdict.message
    assert verdict.message.endswith("remove schedulerName, and create them again")
    _, verdict = admitted(job(pods={"schedulerName": scheduler}), of(owner))
    assert verdict.message.startswith(f"Job ml/train: spec.template: Namespace ml is {owners.SYSTEMS[owner]}'s ")


def test_a_namespace_of_a_scheduler_takes_no_pod_for_fairleads_devices_and_any_other():
    _, verdict = admitted(pod(), of("volcano"))
    assert verdict.message == (
        "Pod ml/w-0: Namespace ml is Volcano's (label fairlead.dev/queue-system), which cannot allocate Fairlead's devices: use a "
        "namespace of Fairlead's for these pods, or write fairlead.dev/queue-system: fairlead"
    )
    plain = pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "nic"}], schedulerName="volcano")
    stored, verdict = admitted(plain, of("volcano"))
    assert verdict.allowed
    assert stored["spec"]["schedulerName"] == "volcano"


def test_in_a_namespace_of_kueues_its_pods_wait_for_both_and_a_warning_says_who_decides_what():
    stored, verdict = admitted(pod({names.KUEUE_QUEUE: "q"}, **KUEUES_GATE), of("kueue"))
    said = "Namespace ml is Kueue's (label fairlead.dev/queue-system): Kueue decides by its quota when the pods start, Fairlead where"
    assert said in verdict.warnings
    assert {gate["name"] for gate in stored["spec"]["schedulingGates"]} == {names.KUEUE_GATE, names.ADMISSION_GATE}
    stored, verdict = admitted(job({names.KUEUE_QUEUE: "q"}, suspend=True), of("kueue"))
    assert stored["spec"]["suspend"] is True, "Kueue lifts it, whether its API was seen or not"


def test_a_job_that_is_suspended_for_kueue_is_refused_where_kueue_runs_and_the_namespace_is_fairleads():
    kueue = {"served_apis": frozenset({names.KUEUE_API})}
    _, verdict = admitted(job({names.KUEUE_QUEUE: "q"}, suspend=True), of("fairlead", **kueue))
    assert verdict.message == (
        "Job ml/train: spec.suspend: true is for Kueue to set to false (kueue.x-k8s.io/queue-name), but Namespace ml is Fairlead's (label "
        "fairlead.dev/queue-system): name the queue by fairlead.dev/queue and remove the field, or write "
        "fairlead.dev/queue-system: kueue on the namespace"
    )
    stored, verdict = admitted(job({names.KUEUE_QUEUE: "q"}, suspend=True), of("fairlead"))
    assert verdict.allowed
    assert stored["spec"]["suspend"] is False


@pytest.mark.parametrize(
    ("body", "shown_by", "system"),
    [
        (pod(**KUEUES_GATE), "spec.schedulingGates has kueue.x-k8s.io/admission", "kueue"),
        (pod({names.KUEUE_MANAGED: "true"}), "metadata.labels[kueue.x-k8s.io/managed] is true", "kueue"),
        (pod(schedulerName="kai-scheduler"), "spec.schedulerName is kai-scheduler", "kai"),
    ],
    ids=["gate", "label", "scheduler"],
)
def test_where_the_namespace_does_not_say_it_is_asked_to(body: Json, shown_by: str, system: str):
    _, verdict = admitted(body, facts())
    assert verdict.allowed
    (said,) = (text for text in verdict.warnings if "lays claim" in text)
    assert f"({shown_by}), and nothing says whose Namespace ml is" in said
    assert said.endswith(f"write its label fairlead.dev/queue-system: fairlead or {system}")


def test_a_value_that_is_no_system_is_named_with_those_that_are():
    _, verdict = admitted(pod(), of("Kueue"))
    assert verdict.message == (
        "Pod ml/w-0: Namespace ml: metadata.labels[fairlead.dev/queue-system]: 'Kueue' is no queue system: write one of fairlead, "
        "kueue, volcano, kai, yunikorn"
    )
