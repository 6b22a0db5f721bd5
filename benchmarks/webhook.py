"""Reviews that the webhook answers per second on one core, and the latency of an answer: ten policies, TLS, 16 open connections.

The whole server in a process of its own, with its real informer cache (fed by a fake apiserver) and the ready policies of
manifests/policies. The load comes from this process, as an apiserver sends it: pods as a gang's Job creates them, each first to
/mutate, then, patched, to /validate; every fourth has a legacy limit. Answers are checked, not only counted.
Rates are per second of the server's CPU time, so that a busy machine does not blur them; latencies are of the wall clock, each
connection sending its next review when the last is answered, at most half of what one core can do, as the best of three runs.
Bars: 5,000 reviews/s on a core, p99 below 5 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import multiprocessing
import os
import ssl
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import uvloop
import yaml
from prometheus_client import CollectorRegistry

from benchmarks.measured import figure
from fairlead.api import names
from fairlead.kube.garbage import frozen_heap
from fairlead.kube.listing import Listing
from fairlead.webhook.app import COLLECTED
from fairlead.webhook.cache.informer_cache import InformerCache
from fairlead.webhook.certificates import authority
from fairlead.webhook.certificates.served import tls_context
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.offline import review_of, world_of
from fairlead.webhook.review.verdict import apply_patch
from fairlead.webhook.serve.metrics import Metrics
from fairlead.webhook.serve.server import Server

Json = dict[str, Any]
T = TypeVar("T")
CONNECTIONS = 16
REVIEWS = 12_000
RUNS = 3
RATE = 2_000
"""Reviews a second while latencies are measured."""
READY = Path(__file__).resolve().parent.parent / "manifests" / "policies"
POLICIES = 10
LABELS = {"kubernetes.io/metadata.name": "ml", "fairlead.dev/gpus": "true", "fairlead.dev/qos": "guaranteed"}
NAMESPACE = {"name": "ml", "labels": LABELS}


def figures() -> list[Json]:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    port, bundle = _answer(ours)
    try:
        rates = []
        _run(_load(port, bundle, 2_000, None))
        for _ in range(RUNS):
            before = _cpu(ours)
            _run(_load(port, bundle, REVIEWS, None))
            rates.append(REVIEWS / (_cpu(ours) - before))
        latencies = [sorted(_run(_load(port, bundle, REVIEWS // 2, RATE))) for _ in range(RUNS)]
    finally:
        ours.send("stop")
        server.join(10)
    p50 = min(found[len(found) // 2] for found in latencies)
    p99 = min(found[len(found) * 99 // 100] for found in latencies)
    return [
        figure("webhook/reviews", max(rates), "reviews/s/core", 5_000.0),
        figure("webhook/p50", p50 * 1e3, "ms"),
        figure("webhook/p99", p99 * 1e3, "ms", 5.0),
    ]


def _run(main: Coroutine[Any, Any, T]) -> T:
    """Runs main in uvloop, for server and load: in asyncio's own loop TLS takes longer than the server does, and would be measured."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _cpu(ours: Connection) -> float:
    ours.send("cpu")
    used: float = _answer(ours)
    return used


def _answer(ours: Connection) -> Any:
    if not ours.poll(60):
        raise TimeoutError("the server's process does not answer")
    return ours.recv()


# -- the server's process ------------------------------------------------------------------------------------------


def _serve(pipe: Connection) -> None:
    _run(_server(pipe))


async def _server(pipe: Connection) -> None:
    if len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    material = authority.new_material(("127.0.0.1",), dt.datetime.now(dt.UTC))
    client: Any = _Cluster()
    cache = InformerCache(client, drivers=(names.DRIVER,), controllers=frozenset({names.CONTROLLER_USER}))
    server = Server(cache.facts, Metrics(CollectorRegistry()), cached_facts=cache.cached_facts)
    watching = asyncio.create_task(cache.run())
    async with asyncio.timeout(30):
        await cache.synced()
    with frozen_heap(COLLECTED):
        async with server.serve("127.0.0.1", 0, tls_context(material)) as port:
            pipe.send((port, material.bundle))
            loop, done = asyncio.get_running_loop(), asyncio.Event()

            def on_command() -> None:
                if pipe.recv() == "stop":
                    done.set()
                else:
                    pipe.send(time.process_time())

            loop.add_reader(pipe.fileno(), on_command)
            await done.wait()
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


class _Cluster:
    """As much of a client as InformerCache needs: everything is listed once and never changes."""

    def __init__(self) -> None:
        files = sorted(READY.glob("*.yaml"))
        policies = [
            yaml.safe_load(path.read_text()) for path in files if path.stem not in {"kustomization", "claims-first"}
        ]
        assert len(policies) == POLICIES
        self.objects: dict[str, list[Json]] = {
            "tenancypolicies": policies,
            "namespaces": [{"metadata": NAMESPACE}],
            "deviceclasses": [_class(names.GPU_CLASS, "gpu"), _class(names.MIG_CLASS, "mig")],
            "resourceclaimtemplates": [_template()],
            "resourceslices": [_slice(index) for index in range(100)],
        }

    async def list(self, resource: Any, namespace: str | None = None, **_: Any) -> Listing[Any]:
        items = [
            {**found, "metadata": {"uid": f"{resource.plural}-{index}", "resourceVersion": "1", **found["metadata"]}}
            for index, found in enumerate(self.objects.get(resource.plural, []))
        ]
        return Listing(items=[msgspec.convert(item, resource.type) for item in items], resource_version="1")

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield None


def _class(name: str, type_: str) -> Json:
    text = f"device.driver == '{names.DRIVER}' && device.attributes['{names.DRIVER}'].type == '{type_}'"
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": text}}]}}


def _template() -> Json:
    exactly = {"deviceClassName": names.GPU_CLASS, "allocationMode": "ExactCount", "count": 8}
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    return {"metadata": {"name": "eight", "namespace": "ml"}, "spec": spec}


def _slice(node: int) -> Json:
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": f"GPU-{node}-{index}"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(8)
    ]
    name = f"node-{node}"
    spec = {"driver": names.DRIVER, "nodeName": name, "pool": {"name": name}, "devices": devices}
    return {"metadata": {"name": name}, "spec": spec}


# -- the load ------------------------------------------------------------------------------------------------------


def _pod(index: int) -> Json:
    """A pod as the Job controller makes one for PyTorch: about 3 kB of JSON."""
    legacy = index % 4 == 3
    container: Json = {
        "name": "worker",
        "image": "nvcr.io/nvidia/pytorch:26.08-py3",
        "command": ["torchrun", "--nnodes=8", "--nproc-per-node=8", "/workspace/train.py"],
        "env": [{"name": f"VARIABLE_{number}", "value": f"value-{number}"} for number in range(12)],
        "resources": {"limits": {"cpu": "96", "memory": "1Ti"}, "requests": {"cpu": "96", "memory": "1Ti"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    spec: Json = {
        "containers": [container],
        "restartPolicy": "Never",
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "dataset"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
        ],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        "serviceAccountName": "default",
    }
    if legacy:
        container["resources"]["limits"][names.LEGACY_GPU] = "8"
        container["resources"]["requests"][names.LEGACY_GPU] = "8"
    else:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "eight"}]
        container["resources"]["claims"] = [{"name": "gpu"}]
    metadata = {
        "name": f"train-{index}",
        "namespace": "ml",
        "labels": {"team": "vision", "batch.kubernetes.io/job-name": "train"},
        "annotations": {names.GANG: "train", names.GANG_SIZE: "8"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _request(path: str, pod: Json) -> bytes:
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "ml",
        "name": pod["metadata"]["name"],
        "userInfo": {
            "username": "system:serviceaccount:kube-system:job-controller",
            "groups": ["system:serviceaccounts", "system:authenticated"],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    body = json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()
    head = (
        f"POST {path}?timeout=5s HTTP/1.1\r\nHost: webhook\r\nUser-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\nAccept: application/json\r\nContent-Type: application/json\r\n\r\n"
    )
    return head.encode() + body


def _reviews() -> list[tuple[bytes, bytes]]:
    """Requests, and what an answer must hold: each pod to /mutate, then as patched to /validate."""
    cluster = _Cluster().objects
    kinds = {"tenancypolicies": "TenancyPolicy", "namespaces": "Namespace", "deviceclasses": "DeviceClass"}
    kinds |= {"resourceclaimtemplates": "ResourceClaimTemplate"}
    world = world_of({"kind": kind, **item} for plural, kind in kinds.items() for item in cluster[plural])
    found = []
    for index in range(64):
        pod = _pod(index)
        review = review_of(pod, "alice", frozenset())
        verdict = dispatch.mutate(review, world.facts(review))
        assert verdict.allowed, verdict.message
        found.append((_request("/mutate", pod), b'"allowed":true'))
        found.append((_request("/validate", apply_patch(pod, verdict.patch)), b'"allowed":true'))
    return found


async def _load(port: int, bundle: str, count: int, rate: int | None) -> list[float]:
    """Send so many reviews over CONNECTIONS, at a rate or as fast as they are answered; seconds that each took."""
    if len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    trust = ssl.create_default_context(cadata=bundle)
    reviews, taken = _reviews(), []
    numbers: Iterator[int] = iter(range(count))
    began = time.perf_counter()

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        for number in numbers:
            if rate is not None:
                await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            request, wanted = reviews[number % len(reviews)]
            sent = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            taken.append(time.perf_counter() - sent)
            assert head.startswith(b"HTTP/1.1 200"), head
            assert wanted in body, body
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return taken
