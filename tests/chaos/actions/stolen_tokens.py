"""Tokens of our programs in other hands, at every moment, also while apiservers come and go: what they may not write is a violation once written."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from fairlead.api import names
from fairlead.kube.resources import CONFIG_MAPS, PODS, RESOURCE_SLICES, SECRETS, Resource, raw
from tests.chaos.actions.attacks import refused
from tests.chaos.actions.registry import action
from tests.chaos.world import TEAMS, World

Json = dict[str, Any]
ACCOUNT = "kubernetes.io/service-account.name"


@action(1)
def steal_token(world: World, random: Random) -> str | None:
    """Of the webhook, the controller or a driver."""
    who, what, resource, namespace, body = random.choice(list(_writes(world, random)))

    async def write() -> None:
        async with world.cluster.client(who, node=min(world.cluster.nodes)) as thief:
            await thief.create(resource, body, namespace=namespace)

    refused(world, f"{what} with the token of {who}", write)
    return f"who has the token of {who} writes {what}"


def _writes(world: World, random: Random) -> Iterator[tuple[str, str, Resource[Any], str | None, Json]]:
    """Whose token, what, and where to: of a driver on the first node, of which every other is another's."""
    name = f"stolen-{random.getrandbits(32):08x}"
    token = {
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "annotations": {ACCOUNT: names.CONTROLLER_ACCOUNT}},
    }
    pod = {
        "metadata": {"name": name},
        "spec": {"serviceAccountName": names.CONTROLLER_ACCOUNT, "containers": [{"name": "c", "image": "busybox"}]},
    }
    for who in (names.WEBHOOK_USER, names.CONTROLLER_USER, names.DRIVER_USER):
        yield who, "a token of the controller", raw(SECRETS), names.NAMESPACE, token
        yield who, "a ConfigMap", raw(CONFIG_MAPS), names.NAMESPACE, {"metadata": {"name": name}}
        yield who, "a pod", raw(PODS), names.NAMESPACE, pod
        yield who, "a pod of a team", raw(PODS), random.choice(TEAMS), pod
    first, *others = sorted(world.cluster.nodes)
    other = random.choice(others)
    for node, pool, driver in (
        (first, other, names.DRIVER),
        (other, other, names.DRIVER),
        (first, first, "other.example.com"),
    ):
        spec: Json = {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": pool, "generation": 2**53, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        }
        body = {"metadata": {"name": name}, "spec": spec}
        what = f"a slice of {driver} in pool {pool} of node {node}"
        yield names.DRIVER_USER, what, raw(RESOURCE_SLICES), None, body
