"""JobSet 0.12.0: a JobSet's Jobs. Kubernetes' Job controller makes their pods.

Each Job is named <jobset>-<replicatedJob>-<index>; labels and annotations with name, index and group lie on Job and pod template.
DNS host names are on by default (subdomain: the JobSet's name), and each Job is Indexed by the JobSet's own webhook. With
`startupPolicy: InOrder` only the first replicatedJob's Jobs are made before they are ready; `dependsOn` likewise.
Exclusive placement is patched into the pods by JobSet's pod webhook, and not shaped here (docs/examples.md says what becomes of it).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, child, sha1

PREFIX = "jobset.sigs.k8s.io"


def jobs(jobset: Obj, lookup: Lookup) -> Iterator[Obj]:
    spec, name, namespace = jobset["spec"], jobset["metadata"]["name"], jobset["metadata"]["namespace"]
    replicated = spec["replicatedJobs"]
    total = sum(each.get("replicas", 1) for each in replicated)
    subdomain = (spec.get("network") or {}).get("subdomain") or name
    before = 0
    for each in replicated if _all_at_once(spec) else replicated[:1]:
        replicas = each.get("replicas", 1)
        for index in range(replicas):
            job_name = f"{name}-{each['name']}-{index}"
            said = {
                f"{PREFIX}/jobset-name": name,
                f"{PREFIX}/jobset-uid": jobset["metadata"].get("uid", ""),
                f"{PREFIX}/replicatedjob-name": each["name"],
                f"{PREFIX}/replicatedjob-replicas": str(replicas),
                f"{PREFIX}/global-replicas": str(total),
                f"{PREFIX}/restart-attempt": "0",
                f"{PREFIX}/job-index": str(index),
                f"{PREFIX}/job-global-index": str(before + index),
                f"{PREFIX}/job-key": sha1(f"{namespace}/{job_name}"),
                f"{PREFIX}/group-name": each.get("groupName", "default"),
                f"{PREFIX}/group-replicas": str(total),
                f"{PREFIX}/job-group-index": str(before + index),
            }
            yield _job(jobset, each["template"], job_name, said, subdomain)
        before += replicas


def _all_at_once(spec: Obj) -> bool:
    ordered = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    return not ordered and not any(each.get("dependsOn") for each in spec["replicatedJobs"])


def _job(jobset: Obj, template: Obj, name: str, said: dict[str, str], subdomain: str) -> Obj:
    metadata, spec = template.get("metadata") or {}, copy.deepcopy(template["spec"])
    spec.setdefault("completionMode", "Indexed")
    spec["suspend"] = bool(jobset["spec"].get("suspend"))
    pod: Any = spec["template"]
    pod["spec"].setdefault("restartPolicy", "OnFailure")
    pod["spec"]["subdomain"] = subdomain
    pods = pod.setdefault("metadata", {})
    pods["labels"] = {**(pods.get("labels") or {}), **said}
    pods["annotations"] = {**(pods.get("annotations") or {}), **said}
    labels, annotations = ({**(metadata.get(key) or {}), **said} for key in ("labels", "annotations"))
    return child(jobset, "batch/v1", "Job", name, spec, labels=labels, annotations=annotations)


JOBSET = Controller(
    name="JobSet",
    version="0.12.0",
    sources=(
        "https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/controllers/jobset_controller.go",
        "https://jobset.sigs.k8s.io/docs/concepts/",
    ),
    account="system:serviceaccount:jobset-system:jobset-controller-manager",
    kinds=(Kind(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", plural="jobsets"),),
    shapes={"JobSet": jobs},
)
