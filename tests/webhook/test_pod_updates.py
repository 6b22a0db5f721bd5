"""What an update of a pod may change is decided by the policy `fairlead-controller-pods`, on a cluster where no webhook runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api import foreign, names, trust
from fairlead.api.intent import KEYS
from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import CLUSTER_ROLES, PODS, raw
from fairlead.sandbox.cluster import Cluster
from tests.support.tenants import GROUP, NAMESPACE, OWNER, with_tenants
from tests.webhook.test_fences import BINDINGS

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
GATE = {"name": names.ADMISSION_GATE}
ALLOCATOR = "alma"
NUMBERS = count()
ANNOTATIONS = {names.GANG: "llm", names.GANG_SIZE: "8"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """With `alma`, who besides the tenant's rights may allocate claims in all namespaces."""
    async with with_tenants(tmp_path_factory.mktemp("c")) as made, made.client() as admin:
        rules = [
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["update"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]},
        ]
        await admin.create(CLUSTER_ROLES, {"metadata": {"name": "allocator"}, "rules": rules})
        role = {"kind": "ClusterRole", "name": "allocator", "apiGroup": GROUP}
        subjects = [{"kind": "User", "name": ALLOCATOR, "apiGroup": GROUP}]
        await admin.create(BINDINGS, {"metadata": {"name": ALLOCATOR}, "subjects": subjects, "roleRef": role})
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def admin(cluster: Cluster) -> AsyncIterator[Client]:
    async with cluster.client() as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def tenant(cluster: Cluster) -> AsyncIterator[Client]:
    async with cluster.client(OWNER) as client:
        yield client


async def stored(
    admin: Client,
    *,
    gated: bool = True,
    reviewed: bool = True,
    annotations: Json | None = None,
    labels: Json | None = None,
    **spec: Any,
) -> str:
    """The name of a new pod, as the webhook leaves one behind."""
    metadata = {
        "name": f"p{next(NUMBERS)}",
        "namespace": NAMESPACE,
        "labels": {**(labels or {}), **({names.REVIEWED: names.REVIEWED_POD} if reviewed else {})},
        "annotations": ANNOTATIONS if annotations is None else annotations,
    }
    gates = {"schedulingGates": [GATE, {"name": "example.com/other"}]} if gated else {}
    body = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "busybox"}], **gates, **spec}}
    made = await admin.create(raw(PODS), body)
    return str(made["metadata"]["name"])


async def write(
    client: Client, name: str, *, annotations: Json | None = None, labels: Json | None = None, subresource: str = ""
) -> Json:
    metadata = {"annotations": annotations or {}, "labels": labels or {}}
    return await client.patch(
        raw(PODS), name, {"metadata": metadata}, namespace=NAMESPACE, kind=Patch.MERGE, subresource=subresource
    )


async def ungate(client: Client, name: str, *more: Json) -> Json:
    operations = [*more, {"op": "remove", "path": "/spec/schedulingGates/0"}]
    return await client.patch(raw(PODS), name, operations, namespace=NAMESPACE, kind=Patch.JSON)


@pytest.mark.parametrize("reviewed", [True, False])
async def test_only_who_may_allocate_takes_the_gate_off(
    cluster: Cluster, admin: Client, tenant: Client, reviewed: bool
) -> None:
    said = r"spec.schedulingGates: only the Fairlead controller removes fairlead.dev/admission, .*, not 'omar'; delete the pod"
    name = await stored(admin, reviewed=reviewed)
    with pytest.raises(errors.Forbidden, match=said):
        await ungate(tenant, name)
    config = cluster.client(names.CONTROLLER_USER)
    async with cluster.client(ALLOCATOR) as allocator, config as controller:
        for client in (allocator, controller, admin):
            left = await ungate(client, await stored(admin, reviewed=reviewed))
            assert [each["name"] for each in left["spec"]["schedulingGates"]] == ["example.com/other"]
    other = [{"op": "remove", "path": "/spec/schedulingGates/1"}]
    await tenant.patch(raw(PODS), name, other, namespace=NAMESPACE, kind=Patch.JSON)


async def test_a_pod_that_goes_may_lose_its_gate(admin: Client, tenant: Client) -> None:
    name = await stored(admin)
    finalizer: Json = {"metadata": {"finalizers": ["example.com/kept"]}}
    await admin.patch(raw(PODS), name, finalizer, namespace=NAMESPACE, kind=Patch.MERGE)
    await tenant.delete(PODS, name, NAMESPACE)
    await ungate(tenant, name)
    await admin.patch(raw(PODS), name, {"metadata": {"finalizers": None}}, namespace=NAMESPACE, kind=Patch.MERGE)


FIXED = [
    *((kind, key) for key in (*KEYS, names.SIZE_FROM) for kind in ("annotations",)),
    *(("annotations", key) for key in trust.written_by("controller", on="Pod", form="annotation", guard=trust.WEBHOOK_MARKS)),
    ("annotations", names.CLAIM_SOURCES), ("annotations", names.USER), ("annotations", "fairlead.dev/nothing"),
    ("labels", names.QUEUE), ("labels", names.SUBGROUP), ("labels", names.REVIEWED),
]  # fmt: skip


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(("where", "key"), FIXED)
async def test_our_keys_are_fixed_and_what_is_refused_says_which_and_what_to_do(
    admin: Client, tenant: Client, where: str, key: str, gated: bool
) -> None:
    was = {**(ANNOTATIONS if where == "annotations" else {}), key: "a"}
    name = await stored(admin, gated=gated, reviewed=key != names.REVIEWED, **{where: was})
    plain = await stored(admin, gated=gated, reviewed=False, annotations={})
    for pod, value, what in ((name, "b", "become 'b', it is 'a'"), (name, None, "be removed, it is 'a'"), (plain, "b", "become 'b', it is not there")):  # fmt: skip
        for subresource in ("", "status"):
            with pytest.raises(errors.Forbidden) as caught:
                await write(tenant, pod, subresource=subresource, **{where: {key: value}})
            assert f"metadata.{where}[{key}]: cannot {what} since the pod was admitted; only" in str(caught.value)
            assert "leave it as it is, or delete the pod and create it again" in str(caught.value)


async def test_a_value_that_no_message_can_hold_is_refused_all_the_same(admin: Client, tenant: Client) -> None:
    with pytest.raises(errors.Forbidden, match="written by the Fairlead controller only"):
        await write(tenant, await stored(admin), annotations={names.GANG: "a\nb"})


async def test_other_keys_and_what_does_not_change_are_let_pass(admin: Client, tenant: Client) -> None:
    for reviewed in (True, False):
        name = await stored(admin, reviewed=reviewed)
        for subresource in ("", "status"):
            body = {"example.com/a": subresource or "x", **ANNOTATIONS}
            await write(tenant, name, annotations=body, labels={"app": "x"}, subresource=subresource)


@pytest.mark.parametrize(
    ("key", "before", "after", "said"),
    [
        (names.CHECKPOINTED_AT, None, "2026-11-21T01:50:31Z", ""),
        (names.CHECKPOINTED_AT, "2026-11-21T01:50:31Z", "2026-11-21T02:50:31.5+01:00", ""),
        (names.CHECKPOINTED_AT, "2026-11-21T01:50:31Z", None, ""),
        (names.CHECKPOINTED_AT, "soon", "soon", ""),
        (names.CHECKPOINTED_AT, None, "1795225831", "checkpointed-at]: '1795225831' is no time: write RFC 3339"),
        (names.CHECKPOINTED_AT, None, "2026-11-21T01:50:31", "'2026-11-21T01:50:31' is no time: write RFC 3339"),
        (names.MOVABLE, "true", "false", ""),
        (names.MOVABLE, "true", None, ""),
        (names.MOVABLE, "nonsense", "nonsense", ""),
        (names.MOVABLE, None, "True", "movable]: 'True' is neither 'true' nor 'false'"),
        (names.EXPECTED_END, None, "2026-11-21T01:50:31Z", ""),
        (names.KEEP_IDLE, None, "true", ""),
        (names.TRACEPARENT, None, "x", ""),
        (names.CLAIM_NAMES, "named", "generated", ""),
    ],
)
@pytest.mark.parametrize("gated", [True, False])
async def test_what_a_workload_writes_while_it_runs_may_change_and_must_be_readable(
    admin: Client, tenant: Client, key: str, before: str | None, after: str | None, said: str, gated: bool
) -> None:
    name = await stored(admin, gated=gated, annotations={**ANNOTATIONS, **({} if before is None else {key: before})})
    change = {key: after, "example.com/seen": "x"}
    if said:
        with pytest.raises(errors.Forbidden) as caught:
            await write(tenant, name, annotations=change)
        assert said in str(caught.value)
    else:
        await write(tenant, name, annotations=change)


async def test_with_a_status_they_are_fixed_and_idleness_too_where_no_webhook_would_be_asked(
    admin: Client, tenant: Client
) -> None:
    with pytest.raises(errors.Forbidden, match="keep-idle]: cannot become 'true', it is not there"):
        await write(tenant, await stored(admin), annotations={names.KEEP_IDLE: "true"}, subresource="status")
    with pytest.raises(errors.Forbidden, match="keep-idle]: cannot become 'true', it is not there"):
        await write(tenant, await stored(admin, reviewed=False), annotations={names.KEEP_IDLE: "true"})


THEIRS: Json = {
    "annotations": {names.KUEUE_SIZE: "2"},
    "labels": {names.KUEUE_GROUP_LABEL: "group", names.KUEUE_QUEUE: "user-queue"},
}


@pytest.mark.parametrize("reviewed", [True, False])
@pytest.mark.parametrize(
    ("where", "key", "was"),
    [
        ("labels", names.KUEUE_GROUP_LABEL, "group"),
        ("labels", names.KUEUE_QUEUE, "user-queue"),
        ("annotations", names.KUEUE_SIZE, "2"),
        ("annotations", names.VOLCANO_SIZE, None),
        ("annotations", names.VOLCANO_QUEUE, None),
    ],
)
@pytest.mark.parametrize("subresource", ["", "status"])
async def test_other_systems_words_are_fixed_at_the_gate(
    admin: Client, tenant: Client, where: str, key: str, was: str | None, subresource: str, reviewed: bool
) -> None:
    gated = await stored(admin, reviewed=reviewed, **THEIRS)
    for value in ("9", None) if was else ("9",):
        what = f"become {value!r}" if value else "be removed"
        it_is = repr(was) if was else "not there"
        with pytest.raises(errors.Forbidden) as caught:
            await write(tenant, gated, subresource=subresource, **{where: {key: value}})
        said = f"metadata.{where}[{key}]: cannot {what}, it is {it_is} since the pod was admitted, and names its gang"
        assert said in str(caught.value)
        running = await stored(admin, gated=False, reviewed=reviewed, **THEIRS)
        await write(tenant, running, subresource=subresource, **{where: {key: value}})


@pytest.mark.parametrize(
    ("known", "allowed"),
    [
        ({"annotations": {}}, True),
        ({"annotations": ANNOTATIONS}, True),
        ({"annotations": {}, "labels": {names.KUEUE_GROUP_LABEL: "g"}}, True),
        ({"annotations": {}, "labels": {names.COSCHEDULING_GROUP_LABEL: "g"}}, False),
        ({"annotations": {names.VOLCANO_GROUP: "g"}}, False),
    ],
    ids=str,
)
async def test_volcanos_controller_adds_its_group_where_that_does_not_rename_the_gang(
    admin: Client, tenant: Client, known: Json, allowed: bool
) -> None:
    name, group = await stored(admin, schedulerName="volcano", **known), {names.VOLCANO_GROUP: "podgroup-1"}
    if allowed:
        await write(tenant, name, annotations=group)
    else:
        with pytest.raises(errors.Forbidden, match="group-name]: cannot become 'podgroup-1'"):
            await write(tenant, name, annotations=group)


@pytest.mark.parametrize("key", [names.CLAIM_SOURCES, names.USER])
async def test_the_controller_does_not_change_whose_a_pod_is_nor_where_its_claims_come_from(
    cluster: Cluster, admin: Client, key: str
) -> None:
    async with cluster.client(names.CONTROLLER_USER) as controller:
        for subresource in ("", "status"):
            with pytest.raises(errors.Forbidden, match=rf"may not change annotations .*nor .*{key}"):
                await write(controller, await stored(admin), annotations={key: "x"}, subresource=subresource)
            await write(controller, await stored(admin), annotations={names.EVICT_AT: "x"}, subresource=subresource)


async def test_every_word_of_another_system_that_the_programs_read_is_fixed(admin: Client, tenant: Client) -> None:
    name = await stored(admin)
    for word in foreign.METADATA_KEYS:
        at: dict[str, Json] = {"annotations": {}, "labels": {}, word.kind: {word.key: "x"}}
        if word.key != names.VOLCANO_GROUP:
            with pytest.raises(errors.Forbidden, match="names its gang, queue or topology until its gate goes"):
                await write(tenant, name, annotations=at["annotations"], labels=at["labels"])
