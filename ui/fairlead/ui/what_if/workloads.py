"""Manifests as gangs that are submitted now: pods as the webhook would patch them, as many as the workload runs at once.

The verdicts are those of `fairlead check`: what the webhook would refuse is refused here. A pod has the priority that the apiserver would
give it: of its PriorityClass, from the file or the cluster, else of the default. A class that is named and not known is an error: another
priority would make the forecast one of another gang. Source: kube-apiserver, plugin/pkg/admission/priority/admission.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from fairlead.api import claim_sources, legacy, names
from fairlead.api.claim_sources import ClaimSourcesError
from fairlead.api.drivers import legacy_driver
from fairlead.api.intent import Intent, IntentError, read_intent
from fairlead.api.models import worker_group
from fairlead.engine.forecast.what_if import ChangeError
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PendingMember
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, nulls, resource
from fairlead.kube.core import PriorityClass
from fairlead.kube.objects import ObjectMeta
from fairlead.webhook.objects.pod_templates import WORKLOADS
from fairlead.webhook.offline import Result, World, judge, namespace_of

Json = dict[str, Any]
PODS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class _Pods:
    """`count` alike pods."""

    pod: core.Pod
    count: int
    intent: Intent
    priority: int
    preempts: bool


def gangs(
    documents: Iterable[Json],
    world: World,
    labels: Mapping[str, Mapping[str, str]],
    priorities: Priorities,
    now: float,
) -> tuple[GangRequest, ...]:
    """`labels`: of namespaces, by name. Raises ChangeError."""
    found: list[GangRequest] = []
    pods = 0
    for document in documents:
        results = list(judge(document, world))
        for result in results:
            if not result.allowed:
                raise ChangeError(f"-f: {result.review.subject} would be refused: {result.last.message}")
        groups = _grouped(results, priorities)
        pods += sum(each.count for members in groups.values() for each in members)
        if pods > PODS_MAX:
            raise ChangeError(
                f"-f: {pods} pods up to {results[0].review.subject} are more than {PODS_MAX}: submit fewer"
            )
        found += _gangs(groups, world, labels, now)
    if world.faults:
        raise ChangeError(f"-f: {world.faults[0]}")
    if not found:
        raise ChangeError("-f: nothing in it creates pods that ask for devices; see `fairlead check FILE`")
    return tuple(found)


def _grouped(results: list[Result], priorities: Priorities) -> dict[tuple[str, str], list[_Pods]]:
    """The pods by namespace and name of their gang; name#place for what is in none."""
    groups: dict[tuple[str, str], list[_Pods]] = {}
    counts = _counts(results)
    for place, result in enumerate(each for each in results if each.review.kind == "Pod"):
        try:
            pod = nulls.convert(result.object, core.Pod)
        except msgspec.ValidationError as error:
            raise ChangeError(f"-f: {result.review.subject}: its pods cannot be read: {error}") from None
        if not pod.spec.resource_claims and result.gang is None:
            continue
        try:
            intent = read_intent(pod.metadata.annotations, pod.metadata.labels, lenient=True)
        except IntentError as error:
            raise ChangeError(f"-f: {result.review.subject}: {error}") from None
        count = counts[place] if place < len(counts) else intent.size or 1
        namespace = namespace_of(result.object)
        name = pod.metadata.name or result.source.rpartition("/")[2] or pod.metadata.generate_name.rstrip("-")
        groups.setdefault((namespace, intent.gang or f"{name}#{place}"), []).append(
            _Pods(pod, count, intent, *priorities.of(result.review.subject, result.object["spec"]))
        )
    return groups


def _gangs(
    groups: Mapping[tuple[str, str], list[_Pods]],
    world: World,
    labels: Mapping[str, Mapping[str, str]],
    now: float,
) -> list[GangRequest]:
    made: list[GangRequest] = []
    for (namespace, key), pods in groups.items():
        name, _, solo = key.partition("#")
        where = labels.get(namespace, {"kubernetes.io/metadata.name": namespace})
        if solo:
            made += [
                _gang(
                    namespace,
                    f"{name}-{number}" if pods[0].count > 1 else name,
                    [replace(pods[0], count=1)],
                    world,
                    where,
                    now,
                )
                for number in range(pods[0].count)
            ]
        else:
            made.append(_gang(namespace, name, pods, world, where, now))
    return made


def _counts(results: list[Result]) -> list[int]:
    """Pods of each template of the workload at the head, in order; () for a bare pod or a kind that makes other kinds first."""
    for result in results:
        workload = WORKLOADS.get(result.review.group_resource)
        if workload is not None and not workload.creates_workloads:
            return [template.pods for template in workload.templates(result.object)]
    return []


def _gang(
    namespace: str, name: str, pods: list[_Pods], world: World, labels: Mapping[str, str], now: float
) -> GangRequest:
    members: list[PendingMember] = []
    claims: dict[str, ClaimRequest] = {}
    for group, each in enumerate(pods):
        needs = PodNeeds.of(each.pod)
        specs = _claim_specs(namespace, each, world)
        for number in range(each.count):
            pod = f"{name}-{group}-{number}"
            keys = []
            for entry, (shared, spec) in specs.items():
                key = f"what-if/{namespace}/{shared}" if shared else f"what-if/{namespace}/{pod}/{entry}"
                claims.setdefault(
                    key, ClaimRequest(key=key, namespace=namespace, name=shared or f"{pod}-{entry}", spec=spec)
                )
                keys.append(key)
            size, rank = each.intent.subgroup_size, len(members)
            members.append(
                PendingMember(
                    pod=PodRef(namespace, pod, f"what-if/{namespace}/{pod}"),
                    needs=needs,
                    claims=tuple(keys),
                    labels=each.pod.metadata.labels,
                    rank=rank if each.intent.subgroup_topology else None,
                    subgroup=each.intent.subgroup or (str(rank // size) if size else ""),
                    worker_group=worker_group(each.pod.metadata.labels),
                )
            )
    first = pods[0]
    members.sort(key=lambda member: bool(member.claims))  # the controller places those without devices first
    size = next((each.intent.size for each in pods if each.intent.size), None) or len(members)
    if len(members) < size:
        raise ChangeError(f"-f: gang {namespace}/{name}: {len(members)} pods are fewer than its size {size}")
    return GangRequest(
        namespace=namespace,
        name=name,
        uid=f"what-if/{namespace}/{name}",
        size=size,
        members=tuple(members[:size]),
        claims=tuple(claims[key] for key in dict.fromkeys(key for member in members[:size] for key in member.claims)),
        queue=first.intent.queue,
        namespace_labels=labels,
        priority=max(each.priority for each in pods),
        created=now,
        topology=first.intent.topology,
        models=first.intent.models,
        align=first.intent.align,
        subgroup_topology=first.intent.subgroup_topology,
        preempts=all(each.preempts for each in pods),
        run_s=_run_s(pods),
    )


def _run_s(pods: list[_Pods]) -> float | None:
    limits = [each.pod.spec.active_deadline_seconds for each in pods]
    return None if None in limits else float(max(limit for limit in limits if limit is not None))


def _claim_specs(namespace: str, pods: _Pods, world: World) -> dict[str, tuple[str, resource.ResourceClaimSpec]]:
    """For each entry of the pod the shared claim's name ("" where each pod has its own), and the spec."""
    annotations = pods.pod.metadata.annotations
    try:
        named = claim_sources.read(annotations) if names.CLAIM_SOURCES in annotations else {}
    except ClaimSourcesError as error:
        raise ChangeError(f"-f: {error}") from None
    found = {}
    for entry in pods.pod.spec.resource_claims:
        source = named.get(entry.name)
        template = source.template if source is not None else entry.resource_claim_template_name
        if template:
            found[entry.name] = ("", _template(namespace, template, world))
            continue
        claim = world.claims.get((namespace, entry.resource_claim_name or ""))
        if claim is None:
            raise ChangeError(
                f"-f: ResourceClaim {namespace}/{entry.resource_claim_name} is not known; add it to the file"
            )
        found[entry.name] = (entry.resource_claim_name or "", claim)
    return found


def _template(namespace: str, name: str, world: World) -> resource.ResourceClaimSpec:
    if legacy.parse_template_name(name) is not None:
        body = legacy.template_manifest(name, namespace, driver=legacy_driver(world.drivers))
        return msgspec.convert(body["spec"]["spec"], resource.ResourceClaimSpec)
    known = world.templates.get((namespace, name))
    if known is None:
        raise ChangeError(f"-f: ResourceClaimTemplate {namespace}/{name} is not known; add it to the file")
    return known.spec


GROUP = "scheduling.k8s.io"
SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that every cluster has."""


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """`unread`: why the classes of the cluster are not known; "" where they are."""

    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    unread: str = ""

    def of(self, pod: str, spec: Mapping[str, Any]) -> tuple[int, bool]:
        """Priority, and whether the pod preempts. Raises ChangeError for a class that is not known; `pod` is for the message."""
        found = self._class(pod, spec)
        policy = spec.get("preemptionPolicy") or (None if found is None else found.preemption_policy)
        priority = int(spec.get("priority") or 0) if found is None else found.value
        return priority, policy != "Never"

    def _class(self, pod: str, spec: Mapping[str, Any]) -> PriorityClass | None:
        """None where the pod names none and none is the default."""
        name = spec.get("priorityClassName")
        if not name:
            if spec.get("priority") is not None:
                return None
            defaults = [each for each in self.classes.values() if each.global_default]
            return min(defaults, key=lambda each: (each.value, each.metadata.name), default=None)
        known = self.classes.get(name)
        if known is not None:
            return known
        if name in SYSTEM:
            return PriorityClass(metadata=ObjectMeta(name=name), value=SYSTEM[name])
        why = self.unread or f"the cluster has none of that name; it has {', '.join(sorted(self.classes)) or 'none'}"
        raise ChangeError(
            f"-f: {pod}: spec.priorityClassName: PriorityClass {name} is not known: {why}; add its manifest to the file"
        )


def read(documents: Iterable[Mapping[str, Any]], *, cluster: Iterable[Mapping[str, Any]], unread: str) -> Priorities:
    """Classes of the cluster, and those among the manifests, which go first. Raises ChangeError for one that cannot be read."""
    classes: dict[str, PriorityClass] = {}
    for document in (*cluster, *(each for each in documents if _is_class(each))):
        try:
            found = nulls.convert(document, PriorityClass)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            name = (document.get("metadata") or {}).get("name")
            raise ChangeError(f"-f: PriorityClass {name}: cannot be read: {error}") from None
        classes[found.metadata.name] = found
    return Priorities(classes=classes, unread=unread)


def _is_class(document: Mapping[str, Any]) -> bool:
    return document.get("kind") == "PriorityClass" and str(document.get("apiVersion")).partition("/")[0] == GROUP
