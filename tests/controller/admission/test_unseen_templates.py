"""Pods whose templates are gone: those of a namespace with thousands are read a few at a time, and others' at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from fairlead.controller.commit.claim_reconciler import READS_MAX, UNSEEN_TEMPLATE_S, ClaimReconciler
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.kube import errors
from tests.support.parts import shared


class Gone:
    """An apiserver without any template, which counts who asks."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def get(self, resource: object, name: str, namespace: str) -> object:
        self.asked[namespace] += 1
        raise errors.NotFound(f"{name} is gone", status=404)


def gang(namespace: str, number: int) -> Gang:
    member = SimpleNamespace(
        legacy_templates=(), unseen_templates=(f"t-{number}",), pod=SimpleNamespace(finished=False)
    )
    return cast(Gang, SimpleNamespace(namespace=namespace, unmanaged=(), members=(member,)))


async def test_a_namespace_whose_templates_are_gone_has_few_of_them_read() -> None:
    client = Gone()
    caches: Any = SimpleNamespace(
        pods=SimpleNamespace(subscribe=lambda _: lambda: None),
        claims=SimpleNamespace(subscribe=lambda _: lambda: None),
        pods_of=None,
        templates=SimpleNamespace(note=None),
    )
    parts = shared(client=client, caches=caches)
    reconciler, tasks = ClaimReconciler(parts), parts.tasks
    for number in range(5_000):
        again = reconciler.reconcile(gang("red", number), 100.0, busy=True)
        assert again == 100.0 + UNSEEN_TEMPLATE_S
    reconciler.reconcile(gang("blue", 1), 100.0, busy=True)
    await asyncio.sleep(0)
    assert await tasks.finish(5.0)
    assert client.asked == {"red": READS_MAX, "blue": 1}
    for number in range(5_000):
        reconciler.reconcile(gang("red", number), 100.0 + UNSEEN_TEMPLATE_S, busy=True)
    assert await tasks.finish(5.0)
    assert client.asked["red"] == 2 * READS_MAX
