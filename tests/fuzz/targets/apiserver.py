"""What an apiserver answers, as the client's calls take it: objects, lists, watches, a Lease. Only an ApiError comes out of them."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec

from fairlead.controller.watch.optional import version_of
from fairlead.kube import credentials, errors, resources
from fairlead.kube.client import Client
from fairlead.kube.exchange import Answer
from fairlead.kube.informer import Informer
from fairlead.kube.lease import LeaderLease
from fairlead.kube.resources import Resource
from fairlead.kube.wire import Streamed
from tests.fuzz.json_mutations import json_mutations
from tests.fuzz.mutations import byte_mutations, mixed
from tests.fuzz.samples import full
from tests.fuzz.target import Target
from tests.fuzz.targets.http import pieces

T = TypeVar("T")

KINDS: dict[str, Resource[Any]] = {
    each.kind: each
    for each in (
        resources.PODS, resources.NODES, resources.NAMESPACES, resources.RESOURCE_QUOTAS, resources.TYPED_JOBS, resources.PRIORITY_CLASSES,
        resources.LEASES, resources.RESOURCE_SLICES, resources.RESOURCE_CLAIMS, resources.RESOURCE_CLAIM_TEMPLATES, resources.DEVICE_CLASSES,
        resources.DEVICE_TAINT_RULES, resources.QUEUES, resources.FLAVORS, resources.TENANCY_POLICIES, resources.GANGS,
        resources.POD_DISRUPTION_BUDGETS, resources.SECRETS,
    )
}  # fmt: skip
_KIND = re.compile(rb'"kind":"(\w+)"')
WORDS = (
    "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "Expired", "metadata", "resourceVersion", "continue", "items", "object", "type", "kind",
    "Status", "code", "details", "retryAfterSeconds", *KINDS,
)  # fmt: skip


def kind_of(data: bytes) -> Resource[Any]:
    """The resource that the document names, else one by its checksum."""
    found = _KIND.search(data)
    known = KINDS.get(found[1].decode()) if found else None
    return known or list(KINDS.values())[zlib.crc32(data) % len(KINDS)]


def sample(of: Resource[Any]) -> dict[str, Any]:
    document: dict[str, Any] = {"spec": {"a": [1]}, "status": {}} if of.type is dict else full(of.type)
    metadata = {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7"}
    if of.type is not dict:
        metadata = document["metadata"] | metadata
    return document | {"kind": of.kind, "apiVersion": of.api_version, "metadata": metadata}


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("it waits for something")


class FakeWire:
    """Answers every request with the same bytes."""

    def __init__(self, user_agent: str) -> None:
        self.status = 200
        self.body = b""

    async def request(self, method: str, path: str, **_: Any) -> Answer:
        return Answer(self.status, self.body, None)

    async def open(self, path: str, **_: Any) -> Streamed:
        return _Stream(self.status, self.body)

    async def close(self) -> None:
        pass


class _Stream:
    def __init__(self, status: int, body: bytes) -> None:
        self.status, self._body = status, body
        self.retry_after: str | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in pieces(self._body):
            yield piece

    async def read(self) -> bytes:
        return self._body

    async def aclose(self) -> None:
        pass


async def _no_sleep(_: float) -> None:
    pass


def client_of(wire: FakeWire) -> Client:
    access = credentials.Credentials(url="http://apiserver", wire=lambda _: wire)
    client = Client(access, clock=lambda: 0.0, sleep=_no_sleep, random=Random(1))
    drive(client.__aenter__())
    return client


def _encoded(documents: list[Any]) -> tuple[bytes, ...]:
    return tuple(msgspec.json.encode(each) for each in documents)


def objects(scratch: Path) -> Target:
    """One object, or a page of objects, or a Status: get, list with and without `each`, and an informer's copy."""
    wire = FakeWire("")
    client = client_of(wire)
    documents: list[Any] = [sample(of) for of in KINDS.values()]
    documents += [
        {"kind": f"{of.kind}List", "metadata": {"resourceVersion": "9"}, "items": [sample(of)]} for of in KINDS.values()
    ]
    documents += [sample(of) | {"spec": {}, "status": {}} for of in KINDS.values()]
    documents.append(
        {
            "kind": "Status",
            "status": "Failure",
            "reason": "Expired",
            "code": 410,
            "details": {"retryAfterSeconds": 1, "causes": [{}]},
        }
    )

    def attempt(call: Coroutine[Any, Any, Any]) -> None:
        try:
            drive(call)
        except errors.ApiError:
            pass

    def run(data: bytes) -> None:
        of = kind_of(data.replace(b'List"', b'"', 1))
        wire.status, wire.body = 200, data
        attempt(client.get(of, "a", "b" if of.namespaced else None))
        if b'"continue"' not in data:  # a server that always promises more is heard forever
            informer: Informer[Any] = Informer(client, of, clock=lambda: 0.0)
            attempt(informer.relist())
            attempt(client.list(of, each=lambda _: None))
        wire.status = 409 if b"Conflict" in data else 422
        attempt(client.get(of, "a", "b" if of.namespaced else None))

    return Target(
        name="apiserver-objects",
        run=run,
        seeds=_encoded(documents),
        mutate=mixed((5, json_mutations(WORDS)), (1, byte_mutations())),
        traced=("/fairlead/kube/",),
        bytes_max=6_000,
    )


def watches(scratch: Path) -> Target:
    """The lines of a watch, in pieces."""
    wire = FakeWire("")
    client = client_of(wire)
    seeds = []
    for of in KINDS.values():
        lines = [{"type": kind, "object": sample(of)} for kind in ("ADDED", "MODIFIED", "DELETED")]
        lines.append(
            {
                "type": "BOOKMARK",
                "object": {
                    "kind": of.kind,
                    "metadata": {"resourceVersion": "8", "creationTimestamp": None},
                    "spec": {"containers": None},
                },
            }
        )
        seeds.append(b"".join(msgspec.json.encode(line) + b"\n" for line in lines[2:]))
        seeds += [msgspec.json.encode(line) + b"\n" for line in lines[:1]]
    seeds.append(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n')
    of_json = json_mutations(WORDS)

    def one_line(random: Random, known: bytes, other: bytes) -> bytes:
        """One of the lines is changed as JSON."""
        found = known.split(b"\n")
        at = random.randrange(len(found))
        found[at] = of_json(random, found[at], other.partition(b"\n")[0])
        return b"\n".join(found) + (b"\n" if random.randrange(8) else b"")

    async def follow(of: Resource[Any]) -> None:
        async for _ in client.watch(of, resource_version="1"):
            pass

    def run(data: bytes) -> None:
        of = kind_of(data)
        wire.body = data
        drive(follow(of))
        informer: Informer[Any] = Informer(client, of, clock=lambda: 0.0)
        drive(informer._follow())

    return Target(
        name="apiserver-watches",
        run=run,
        seeds=tuple(seeds),
        mutate=mixed((4, one_line), (1, byte_mutations(most=2))),
        allowed=(errors.ApiError,),
        traced=("/fairlead/kube/",),
        bytes_max=6_000,
    )


def lease(scratch: Path) -> Target:
    """The Lease of an election: which process holds it, for how long, and whether it is taken."""
    wire = FakeWire("")
    client = client_of(wire)
    documents = [
        sample(resources.LEASES) | {"spec": spec}
        for spec in (
            {},
            {
                "holderIdentity": "other",
                "leaseDurationSeconds": 15,
                "renewTime": "2026-11-21T01:50:31.123456Z",
                "acquireTime": "2026-11-21T01:50:31.123456Z",
                "leaseTransitions": 3,
            },
            {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": None},
            {"holderIdentity": "me", "leaseDurationSeconds": 15},
        )
    ]

    def run(data: bytes) -> None:
        now = [0.0]
        wire.status, wire.body = 200, data
        candidate = LeaderLease(
            client,
            name="a",
            namespace="b",
            identity="me",
            clock=lambda: now[0],
            wall=lambda: 1e9,
            sleep=_no_sleep,
            random=Random(1),
        )
        drive(candidate._attempt())
        now[0] += 1_000_000.0
        drive(candidate._attempt())
        drive(candidate._still_ours())
        assert isinstance(candidate.holder, str)

    words = ("holderIdentity", "leaseDurationSeconds", "leaseTransitions", "me", "other")
    return Target(
        name="lease", run=run, seeds=_encoded(documents), mutate=json_mutations(words), traced=("/fairlead/kube/",)
    )


def discovery(scratch: Path) -> Target:
    """What is served, and in which versions."""
    wire = FakeWire("")
    client = client_of(wire)
    documents: list[Any] = [
        {
            "kind": "APIGroup",
            "name": "resource.k8s.io",
            "versions": [{"groupVersion": "resource.k8s.io/v1", "version": "v1"}],
        },
        {"kind": "APIResourceList", "versions": [{"version": "v1"}], "resources": [{"name": "devicetaintrules"}]},
    ]

    def run(data: bytes) -> None:
        wire.body = data
        assert drive(version_of(client, "resource.k8s.io", ("v1", "v1beta1"), "devicetaintrules")) in {
            "v1",
            "v1beta1",
            None,
        }

    return Target(
        name="discovery", run=run, seeds=_encoded(documents), mutate=json_mutations(("v1", "versions", "version", "1")),
        allowed=(errors.ApiError,), traced=("/watch/optional.py", "/kube/nulls.py"),
    )  # fmt: skip
