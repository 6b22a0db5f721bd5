"""KubeRay 1.7.0: a RayCluster's head and workers, and a RayJob's cluster.

Pods are made at once, named <cluster>-head-… and <cluster>-<group>-worker-…; the first container's command becomes `ray start` with
rayStartParams. Ray learns of GPUs by `--num-gpus`, which KubeRay takes from the container's limits, where rayStartParams have none:
a claim says nothing to it. A RayJob's cluster is named <job>-<five letters>. Left out: the workers' init container, which waits
for the head, and the Job that submits the program when the cluster is ready; neither holds a device.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, child, ending, pod


def cluster(ray_job: Obj, lookup: Lookup) -> Iterator[Obj]:
    metadata = ray_job["metadata"]
    labels = {
        **(metadata.get("labels") or {}),
        "ray.io/originated-from-cr-name": metadata["name"],
        "ray.io/originated-from-crd": "RayJob",
        "ray.io/job-submission-mode": ray_job["spec"].get("submissionMode", "K8sJobMode"),
    }
    name, annotations = f"{metadata['name']}-{ending(metadata['name'])}", metadata.get("annotations")
    spec = ray_job["spec"]["rayClusterSpec"]
    yield child(ray_job, "ray.io/v1", "RayCluster", name, spec, labels=labels, annotations=annotations)


def pods(ray_cluster: Obj, lookup: Lookup) -> Iterator[Obj]:
    name, spec = ray_cluster["metadata"]["name"], ray_cluster["spec"]
    yield _pod(ray_cluster, spec["headGroupSpec"], "head", "headgroup", f"{name[:50]}-head-")
    for group in spec.get("workerGroupSpecs") or ():
        begins = f"{name}-{group['groupName']}"[:50]
        for _ in range(group.get("replicas", 1) * group.get("numOfHosts", 1)):
            yield _pod(ray_cluster, group, "worker", group["groupName"], f"{begins}-worker-")


def _pod(ray_cluster: Obj, group: Obj, role: str, group_name: str, begins: str) -> Obj:
    name = ray_cluster["metadata"]["name"]
    labels = {
        "ray.io/is-ray-node": "yes",
        "ray.io/cluster": name,
        "ray.io/node-type": role,
        "ray.io/group": group_name,
        "ray.io/identifier": f"{name}-{role}",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    made = pod(ray_cluster, group["template"], generate_name=begins.lower(), labels=labels)
    container = made["spec"]["containers"][0]
    parameters = dict(group.get("rayStartParams") or {})
    limits = (container.get("resources") or {}).get("limits") or {}
    for key in sorted(limits):
        if key.endswith("gpu") and str(limits[key]) != "0":
            parameters.setdefault("num-gpus", str(limits[key]))
    said = " ".join(f"--{key}={value}" for key, value in sorted(parameters.items()))
    start = "ray start --head" if role == "head" else f"ray start --address={name}-head-svc:6379"
    container |= {"command": ["/bin/bash", "-c", "--"], "args": [f"ulimit -n 65536; {start} {said} --block"]}
    return made


KUBERAY = Controller(
    name="KubeRay (RayCluster, RayJob)",
    version="1.7.0",
    sources=(
        "https://github.com/ray-project/kuberay/blob/v1.7.0/ray-operator/controllers/ray/common/pod.go",
        "https://github.com/ray-project/kuberay/blob/v1.7.0/ray-operator/controllers/ray/rayjob_controller.go",
    ),
    account="system:serviceaccount:ray-system:kuberay-operator",
    kinds=(
        Kind(api_version="ray.io/v1", kind="RayCluster", plural="rayclusters"),
        Kind(api_version="ray.io/v1", kind="RayJob", plural="rayjobs"),
    ),
    shapes={"RayJob": cluster, "RayCluster": pods},
)
