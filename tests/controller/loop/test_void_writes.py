"""Which claims a new leader writes to, so that what the last one may still send fails: on caches of a few objects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import convert

from fairlead.api import names
from fairlead.controller.commit.takeover import Takeover
from fairlead.kube import errors, resource
from fairlead.kube.objects import to_dict
from fairlead.kube.timing import Time
from tests.controller.gang_views import CLASS, NOW, OTHER_CLASS, claim, pod
from tests.support.protocol import caches


class Watched:
    def __init__(self, *objects: Any) -> None:
        self.objects = objects
        self.noted: list[str] = []

    def all(self) -> tuple[Any, ...]:
        return self.objects

    def note(self, found: resource.ResourceClaim) -> None:
        self.noted.append(found.metadata.name)


class Server:
    """Answers a patch with the claim as it is. `conflicts`: how often it says first that the claim changed."""

    def __init__(self, claims: Watched, *, conflicts: int = 0) -> None:
        self.claims: dict[str, resource.ResourceClaim] = {each.metadata.name: each for each in claims.all()}
        self.touched: list[str] = []
        self.conflicts = conflicts

    async def patch(self, kind: object, name: str, patch: dict[str, Any], **more: Any) -> resource.ResourceClaim:
        assert names.TAKEN_OVER in patch["metadata"]["annotations"]
        if self.conflicts:
            self.conflicts -= 1
            raise errors.Conflict("it changed", status=409)
        self.touched.append(name)
        return self.claims[name]

    async def get(self, kind: object, name: str, namespace: str) -> resource.ResourceClaim:
        return self.claims[name]


def held(name: str, owner: str, **more: Any) -> resource.ResourceClaim:
    """A claim that an admission has begun to write."""
    made: resource.ResourceClaim = claim(name, owner, finalizers=[names.CLAIM_FINALIZER], **more)
    return made


async def taken_over(server: Server, claims: Watched) -> None:
    pods = Watched(pod("waits", gang="g", size=1), pod("runs", gang="h", size=1, gated=False))

    async def nothing(seconds: float = 0.0) -> None: ...

    known: Any = caches(
        claims=claims,
        pods=pods,
        all=tuple,
        filled=nothing,
        tables=SimpleNamespace(classes={"gpu": CLASS, "nic": OTHER_CLASS}),
        drivers=(names.DRIVER,),
        shared_drivers=(),
        rules=SimpleNamespace(begin_term=lambda: None),
    )
    time = Time(clock=lambda: NOW, wall=lambda: NOW, sleep=nothing)
    await Takeover(server, known, time=time).run()  # type: ignore[arg-type]


async def test_claims_that_the_last_leader_may_still_allocate_or_take_back_are_written_to_and_no_others() -> None:
    others = to_dict(held("others", "waits"))
    others["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "nic"
    claims = Watched(
        held("allocated", "waits", node="n1", reserved=["waits"]),
        held("unallocated", "waits"),
        held("in-use", "runs", node="n1", reserved=["runs"]),
        claim("waiting", "waits"),
        convert(others, resource.ResourceClaim),
    )
    server = Server(claims)
    await taken_over(server, claims)
    assert server.touched == claims.noted == ["allocated", "unallocated"]


@pytest.mark.parametrize("conflicts", [1, 3])
async def test_a_claim_that_changes_meanwhile_is_written_to_again(conflicts: int) -> None:
    claims = Watched(held("allocated", "waits", node="n1", reserved=["waits"]))
    server = Server(claims, conflicts=conflicts)
    await taken_over(server, claims)
    assert server.touched == ["allocated"]
