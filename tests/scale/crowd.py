"""Ten thousand objects of one tenant, chosen with the controller's source at hand, put into a sandbox's store: `ATTACKS`, by name.

They are put there without the apiserver's admission: what is measured is what they cost the controller, not how fast this sandbox
takes them in. An attack that goes on changes objects `RATE` times a second, as a tenant could.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.protocol import objects
from benchmarks.protocol.cluster import World
from fairlead.api import names
from fairlead.sandbox.apiserver.assembly import put
from tests.support.engine.hard_claims import too_many, uncolourable

COUNT = 10_000
RATE = 20.0
RED = "red"
PUT_AT_ONCE = 100

Json = dict[str, Any]
Attack = Callable[["Crowd"], Awaitable[None]]
KINDS = {
    "pods": ("", "v1"),
    "resourceclaims": ("resource.k8s.io", "v1"),
    "resourceclaimtemplates": ("resource.k8s.io", "v1"),
    "gangs": ("fairlead.dev", "v1alpha1"),
    "queues": ("fairlead.dev", "v1alpha1"),
    "namespaces": ("", "v1"),
    "poddisruptionbudgets": ("policy", "v1"),
}
TOO_WIDE = objects.claim_spec(2 * objects.GPUS)  # no node has as many
NUMBERS = "[" + ",".join(map(str, range(60))) + "]"


def pod(
    name: str, namespace: str, *, notes: Json | None = None, labels: Json | None = None, claim: str = "", **spec: Any
) -> Json:
    """As the webhook leaves it, of the claim of its name or of another."""
    gates = [{"name": names.ADMISSION_GATE}]
    body = objects.pod_spec(claim=claim or name) | {"schedulingGates": gates} | spec
    meta = {"name": name, "namespace": namespace, "annotations": notes or {}, "labels": labels or {}}
    return {"metadata": meta, "spec": body}


class Crowd:
    def __init__(self, world: World) -> None:
        self._state = world.server.state
        self._changing: list[Callable[[int], None]] = []

    def put(self, plural: str, body: Json) -> None:
        if plural == "pods":
            body = {**body, "status": {"phase": "Pending"}}
        put(self._state, *KINDS[plural], plural, body)

    def remove(self, plural: str, name: str, namespace: str = RED) -> None:
        storage = self._storage(plural)
        stored = self._state.store.get(storage, (namespace, name))
        if stored is not None:
            self._state.store.remove(storage, (namespace, name), expect=stored.revision)

    def change(self, plural: str, name: str, number: int, field: Callable[[Json], Json]) -> None:
        storage = self._storage(plural)
        stored = self._state.store.get(storage, (RED, name))
        assert stored is not None
        body = copy.deepcopy(stored.obj)
        field(body)["changed"] = str(number)
        self._state.store.put(storage, (RED, name), body, expect=stored.revision)

    def _storage(self, plural: str) -> str:
        kind = self._state.registry.find(*KINDS[plural], plural)
        assert kind is not None
        return kind.storage

    async def many(self, make: Callable[[int], None]) -> None:
        for number in range(COUNT):
            make(number)
            if number % PUT_AT_ONCE == 0:
                await asyncio.sleep(0)  # the apiserver answers from the same loop

    def goes_on(self, change: Callable[[int], None]) -> None:
        self._changing.append(change)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        async def change() -> None:
            for number in itertools.count():
                for each in self._changing:
                    each(number)
                await asyncio.sleep(1 / RATE)

        task = asyncio.create_task(change())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _annotations(body: Json) -> Json:
    found: Json = body["metadata"].setdefault("annotations", {})
    return found


async def _unlike(crowd: Crowd) -> None:
    """Of no two pods are claims or needs alike: alternatives, constraints, loops in selectors, terms, long annotations, unknown queues.

    They come and go.
    """

    def make(number: int) -> None:
        name = f"u-{number}"
        notes = {f"x{each}": "y" * 1_000 for each in range(8)} | (
            {names.QUEUE: f"unknown-{number}"} if number % 9 == 0 else {}
        )
        spec: Json = {"tolerations": [{"key": f"k{number}", "operator": "Exists"}]}
        if number % 7 == 0:
            term = {
                "topologyKey": "kubernetes.io/hostname",
                "namespaceSelector": {},
                "labelSelector": {"matchLabels": {"l": f"l{number}"}},
            }
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        crowd.put("resourceclaims", {"metadata": {"name": name, "namespace": RED}, "spec": _hard(number)})
        crowd.put("pods", pod(name, RED, notes=notes, labels={"l": f"l{number - 1}"}, **spec))

    def again(number: int) -> None:
        name = f"u-{number * 37 % COUNT}"
        crowd.remove("pods", name)
        crowd.put("pods", pod(name, RED, tolerations=[{"key": f"again-{number}", "operator": "Exists"}]))

    await crowd.many(make)
    crowd.goes_on(again)


def _hard(number: int) -> Json:
    if number % 4 == 0:
        return too_many()
    if number % 4 == 1:
        return uncolourable()
    exactly: Json = {"deviceClassName": names.GPU_CLASS, "allocationMode": "ExactCount", "count": 1}
    if number % 4 == 2:
        text = f'device.driver == "{names.DRIVER}" && device.attributes["{names.DRIVER}"].uuid == "{number}" || {NUMBERS}.exists(x, {NUMBERS}.exists(y, x * y == -{number}))'
        return {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {**exactly, "selectors": [{"cel": {"expression": text}}]}}]
            }
        }
    requests = [{"name": f"r{each}", "exactly": dict(exactly)} for each in range(32)]
    constraints = [{"matchAttribute": f"{names.DRIVER}/productName"}, {"distinctAttribute": f"{names.DRIVER}/uuid"}]
    return {"devices": {"requests": requests, "constraints": constraints}}


async def _named(crowd: Crowd) -> None:
    """All pods name one template or one claim, which change over and over, as does a PodDisruptionBudget of their namespace."""

    def template() -> None:
        crowd.put("resourceclaimtemplates", {"metadata": {"name": "one", "namespace": RED}, "spec": {"spec": TOO_WIDE}})

    def make(number: int) -> None:
        body = pod(f"n-{number}", RED, claim="one")
        if number % 2:
            body["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
        crowd.put("pods", body)

    def change(number: int) -> None:
        crowd.change("resourceclaims", "one", number, _annotations)
        crowd.change("poddisruptionbudgets", "one", number, lambda body: body["spec"]["selector"]["matchLabels"])
        if number % 2:
            crowd.change("resourceclaimtemplates", "one", number, _annotations)
        else:
            crowd.remove("resourceclaimtemplates", "one")
            template()

    template()
    crowd.put("resourceclaims", {"metadata": {"name": "one", "namespace": RED}, "spec": TOO_WIDE})
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}}
    crowd.put("poddisruptionbudgets", {"metadata": {"name": "one", "namespace": RED}, "spec": budget})
    await crowd.many(make)
    crowd.goes_on(change)


async def _odd(crowd: Crowd) -> None:
    """Gangs of odd shapes, one of half of all pods; as many Gangs, claims and templates without pods; members come and go."""

    def make(number: int) -> None:
        name = f"o-{number}"
        gang, size = ("huge", COUNT // 2) if number % 2 else (f"g-{number // 6}", 3 + (number % 22 == 0))
        notes = {names.GANG: gang, names.GANG_SIZE: str(size), names.TOPOLOGY: "required:rack"}
        crowd.put("resourceclaims", {"metadata": {"name": name, "namespace": RED}, "spec": TOO_WIDE})
        crowd.put("pods", pod(name, RED, notes=notes))
        meta = {"name": f"held-{number}", "namespace": RED, "annotations": {"x": "y" * 2_000}}
        crowd.put("gangs", {"metadata": meta, "spec": {"size": 1, "hold": {"reason": "y" * 100}}})
        crowd.put(
            "resourceclaimtemplates",
            {"metadata": {"name": f"t-{number}", "namespace": RED}, "spec": {"spec": TOO_WIDE}},
        )

    def change(number: int) -> None:
        crowd.change("pods", f"o-{number % 50}", number, _annotations)
        crowd.change("gangs", f"held-{number % COUNT}", number, _annotations)

    await crowd.many(make)
    crowd.goes_on(change)


ATTACKS: dict[str, Attack] = {"unlike": _unlike, "named": _named, "odd": _odd}
