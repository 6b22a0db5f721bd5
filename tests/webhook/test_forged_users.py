"""A tenant forges whose a workload is, through what Kubernetes' controllers copy: on an apiserver, as they create it."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from fairlead.api import names
from fairlead.kube.client import Client
from fairlead.kube.resources import JOBS, PODS, raw
from tests.webhook.test_app import pod

Json = dict[str, Any]
Cluster = Any  # conftest.py's
CRON_JOBS = dataclasses.replace(JOBS, plural="cronjobs", kind="CronJob")
FORGED = {names.USER: "bob"}
MASTERS = ("system:masters", "system:authenticated")


def template(**more: Any) -> Json:
    return {"spec": {**pod(**more)["spec"], "restartPolicy": "Never"}}


def child(owner: Json, kind: str, **more: Any) -> Json:
    """Metadata as a controller writes them."""
    reference = {
        "apiVersion": "batch/v1",
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {"name": f"{owner['metadata']['name']}-1", "namespace": "ml", "ownerReferences": [reference], **more}


async def test_a_cronjob_that_is_created_without_claims_bears_no_other_users_name_later(cluster: Cluster) -> None:
    spec: Json = {
        "schedule": "0 * * * *",
        "jobTemplate": {"metadata": {"annotations": FORGED}, "spec": {"template": template()}},
    }
    async with (
        cluster.webhook(),
        Client.connect(cluster.kubeconfig("system:serviceaccount:kube-system:cronjob-controller", MASTERS)) as crons,
        Client.connect(cluster.kubeconfig("system:serviceaccount:kube-system:job-controller", MASTERS)) as jobs,
    ):
        role = {"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": ["*"]}
        await cluster.allow(role)
        made = await cluster.alice.create(raw(CRON_JOBS), {"metadata": {"name": "c", "namespace": "ml"}, "spec": spec})
        assert made["spec"]["jobTemplate"]["metadata"]["annotations"] == FORGED, "the webhook did not see it"
        patch = {"spec": {"jobTemplate": {"spec": {"template": template(limits={names.LEGACY_GPU: 1})}}}}
        made = await cluster.alice.patch(raw(CRON_JOBS), "c", patch, namespace="ml")
        of_job = copy.deepcopy(made["spec"]["jobTemplate"])
        annotations = of_job["metadata"]["annotations"]
        job = await crons.create(
            raw(JOBS), {"metadata": child(made, "CronJob", annotations=annotations), "spec": of_job["spec"]}
        )
        of_pod = copy.deepcopy(job["spec"]["template"])
        metadata = child(job, "Job", annotations=of_pod["metadata"].get("annotations") or {})
        stored = await jobs.create(raw(PODS), {"metadata": metadata, "spec": of_pod["spec"]})
    assert stored["spec"]["schedulingGates"] == [{"name": names.ADMISSION_GATE}]
    assert stored["metadata"]["annotations"][names.USER] == "alice"
