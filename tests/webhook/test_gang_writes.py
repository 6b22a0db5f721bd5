"""Of a Gang users write the hold and nothing else: by RBAC of its status, by the policy `fairlead-gangs` of the rest.

Each write is tried by two users of namespace ml: mallory has the role `edit`, omar may do everything there (`*`). From what they write
the next leader would otherwise read evictions, held places, ages and queues.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api import names
from fairlead.api.gang import GangSpec
from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import GANGS, raw
from fairlead.sandbox.cluster import Cluster
from tests.support.tenants import EDITOR, OWNER, with_tenants

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOLD_ONLY = r"write spec\.hold only"
Json = dict[str, Any]

PLACE = {"node": "h1", "devices": [f"{names.DRIVER}/h1/gpu-{number}" for number in range(8)]}
EVICTED: Json = {
    "at": "2026-01-01T00:00:00Z", "since": "1970-01-01T00:00:00Z", "what": "moved", "why": "x", "until": "2099-01-01T00:00:00Z",
    "held": "2099-01-01T00:00:00Z", "place": [PLACE], "owner": "any", "maker": "Job",
}  # fmt: skip
ABSURD: Json = {
    "size": 100_000,
    "queue": "vision",
    "topology": "required:kubernetes.io/hostname",
    "models": "any",
    "align": "gpu.fairlead.dev/rail",
    "subgroupSize": 99_999,
    "subgroupTopology": "required:kubernetes.io/hostname",
    "minRuntime": "99999d",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with with_tenants(tmp_path_factory.mktemp("c")) as made:
        yield made


@contextlib.asynccontextmanager
async def gang(cluster: Cluster, name: str) -> AsyncIterator[None]:
    """As the controller made it, with a status; untouched at the end."""
    async with cluster.client(names.CONTROLLER_USER) as controller:
        await controller.create(raw(GANGS), {"metadata": {"name": name, "namespace": "ml"}, "spec": {"size": 2}})
        status = {"status": {"phase": "Waiting", "queue": "ml"}}
        before = await controller.patch(raw(GANGS), name, status, namespace="ml", subresource="status")
        yield
        after = await controller.get(raw(GANGS), name, "ml")
        assert (after["spec"], after["status"]) == (before["spec"], before["status"])
        assert after["metadata"].get("annotations") == before["metadata"].get("annotations")
        await controller.delete(raw(GANGS), name, "ml")


async def test_the_absurd_values_are_of_all_fields_but_the_hold() -> None:
    """The policy names the fields: a new one is to be named there, too."""
    assert ABSURD.keys() | {"hold"} == {field.alias or name for name, field in GangSpec.model_fields.items()}


@pytest.mark.parametrize("user", [EDITOR, OWNER])
@pytest.mark.parametrize("field", sorted(ABSURD))
async def test_no_user_writes_what_the_pods_of_a_gang_ask_for(cluster: Cluster, user: str, field: str) -> None:
    async with gang(cluster, "g"), cluster.client(user) as tenant:
        fields = {"spec": {field: ABSURD[field]}}
        for kind, body in (
            (Patch.MERGE, fields),
            (Patch.APPLY, {"metadata": {"name": "g"}, "spec": {"size": 2} | fields["spec"]}),
            (Patch.JSON, [{"op": "add", "path": f"/spec/{field}", "value": ABSURD[field]}]),
        ):
            more: Json = {"field_manager": user, "force": True} if kind is Patch.APPLY else {}
            with pytest.raises(errors.Forbidden, match=HOLD_ONLY):
                await tenant.patch(raw(GANGS), "g", body, namespace="ml", kind=kind, **more)
        stored = await tenant.get(raw(GANGS), "g", "ml")
        with pytest.raises(errors.Forbidden, match=HOLD_ONLY):
            await tenant.replace(raw(GANGS), {**stored, "spec": {**stored["spec"], field: ABSURD[field]}})
        made = {"metadata": {"name": "new", "namespace": "ml"}, "spec": {"size": 1, field: ABSURD[field]}}
        with pytest.raises(errors.Forbidden, match=HOLD_ONLY):
            await tenant.create(raw(GANGS), made)


@pytest.mark.parametrize("user", [EDITOR, OWNER])
async def test_no_user_writes_the_status_of_a_gang(cluster: Cluster, user: str) -> None:
    async with gang(cluster, "g"), cluster.client(user) as tenant:
        absurd: tuple[Json, ...] = ({"lastEviction": EVICTED}, {"queue": "vision"}, {"conditions": []})
        for status in absurd:
            for kind in (Patch.MERGE, Patch.APPLY):
                more: Json = {"field_manager": user, "force": True} if kind is Patch.APPLY else {}
                body = {"metadata": {"name": "g"}, "status": status}
                with pytest.raises(errors.Forbidden):
                    await tenant.patch(raw(GANGS), "g", body, namespace="ml", subresource="status", kind=kind, **more)
        stored = await tenant.get(raw(GANGS), "g", "ml")
        with pytest.raises(errors.Forbidden):
            await tenant.replace(raw(GANGS), {**stored, "status": {"lastEviction": EVICTED}}, subresource="status")
        await tenant.patch(raw(GANGS), "g", {"status": {"lastEviction": EVICTED}}, namespace="ml")  # passed over


@pytest.mark.parametrize("user", [EDITOR, OWNER])
async def test_a_gang_that_a_user_makes_has_no_status(cluster: Cluster, user: str) -> None:
    async with cluster.client(user) as tenant, cluster.client(names.CONTROLLER_USER) as controller:
        body = {"metadata": {"name": "own", "namespace": "ml"}, "spec": {"size": 1, "hold": {"reason": "mine"}}}
        made = await tenant.create(raw(GANGS), {**body, "status": {"lastEviction": EVICTED, "queue": "vision"}})
        assert "status" not in made
        assert made["spec"]["hold"]["reason"] == "mine"
        await controller.delete(raw(GANGS), "own", "ml")


@pytest.mark.parametrize("user", [EDITOR, OWNER])
@pytest.mark.parametrize("where", ["annotations", "labels"])
async def test_no_user_writes_or_takes_away_keys_of_fairlead_on_a_gang(cluster: Cluster, user: str, where: str) -> None:
    async with cluster.client(names.CONTROLLER_USER) as controller, cluster.client(user) as tenant:
        meta: Json = {"name": "kept", "namespace": "ml", where: {"fairlead.dev/later": "x"}}
        await controller.create(raw(GANGS), {"metadata": meta, "spec": {"size": 1}})
        for keys in ({"fairlead.dev/evicted": "y"}, {"fairlead.dev/later": "y"}, {"fairlead.dev/later": None}):
            with pytest.raises(errors.Forbidden, match="only the Fairlead controller writes labels and annotations"):
                await tenant.patch(raw(GANGS), "kept", {"metadata": {where: keys}}, namespace="ml")
            new = {"metadata": {"name": "new", "namespace": "ml", where: {"fairlead.dev/evicted": "y"}}}
            with pytest.raises(errors.Forbidden, match="only the Fairlead controller writes labels and annotations"):
                await tenant.create(raw(GANGS), {**new, "spec": {"size": 1}})
        await tenant.patch(raw(GANGS), "kept", {"metadata": {where: {"mine": "yes"}}}, namespace="ml")
        await controller.delete(raw(GANGS), "kept", "ml")


async def test_a_hold_is_written_as_before_and_a_dry_run_gets_no_more(cluster: Cluster) -> None:
    async with gang(cluster, "g"), cluster.client(EDITOR) as tenant:
        assert isinstance(tenant, Client)
        hold = {"spec": {"hold": {"by": EDITOR, "reason": "mine"}}}
        assert (await tenant.patch(raw(GANGS), "g", hold, namespace="ml"))["spec"]["hold"]["by"] == EDITOR
        await tenant.patch(raw(GANGS), "g", {"spec": {"hold": None}}, namespace="ml")
