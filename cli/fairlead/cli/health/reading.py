"""How a cluster is read for `doctor` and `check readiness`: lists, discovery and a few questions, with the user's own rights.

What may not be read is noted with the right that is missing, and the rest is read all the same; only a cluster that does not answer,
or does not know the user, ends the command. Nothing is stored: access reviews are answers, and what is created for trial is created
with dryRun (`trials`).
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from fairlead.api import names
from fairlead.api.object_names import is_exempt
from fairlead.bounded import json_text
from fairlead.cli.health import trials, values
from fairlead.cli.health.seen import Listed, Seen, Trial, has_gate, legacy_limits, written_s
from fairlead.cli.reading import Shown
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.resources import Raw, Resource, raw
from fairlead.ui.reading.cluster import Cluster, NotReadError, not_read

AT_ONCE = 8
KUBELETS_MAX = 50
PREPARE_FAILS = "FailedPrepareDynamicResources"
_GATE = re.compile(rb'^kubernetes_feature_enabled\{name="(\w+)",stage="[^"]*"\} ([01])', re.MULTILINE)

SHARED: tuple[Resource[Any], ...] = (
    resources.NODES,
    resources.NAMESPACES,
    resources.LEASES,
    resources.PODS,
    resources.DEPLOYMENTS,
    resources.DAEMON_SETS,
    resources.RESOURCE_SLICES,
    resources.RESOURCE_CLAIMS,
    resources.DEVICE_CLASSES,
    resources.QUEUES,
    resources.FLAVORS,
    resources.GANGS,
    resources.TENANCY_POLICIES,
)
"""Kinds that both commands read."""
RIGHTS: dict[str, tuple[str, dict[str, str]]] = {
    "patch resourceclaims/status": (
        names.CONTROLLER_USER,
        {"group": "resource.k8s.io", "resource": "resourceclaims", "subresource": "status", "verb": "patch"},
    ),
    "update resourceclaims/binding": (
        names.CONTROLLER_USER,
        {"group": "resource.k8s.io", "resource": "resourceclaims", "subresource": "binding", "verb": "update"},
    ),
    "patch pods": (names.CONTROLLER_USER, {"resource": "pods", "verb": "patch"}),
    "list resourceslices": (
        names.CONTROLLER_USER,
        {"group": "resource.k8s.io", "resource": "resourceslices", "verb": "list"},
    ),
    "create resourceslices": (
        names.DRIVER_USER,
        {"group": "resource.k8s.io", "resource": "resourceslices", "verb": "create"},
    ),
}
"""What the programs cannot do without: the account, and the right."""
INSTALLED = {
    "": ("namespaces", "configmaps", "secrets", "services", "serviceaccounts"),
    "admissionregistration.k8s.io": ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    "apps": ("daemonsets", "deployments"),
    "networking.k8s.io": ("networkpolicies",),
    "policy": ("poddisruptionbudgets",),
    "rbac.authorization.k8s.io": ("clusterroles", "clusterrolebindings", "roles", "rolebindings"),
    "resource.k8s.io": ("deviceclasses",),
}
"""What an install creates, by group."""
INSTALL_RIGHTS: dict[str, tuple[str, dict[str, str]]] = {
    f"create {plural}{group and '.'}{group}": (
        "",
        {"group": group, "resource": plural, "verb": "create", "namespace": names.NAMESPACE},
    )
    for group, plurals in INSTALLED.items()
    for plural in plurals
} | {
    "escalate clusterroles.rbac.authorization.k8s.io": (
        "",
        {"group": "rbac.authorization.k8s.io", "resource": "clusterroles", "verb": "escalate"},
    )
}
"""What the user needs for an install. The roles give rights that the user may not have, which takes `escalate`."""


Part = Literal["gates", "kubelets", "rights", "install"]


@dataclass(frozen=True, kw_only=True)
class Looking(Shown):
    """One that looks for what is wrong with a cluster."""

    try_slices: Annotated[
        bool,
        typer.Option(
            "--try-slices/--no-try-slices",
            help="Create ResourceSlices with dryRun, to see which of their fields the apiserver keeps. Nothing is stored.",
        ),
    ] = True
    managed_drivers: Annotated[
        tuple[str, ...],
        typer.Option(
            "--managed-driver",
            help="DRA driver whose devices Fairlead allocates; may be repeated. Default: as the controller's Deployment has it.",
        ),
    ] = ()
    shared_claim_drivers: Annotated[
        tuple[str, ...],
        typer.Option(
            "--shared-claim-driver",
            help="DRA driver whose devices claims may have beside managed ones; may be repeated. Default: as the controller's Deployment has it.",
        ),
    ] = ()


async def read(
    cluster: Cluster,
    kinds: Iterable[Resource[Any]],
    *,
    drivers: Sequence[str] = (),
    shared_drivers: Sequence[str] = (),
    look_into: Sequence[str] = (),
    optional: Iterable[Resource[Any]] = (),
    parts: Collection[Part] = (),
    try_slices: bool = False,
    try_webhook: str | None = None,
    wall: Callable[[], float] = time.time,
) -> Seen:
    """`look_into` are API groups whose kinds are wanted, `optional` kinds of other systems, listed in whatever version is served.

    `drivers` are the managed ones, `shared_drivers` those allowed beside them; none: as the controller's Deployment says. `try_slices` tries what the apiserver keeps of
    a slice, as far as the part `gates` does not say it. `try_webhook` is the namespace of the pod for the trial. Raises NotReadError where the
    cluster does not answer.
    """
    client = cluster.client
    release = await _release(client)
    turns = asyncio.Semaphore(AT_ONCE)
    groups, groups_gap = await _groups(client)
    served, discovered = await _kinds(client, groups or {}, look_into)
    wanted = [*kinds, *(found for each in optional if (found := _served(each, served, groups)) is not None)]
    listed = await asyncio.gather(*(_list(client, each, turns) for each in wanted))
    lists = {str(resource): found for resource, found in zip(wanted, listed, strict=True)}
    for each in optional:  # not served: there are none
        lists.setdefault(str(each), Listed(served=False, gap=groups_gap))
    drivers = tuple(drivers) or _named(lists, "--managed-driver") or (names.DRIVER,)
    seen = Seen(now=wall(), lists=lists, drivers=drivers)
    more: dict[str, Any] = {}
    if "gates" in parts:
        more["gates"], more["gates_gap"] = await _gates(client)
    if try_slices and not more.get("gates", {}).keys() >= trials.GATES:
        more["slice_trial"] = await trials.slices(client)
    if "kubelets" in parts:
        nodes = [values.name(each) for each in seen.gpu_nodes][:KUBELETS_MAX]
        more["kubelets"], more["kubelets_gap"] = await _kubelets(client, nodes, turns)
    for part, rights in (("rights", RIGHTS), ("install", INSTALL_RIGHTS)):
        if part in parts:
            more["allowed"], more["allowed_gap"] = await _rights(client, rights)
    now_s = _newest(lists) or wall()
    if try_webhook is not None:
        if _left_out(seen, try_webhook):
            more["trial"] = Trial(
                message=f"the webhook leaves namespace {try_webhook} out; name another with -n, to see whether it is reached"
            )
        else:
            more["trial"], told_s = await trials.webhook(client, try_webhook)
            now_s = told_s or now_s
    return Seen(
        now=now_s,
        lists=lists,
        release=release,
        groups=groups,
        groups_gap=groups_gap,
        kinds=frozenset(served),
        discovered=discovered,
        drivers=drivers,
        shared_drivers=tuple(shared_drivers) or _named(lists, "--shared-claim-driver"),
        **more,
    )


def _named(lists: dict[str, Listed], wanted: str) -> tuple[str, ...]:
    """Drivers that the controller's Deployment has under this flag."""
    found: list[str] = []
    for each in lists.get(str(resources.DEPLOYMENTS), Listed()).items:
        if (values.namespace(each), values.name(each)) == (names.NAMESPACE, names.CONTROLLER_ACCOUNT):
            for word, after in itertools.pairwise([*values.arguments(each), ""]):
                flag, given, value = word.partition("=")
                if flag == wanted:
                    found.append(value if given else after)
    return tuple(dict.fromkeys(found))


async def _release(client: Client) -> str:
    """The apiserver's release, as `v1.36.2`; "" where the version cannot be read. Raises NotReadError."""
    try:
        return values.text(_object(await client.request("GET", "/version")), "gitVersion")
    except (errors.Unreachable, errors.Unauthorized) as error:
        raise not_read(error, "list", resources.NODES, None) from error
    except errors.ServerError as error:
        raise NotReadError(f"GET {client.url}/version: {error}; see what the apiserver's own log says") from error
    except errors.ApiError:
        return ""


async def _groups(client: Client) -> tuple[dict[str, tuple[str, ...]] | None, str]:
    """The versions of each API group, as the cluster prefers them."""
    try:
        found = _object(await client.request("GET", "/apis"))
    except errors.ApiError as error:
        return None, _gap("get", "/apis", error)
    return {
        values.text(group, "name"): tuple(values.text(each, "version") for each in values.objects(group, "versions"))
        for group in values.objects(found, "groups")
    }, ""


async def _kinds(
    client: Client, groups: dict[str, tuple[str, ...]], look_into: Sequence[str]
) -> tuple[dict[str, tuple[str, str, bool]], dict[str, frozenset[str]]]:
    """Kinds of the groups, as `plural.group`: the version to ask for, the kind's name, whether it has namespaces. And plurals by group and version."""
    found: dict[str, tuple[str, str, bool]] = {}
    plurals: dict[str, frozenset[str]] = {}
    for group in look_into:
        for version in groups.get(group, ()):
            try:
                answer = _object(await client.request("GET", f"/apis/{group}/{version}"))
            except errors.ApiError:
                continue
            plurals[f"{group}/{version}"] = frozenset(
                values.text(each, "name") for each in values.objects(answer, "resources")
            )
            for each in values.objects(answer, "resources"):
                plural = values.text(each, "name")
                if plural and "/" not in plural:
                    described = (version, values.text(each, "kind"), each.get("namespaced") is True)
                    found.setdefault(f"{plural}.{group}", described)
    return found, plurals


def _served(
    resource: Resource[Any], kinds: dict[str, tuple[str, str, bool]], groups: dict[str, tuple[str, ...]] | None
) -> Resource[Any] | None:
    """The resource in the version that the cluster serves; None where it serves none."""
    if groups is not None and resource.group not in groups:
        return None
    if str(resource) not in kinds:
        return None
    version, kind, namespaced = kinds[str(resource)]
    return Resource(
        group=resource.group, version=version, plural=resource.plural, kind=kind, namespaced=namespaced, type=dict
    )


async def _list(client: Client, resource: Resource[Any], turns: asyncio.Semaphore) -> Listed:
    kind = str(resource)
    keep, fields, labels = _KEEP.get(kind, _all), _FIELDS.get(kind), _LABELS.get(kind)
    found: list[Raw] = []

    def take(item: Raw) -> None:
        if isinstance(item, dict) and keep(item):
            found.append(item)

    try:
        async with turns:
            await client.list(raw(resource), fields=fields, labels=labels, each=take)
    except errors.NotFound:
        return Listed(served=False)
    except errors.Unreachable as error:
        raise not_read(error, "list", resource, None) from error
    except errors.ApiError as error:
        return Listed(gap=_gap("list", str(resource), error))
    unique = {
        (values.namespace(each), values.name(each)): each for each in found
    }  # a list that starts over comes twice
    return Listed(items=tuple(unique[key] for key in sorted(unique)))


def _all(_: Raw) -> bool:
    return True


def _concerns(pod: Raw) -> bool:
    """Whether a pod is one of Fairlead's, or has to do with devices or with queues."""
    return (
        values.namespace(pod) == names.NAMESPACE
        or bool(values.sequence(pod, "spec", "resourceClaims"))
        or has_gate(pod, names.ADMISSION_GATE)
        or names.GANG in values.annotations_of(pod)
        or bool(legacy_limits(pod))
    )


_KEEP: dict[str, Callable[[Raw], bool]] = {"pods": _concerns}
_FIELDS = {"events": f"reason={PREPARE_FAILS}"}
_LABELS = {
    "configmaps": "grafana_dashboard"
}  # by which Grafana's sidecar finds dashboards; other ConfigMaps are not read


async def _gates(client: Client) -> tuple[dict[str, bool], str]:
    """The apiserver's own metric of its feature gates (component-base, `kubernetes_feature_enabled`)."""
    try:
        text = await client.request("GET", "/metrics")
    except errors.ApiError as error:
        return {}, _gap("get", "/metrics", error)
    found = {name.decode(): on == b"1" for name, on in _GATE.findall(text)}
    return found, "" if found else "the apiserver's metrics do not name its feature gates"


async def _kubelets(client: Client, nodes: Sequence[str], turns: asyncio.Semaphore) -> tuple[dict[str, Raw], str]:
    gaps: list[str] = []

    async def one(node: str) -> tuple[str, Raw]:
        async with turns:
            try:
                path = resources.NODES.path(None, node, "proxy/configz")
                answer = _object(await client.request("GET", path, retries=0))
                return node, values.mapping(answer, "kubeletconfig")
            except errors.ApiError as error:
                gaps.append(_gap("get", "nodes/proxy", error))
                return node, {}

    found = dict(await asyncio.gather(*map(one, nodes)))
    return {node: config for node, config in found.items() if config}, gaps[0] if gaps else ""


async def _rights(client: Client, rights: Mapping[str, tuple[str, Raw]]) -> tuple[dict[str, bool], str]:
    """What the account of each right may do; "" is who asks."""
    found: dict[str, bool] = {}
    for right, (user, attributes) in rights.items():
        kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
        subject = {"user": user, "groups": _groups_of(user)} if user else {}
        plural = f"{kind.lower()}s"
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {**subject, "resourceAttributes": attributes},
        }
        try:
            answer = _object(await client.request("POST", f"/apis/authorization.k8s.io/v1/{plural}", body=body))
        except errors.ApiError as error:
            return {}, _gap("create", f"{plural}.authorization.k8s.io", error)
        found[right] = values.value(answer, "status", "allowed") is True
    return found, ""


def _groups_of(user: str) -> list[str]:
    namespace = user.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]


def _left_out(seen: Seen, namespace: str) -> bool:
    found = seen.one(resources.NAMESPACES, namespace)
    return is_exempt(namespace, {key: str(label) for key, label in values.labels_of(found).items()})


def _newest(lists: dict[str, Listed]) -> float | None:
    """The apiserver's time of the last renewal of any lease that is not ours: its own and the kubelets' are renewed every ten seconds."""
    times = [
        told
        for lease in lists.get(str(resources.LEASES), Listed()).items
        if values.namespace(lease) != names.NAMESPACE and (told := written_s(lease)) is not None
    ]
    return max(times, default=None)


def _object(body: bytes) -> Raw:
    """An answer that is no JSON object reads as an empty one."""
    try:
        found = json_text.value(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _gap(verb: str, what: str, error: errors.ApiError) -> str:
    if isinstance(error, errors.Forbidden):
        return f"you may not {verb} {what}"
    return values.clean(f"cannot {verb} {what}: {error.message}")
