"""Each value of the table of trust, written by each attacker of docs/security.md, in each way that the API has: none is stored.

What is tried follows from the table: every row that has a guard and that users do not write, key by key, on an apiserver with manifests/base
and the running webhook. The writer that the table names is a control: some way stores the value for it, so that no try fails for its form.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api import names, trust
from fairlead.api.trust import Row
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    FLAVORS,
    GANGS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ROLE_BINDINGS,
    raw,
)  # fmt: skip
from tests.api.test_nulls import FLAVOR, GANG, QUEUE
from tests.support.kubernetes import of_this_run
from tests.support.trust_writes import Attempt, Target, ways
from tests.webhook.conftest import SERVICE_ACCOUNTS, Cluster, served
from tests.webhook.test_app import pod
from tests.webhook.test_fences import BINDINGS, slice_

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
ML = "ml"
CLAIM = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS}}]}}}
RESULT = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
LEASE = {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}


def target(resource: Any, name: str, base: Json, namespace: str | None = None) -> Target:
    return Target(resource=raw(resource), name=name, namespace=namespace, base=base)


TARGETS: dict[str, Target] = {
    "Pod": target(PODS, "p", pod(limits={names.LEGACY_GPU: 1}), ML),
    "Gang": target(GANGS, "g", {"spec": {"size": 1}}, ML),
    "Queue": target(QUEUES, "q", {"spec": {"namespaceSelector": {}}}),
    "Flavor": target(FLAVORS, "f", {"spec": {"deviceSelector": "true", "measure": "Devices"}}),
    "ResourceClaim": target(RESOURCE_CLAIMS, "c", CLAIM, ML),
    "ResourceSlice": target(RESOURCE_SLICES, slice_("n1")["metadata"]["name"], slice_("n1")),
    "Namespace": target(NAMESPACES, ML, {}),
    "Node": target(NODES, "n1", {}),
    "ConfigMap": target(CONFIG_MAPS, "fairlead-run-history", {}, names.NAMESPACE),
    "Lease": target(LEASES, "fairlead-controller", LEASE, names.NAMESPACE),
}
FREE = target(RESOURCE_CLAIMS, "free", CLAIM, ML)
VALUES: dict[tuple[str, str], Any] = {
    ("ResourceClaim", "status.allocation"): {"devices": {"results": [RESULT]}},
    ("ResourceClaim", "status.devices"): [{"driver": names.DRIVER, "pool": "n1", "device": "gpu-1", "data": {"a": 1}}],
    ("ResourceSlice", "spec"): [{"name": "gpu-0"}, {"name": "gpu-9"}],
    ("ConfigMap", "fairlead-run-history"): {"x": "y"},
    ("Lease", "spec.holderIdentity"): "x",
    ("Queue", "spec"): 9,
    ("Flavor", "spec"): "false",
    ("Node", "spec"): True,
    ("Gang", "spec.size"): 7,
    ("Gang", "spec.subgroupTopology"): "required:rack",
}
PATHS = {
    ("ConfigMap", "fairlead-run-history"): ("data",), ("Queue", "spec"): ("spec", "priority"), ("Flavor", "spec"): ("spec", "deviceSelector"),
    ("ResourceSlice", "spec"): ("spec", "devices"), ("Node", "spec"): ("spec", "unschedulable"),
}  # fmt: skip
ELSEWHERE = {
    ("Gang", "spec.hold"): "tests/webhook/test_holds.py, test_held_gangs.py",
    ("ResourceClaim", "status.reservedFor"): "kube-scheduler writes it, and who has `*`: consumers of its own claims",
    ("ResourceClaim", "spec"): "users write it",
    ("Pod", "metadata.uid"): "the apiserver", ("Pod", "metadata.creationTimestamp"): "the apiserver",
    ("Pod", "metadata.deletionTimestamp"): "the apiserver",
    ("Pod", names.PLACEHOLDER_PRIORITY): "the name of a class",
    **{("Pod", f"status.{each}"): "who has `*` lies about its own pods" for each in (
        "phase", "conditions", "resourceClaimStatuses", "containerStatuses", "startTime", "nominatedNodeName", "reason", "message",
    )},
    **{("Pod", each): "who has `*` lies about its own pods; it decides nothing" for each in (names.ADMITTED_CONDITION, names.EVICTING_CONDITION)},
    **{("ResourceSlice", each): "names of attributes, in spec" for each in (names.PCI_BUS_ID, names.PCIE_ROOT, names.NUMA_NODE)},
}  # fmt: skip
"""Keys of guarded rows that are not tried here, and why."""
OUTSIDE = {
    "CDI file",
    "pod template",
    "TenancyPolicy",
    "DeviceClass",
    "DeviceTaintRule",
    "PriorityClass",
    "ResourceQuota",
}
"""Kinds: files; templates, which `test_no_template_carries_them` tries; kinds of administrators that no role of ours or of `*` in a namespace has."""

ATTACKERS = {
    "viewer": ("vera", (), None), "edit": ("mallory", (), None), "everything in the namespace": ("omar", (), None),
    "member": ("mona", (), None), "admin of the tenant": ("adam", (), None), "operator": ("olga", (), None),
    "driver": (names.DRIVER_USER, SERVICE_ACCOUNTS, "n1"), "another node's driver": (names.DRIVER_USER, SERVICE_ACCOUNTS, "n2"),
    "webhook": (names.WEBHOOK_USER, SERVICE_ACCOUNTS, None), "controller": (names.CONTROLLER_USER, SERVICE_ACCOUNTS, None),
}  # fmt: skip
TENANTS = [
    "edit",
    *(
        pytest.param(each, marks=pytest.mark.slow)
        for each in ("everything in the namespace", "member", "admin of the tenant")
    ),
]
ROLES = {
    "vera": "view", "mallory": "edit", "omar": "everything", "mona": "fairlead-tenant-member", "adam": "fairlead-tenant-admin",
}  # fmt: skip
ALLOWED = {
    ("controller", "Pod"): "writes fairlead.dev/ annotations of pods: its role",
    ("operator", "ResourceSlice"): "",
}


def guarded() -> Iterator[Row]:
    for row in trust.TABLE:
        if row.guards and not {"users", "workload"} & set(row.writers):
            yield row


def attempts(row: Row) -> Iterator[Attempt]:
    for kind in row.on:
        for key in row.keys:
            if kind not in OUTSIDE and (kind, key) not in ELSEWHERE:
                yield from _of(kind, key, row.form)


def _of(kind: str, key: str, form: str) -> Iterator[Attempt]:
    of = FREE if key == "status.allocation" else TARGETS[kind]
    if form in {"annotation", "label", "annotation or label"}:
        for where in ("annotations", "labels"):
            if where[:-1] in form:
                yield Attempt(
                    target=of,
                    path=("metadata", where, key.rstrip("/") + ("/gpu-0" if key.endswith("/") else "")),
                    value="x",
                )
    elif form == "gate":
        yield Attempt(target=of, path=("spec", "schedulingGates"), value=None)
    elif form == "finalizer":
        yield Attempt(target=of, path=("metadata", "finalizers"), value=None)
    elif key == "metadata.labels":
        yield Attempt(target=of, path=("metadata", "labels"), value={"mine": "yes"})
    else:
        path = PATHS.get((kind, key)) or tuple(key.replace("[AwaitingNodes]", "").replace("[Idle]", "").split("."))
        path = ("status", "message") if path == ("status", "*") else path
        yield Attempt(target=of, path=path, value=_value(kind, key, path))


def _value(kind: str, key: str, path: tuple[str, ...]) -> Any:
    if (kind, key) in VALUES:
        return VALUES[kind, key]
    found: Any = {"Gang": GANG, "Queue": QUEUE, "Flavor": FLAVOR}[kind]
    for part in path:
        found = found[part]
    return found


class World:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.admin = cluster.admin

    @contextlib.asynccontextmanager
    async def client(self, attacker: str) -> AsyncIterator[Client]:
        user, groups, node = ATTACKERS[attacker]
        extra = None if node is None else {"authentication.kubernetes.io/node-name": [node]}
        path = self.cluster.workdir / attacker.replace(" ", "-")
        path.write_text(self.cluster.server.kubeconfig(user, groups=groups, extra=extra))
        async with Client.connect(path) as client:
            yield client

    async def prepare(self) -> None:
        rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        await self.admin.create(CLUSTER_ROLES, {"metadata": {"name": "everything"}, "rules": [rule]})
        for user, role in (*ROLES.items(), ("olga", "fairlead-operator")):
            body = {
                "metadata": {"name": user}, "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
                "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": RBAC},
            }  # fmt: skip
            await (
                self.admin.create(BINDINGS, body) if user == "olga" else self.admin.create(raw(ROLE_BINDINGS), body, ML)
            )
        for kind, each in (*TARGETS.items(), ("ResourceClaim", FREE)):
            if kind not in {"Namespace", "ConfigMap"}:
                await self.restore(each)
            marks = {"metadata": {"annotations": {"example.com/a": "1"}, "labels": {"example.com/a": "1"}}}
            if kind not in {"ResourceSlice", "Gang"}:
                await self.admin.patch(each.resource, each.name, marks, namespace=each.namespace)

    async def restore(self, each: Target) -> None:
        """Made anew as it was."""
        metadata = {**each.base.get("metadata", {}), "name": each.name}
        await self.admin.create(each.resource, {**copy.deepcopy(each.base), "metadata": metadata}, each.namespace)
        async with self.client("controller") as controller:
            if each.resource.kind == "ResourceClaim":
                finalizers = {"metadata": {"finalizers": [names.CLAIM_FINALIZER]}}
                await controller.patch(each.resource, each.name, finalizers, namespace=ML)
            if each == TARGETS["ResourceClaim"]:
                fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
                status = {
                    "allocation": {
                        "devices": {"results": [{**RESULT, "device": "gpu-1"}]},
                        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
                    }
                }
                await controller.patch(each.resource, each.name, {"status": status}, namespace=ML, subresource="status")
            if each.resource.kind in {"Gang", "Queue", "Flavor"}:
                said = {"status": {"observedGeneration": 1}}
                await controller.patch(each.resource, each.name, said, namespace=each.namespace, subresource="status")

    async def again(self, each: Target) -> None:
        """Deleted, and made anew as it was; what is installed stays."""
        if each.resource.kind in {"Namespace", "ConfigMap"}:
            return
        off = {"metadata": {"finalizers": None}}
        if each.resource.kind == "ResourceClaim":  # as the claim controller frees it
            claims = self.cluster.server.kubeconfig(
                "system:serviceaccount:kube-system:resource-claim-controller", groups=("system:masters",)
            )
            path = self.cluster.workdir / "claims"
            path.write_text(claims)
            async with Client.connect(path) as client:
                await client.patch(
                    each.resource, each.name, {"status": {"allocation": None}}, namespace=ML, subresource="status"
                )
                await client.patch(each.resource, each.name, off, namespace=ML)
        await self.admin.delete(each.resource, each.name, each.namespace, grace_period_s=0)
        await self.restore(each)

    async def stored(self, each: Target) -> Json:
        return dict(await self.admin.get(each.resource, each.name, each.namespace))

    async def forged(self, client: Client, attempt: Attempt) -> list[str]:
        """By which ways the value got there; what they made is taken away again."""
        of, found = attempt.target, []
        async for way, given in ways(client, attempt):
            seen = given if given is not None else await self.stored(of)
            if attempt.is_in(seen):
                found.append(f"{attempt}: {way}")
            if given is not None and "dry-run" not in way:
                with contextlib.suppress(errors.ApiError):
                    await self.admin.delete(of.resource, given["metadata"]["name"], of.namespace, grace_period_s=0)
        return found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with served(tmp_path_factory.mktemp("trust"), of_this_run()) as cluster, cluster.webhook():
        made = World(cluster)
        await made.prepare()
        yield made


def tried(*, every: bool) -> list[Attempt]:
    """All of the table, or of each row and kind the first."""
    found = []
    for row in guarded():
        of_row = list(attempts(row))
        seen: set[str] = set()
        found += [each for each in of_row if every or not (each.kind in seen or seen.add(each.kind))]  # type: ignore[func-returns-value]
    return found


def writers_of(attempt: Attempt) -> set[str]:
    return {writer for row in guarded() if attempt in attempts(row) for writer in row.writers}


async def none_is_stored(world: World, attacker: str, *, every: bool) -> None:
    found: list[str] = []
    async with world.client(attacker) as client:
        for attempt in tried(every=every):
            if attacker in writers_of(attempt) or (attacker, attempt.kind) in ALLOWED:
                continue
            found += await world.forged(client, attempt)
    assert found == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize("attacker", ATTACKERS)
async def test_no_attacker_writes_what_is_not_its_own(world: World, attacker: str) -> None:
    """Of each row one key; `test_every_key` tries all."""
    await none_is_stored(world, attacker, every=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("attacker", ATTACKERS)
async def test_every_key(world: World, attacker: str) -> None:
    await none_is_stored(world, attacker, every=True)


async def test_every_key_of_a_guarded_row_is_tried_or_says_where() -> None:
    keys = {(kind, key) for row in guarded() for kind in row.on if kind not in OUTSIDE for key in row.keys}
    assert {each for each in ELSEWHERE if each not in keys} - {
        ("Gang", "spec.hold"),
        ("ResourceClaim", "spec"),
    } == set()
    assert len(tried(every=True)) >= 40
    assert {attempt.kind for attempt in tried(every=False)} == set(TARGETS)


CONTROLS = {
    "controller": "controller",
    "webhook": "",
    "driver": "driver",
    "administrators": "administrator",
    "Kubernetes": "",
}
UNCONTROLLED = {
    "Pod metadata.annotations.fairlead.dev/claim-sources": "the webhook writes it into others' creates",
    "Pod metadata.annotations.fairlead.dev/user": "the webhook writes it into others' creates",
    "ConfigMap data": "the controller writes it as text: tests/controller/forecasting",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_writer_that_the_table_names_may(world: World) -> None:
    """So no attempt above fails for what it looks like."""
    failed = []
    for attempt in tried(every=True):
        if str(attempt) in UNCONTROLLED:
            continue
        found: list[str] = []
        for writer in sorted(writers_of(attempt)):
            if writer == "administrators":
                found += await world.forged(world.admin, attempt)
            elif CONTROLS.get(writer):
                async with world.client(CONTROLS[writer]) as client:
                    found += await world.forged(client, attempt)
            if found:
                break
        if not found:
            failed.append(str(attempt))
        with contextlib.suppress(errors.ApiError):
            await world.again(attempt.target)
    assert failed == []


@pytest.mark.parametrize("attacker", TENANTS)
async def test_no_template_carries_them_to_pods(world: World, attacker: str) -> None:
    """A Job's, which its controller copies: with the Job, with a change of it, and with a template that is made of nothing yet."""
    keys = [key for row in guarded() if "Pod" in row.on and row.form == "annotation" for key in row.keys]
    assert len(keys) >= 6
    carried = []
    async with world.client(attacker) as client:
        for key in keys:
            body = pod("j", limits={names.LEGACY_GPU: 1})
            template = {"metadata": {"annotations": {key: "x"}}, "spec": {**body["spec"], "restartPolicy": "Never"}}
            plain = {**template, "metadata": {}}
            for name, first, then in (("created", template, None), ("changed", plain, template)):
                job: Json = {"metadata": {"name": "j", "namespace": ML}, "spec": {"suspend": True, "template": first}}
                with contextlib.suppress(errors.ApiError):
                    await client.create(raw(JOBS), job)
                    if then is not None:
                        await client.patch(raw(JOBS), "j", {"spec": {"template": then}}, namespace=ML)
                with contextlib.suppress(errors.NotFound):
                    stored = await world.admin.get(raw(JOBS), "j", ML)
                    if stored["spec"]["template"]["metadata"].get("annotations", {}).get(key) == "x":
                        carried.append(f"{key}: {name}")
                    await world.admin.delete(JOBS, "j", ML, propagation="Background")
    assert carried == []


# -- every field of a Gang -----------------------------------------------------------------------------------------------


def leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each field at any depth of objects, with a value that fits the schema: `GANG` leaves out none (tests/api/test_nulls.py)."""
    yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))


METADATA: Json = {
    "labels": {"fairlead.dev/queue": "blue", "app.kubernetes.io/managed-by": "fairlead"},
    "annotations": {"fairlead.dev/evicted": "{}", "example.com/mine": "x"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-4000-8000-000000000000"}],
    "finalizers": ["example.com/never"], "generateName": "x-", "creationTimestamp": "1970-01-01T00:00:00Z", "uid": "u", "generation": 99,
    "deletionTimestamp": "1970-01-01T00:00:00Z", "selfLink": "x", "managedFields": [{"manager": "fairlead", "operation": "Apply"}],
}  # fmt: skip
OWN = {("metadata", "annotations", "example.com/mine"), ("metadata", "labels", "app.kubernetes.io/managed-by")}
KEPT = (
    "resourceVersion",
    "managedFields",
    "generation",
    "uid",
    "creationTimestamp",
    "name",
    "namespace",
    "generateName",
)


def without_own(gang: Json) -> Json:
    """Of a stored Gang what is not its user's to write: all but the hold, labels and annotations of others than Fairlead."""
    shown = copy.deepcopy(gang)
    shown["spec"].pop("hold", None)
    for where in ("labels", "annotations"):
        kept = shown["metadata"].pop(where, {})
        shown["metadata"][where] = {key: value for key, value in kept.items() if key.startswith("fairlead.dev/")}
    shown["metadata"] = {key: value for key, value in shown["metadata"].items() if key not in KEPT}
    return shown


@pytest.mark.one_in(3)
@pytest.mark.parametrize("attacker", TENANTS)
async def test_of_a_gang_a_tenant_writes_its_hold_and_nothing_that_others_see(world: World, attacker: str) -> None:
    of = TARGETS["Gang"]
    fields = [
        *leaves(GANG["spec"], ("spec",)),
        *leaves(GANG["status"], ("status",)),
        *list(leaves(METADATA, ("metadata",)))[1:],
    ]
    assert len(fields) > 60
    fresh = without_own({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Gang", "metadata": {}, "spec": {"size": 1}})
    changed: list[str] = []
    before = await world.stored(of)
    async with world.client(attacker) as client:
        for path, value in fields:
            attempt = Attempt(target=of, path=path, value=value)
            if attacker == "everything in the namespace" and path[1:2] in {
                ("ownerReferences",),
                ("finalizers",),
                ("hold",),
            }:
                continue  # has every verb, `hold` among them
            async for way, given in ways(client, attempt):
                if given is not None and without_own(given) != fresh and without_own(given) != without_own(before):
                    changed.append(f"{attempt}: {way}")
                if given is not None and "dry-run" not in way:
                    await world.admin.delete(of.resource, given["metadata"]["name"], ML)
            stored = await world.stored(of)
            if (without_own(stored), stored["metadata"]["uid"]) != (without_own(before), before["metadata"]["uid"]):
                changed.append(str(attempt))
    assert changed == []
