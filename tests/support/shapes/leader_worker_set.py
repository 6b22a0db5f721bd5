"""LeaderWorkerSet 0.10.0: a StatefulSet of leaders, and for each leader pod a StatefulSet of its workers.

Kubernetes' StatefulSet controller makes the pods; LeaderWorkerSet's own webhook then writes the group's index and key on them, which
`leaders` and `workers` have written in their templates already where all pods of it share them, and `labelled` writes elsewhere.
With `startupPolicy: LeaderReady` workers are made only when their leader is ready, and with the annotation
`leaderworkerset.sigs.k8s.io/exclusive-topology` only when it has a node: so not here, where leaders have neither when they are made.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, child, sha1, with_env

PREFIX = "leaderworkerset.sigs.k8s.io"
REVISION = "5d4f6b7c8d"
NAME, GROUP, WORKER, KEY = f"{PREFIX}/name", f"{PREFIX}/group-index", f"{PREFIX}/worker-index", f"{PREFIX}/group-key"


def leaders(lws: Obj, lookup: Lookup) -> Iterator[Obj]:
    name, both = lws["metadata"]["name"], lws["spec"]["leaderWorkerTemplate"]
    replicas = lws["spec"].get("replicas", 1)
    template = copy.deepcopy(both.get("leaderTemplate") or both["workerTemplate"])
    revision = {f"{PREFIX}/template-revision-hash": REVISION}
    labels = {WORKER: "0", NAME: name, **revision}
    template["metadata"] = _merged(template, labels, _annotations(lws))
    spec = {
        "serviceName": name,
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {NAME: name, WORKER: "0"}},
        "template": template,
    }
    annotations = {**_of(lws, "annotations"), f"{PREFIX}/replicas": str(replicas)}
    of_set = {**_of(lws, "labels"), NAME: name, **revision}
    yield child(lws, "apps/v1", "StatefulSet", name, spec, labels=of_set, annotations=annotations)


def workers(leader: Obj, lookup: Lookup) -> Iterator[Obj]:
    """Of a pod: its group's StatefulSet, where the pod is a leader of a LeaderWorkerSet."""
    labels, namespace = _of(leader, "labels"), leader["metadata"]["namespace"]
    if labels.get(WORKER) != "0" or NAME not in labels:
        return
    lws = lookup("LeaderWorkerSet", namespace, labels[NAME])
    size = lws["spec"]["leaderWorkerTemplate"].get("size", 1)
    unscheduled = f"{PREFIX}/exclusive-topology" in _of(lws, "annotations") and not leader["spec"].get("nodeName")
    if size < 2 or lws["spec"].get("startupPolicy") == "LeaderReady" or unscheduled:
        return
    group = {key: labels[key] for key in (GROUP, NAME, KEY)}
    template = copy.deepcopy(lws["spec"]["leaderWorkerTemplate"]["workerTemplate"])
    leads = {f"{PREFIX}/leader-name": leader["metadata"]["name"]}
    revision = {f"{PREFIX}/template-revision-hash": REVISION}
    template["metadata"] = _merged(template, {**group, **revision}, {**_annotations(lws), **leads})
    spec = {
        "serviceName": lws["metadata"]["name"],
        "replicas": size - 1,
        "podManagementPolicy": "Parallel",
        "ordinals": {"start": 1},
        "selector": {"matchLabels": group},
        "template": template,
    }
    of_set = {**_of(lws, "labels"), **group, **revision}
    name = leader["metadata"]["name"]
    yield child(leader, "apps/v1", "StatefulSet", name, spec, labels=of_set, annotations=_of(lws, "annotations"))


def labelled(pod: Obj) -> None:
    """What LeaderWorkerSet's pod webhook adds to a pod of one of its StatefulSets; other pods stay as they are."""
    metadata, labels = pod["metadata"], pod["metadata"].get("labels") or {}
    if NAME not in labels:
        return
    number = metadata["name"].rpartition("-")[2]
    if labels.get(WORKER) == "0":
        labels[GROUP] = number
        labels[KEY] = sha1(f"{metadata['namespace']}/{metadata['name']}")
    else:
        labels[WORKER] = number
    host = f"{labels[NAME]}-{labels[GROUP]}.{pod['spec'].get('subdomain', '')}.{metadata['namespace']}"
    size = metadata["annotations"][f"{PREFIX}/size"]
    for container in pod["spec"]["containers"]:
        with_env(container, LWS_LEADER_ADDRESS=host, LWS_GROUP_SIZE=size, LWS_WORKER_INDEX=labels[WORKER])


def _annotations(lws: Obj) -> dict[str, str]:
    size = str(lws["spec"]["leaderWorkerTemplate"].get("size", 1))
    exclusive = _of(lws, "annotations").get(f"{PREFIX}/exclusive-topology")
    return {f"{PREFIX}/size": size} | ({f"{PREFIX}/exclusive-topology": exclusive} if exclusive else {})


def _merged(template: Obj, labels: dict[str, str], annotations: dict[str, str]) -> Obj:
    return {
        "labels": {**_of(template, "labels"), **labels},
        "annotations": {**_of(template, "annotations"), **annotations},
    }


def _of(obj: Obj, key: str) -> dict[str, str]:
    return dict((obj.get("metadata") or {}).get(key) or {})


LEADER_WORKER_SET = Controller(
    name="LeaderWorkerSet",
    version="0.10.0",
    sources=(
        "https://github.com/kubernetes-sigs/lws/blob/v0.10.0/pkg/controllers/leaderworkerset_controller.go",
        "https://github.com/kubernetes-sigs/lws/blob/v0.10.0/pkg/controllers/pod_controller.go",
        "https://github.com/kubernetes-sigs/lws/blob/v0.10.0/pkg/webhooks/pod_webhook.go",
    ),
    account="system:serviceaccount:lws-system:lws-controller-manager",
    kinds=(Kind(api_version="leaderworkerset.x-k8s.io/v1", kind="LeaderWorkerSet", plural="leaderworkersets"),),
    shapes={"LeaderWorkerSet": leaders, "Pod": workers},
)
