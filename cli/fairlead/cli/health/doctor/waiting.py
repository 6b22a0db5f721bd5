"""Causes at what waits: queues that cannot take it, pods that another system claims, pods that Fairlead never saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fairlead.api import names
from fairlead.api.object_names import is_exempt
from fairlead.api.texts import counted
from fairlead.cli.health import values
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.seen import Seen, claims_of, has_gate, legacy_limits, plugin_gpus, results_of
from fairlead.engine.types.reasons import Code
from fairlead.kube.resources import FLAVORS, GANGS, NAMESPACES, QUEUES, Raw

LATE_S = 60.0
_NO_QUEUE = {Code.UNKNOWN_QUEUE.value, Code.QUEUE_NOT_FOR_NAMESPACE.value, Code.QUEUE_NOT_LEAF.value}
_WAITING = {"Waiting", "Gathering"}


def queues(seen: Seen) -> Iterator[Finding]:
    """Gangs whose queue does not take them; then what is wrong with Queues and Flavors by themselves."""
    if seen.gap(QUEUES, FLAVORS):
        return
    stray = [each for each in waiting_gangs(seen) if values.text(each, "status", "reason") in _NO_QUEUE]
    if stray:
        queues_named = {values.text(each, "spec", "queue") or values.text(each, "status", "queue") for each in stray}
        known = [values.name(each) for each in seen.items(QUEUES)]
        yield Finding(
            code="NoQueueForGangs",
            stops=Stops.SOME,
            what=f"{len(stray)} of {len(waiting_gangs(seen))} waiting gangs name a queue that does not take them",
            evidence=(
                f"gangs {values.some(map(values.key, stray))}",
                f"queues that they name: {values.some(queues_named - {''}) or 'none'}; queues that exist: {values.some(known) or 'none'}",
            ),
            next_step="create the queue, or correct fairlead.dev/queue or the namespaceSelector of the queue: fairlead explain NAME -n NAMESPACE",
        )
    unready = [
        (each, values.condition(each, "Ready"))
        for resource in (QUEUES, FLAVORS)
        for each in seen.items(resource)
        if values.condition(each, "Ready").get("status") == "False"
    ]
    if unready:
        flavors = list(seen.items(FLAVORS))
        all_flavors = bool(flavors) and all(
            values.condition(each, "Ready").get("status") == "False" for each in flavors
        )
        yield Finding(
            code="QueueNotReady",
            stops=Stops.SOME,
            what="no flavor selects any device, so quota counts nothing"
            if all_flavors
            else "queues or flavors are not Ready",
            evidence=tuple(
                values.clean(f"{values.name(each)}: {values.text(why, 'reason')}: {values.text(why, 'message')}")
                for each, why in unready[:5]
            ),
            next_step="kubectl describe queue NAME, kubectl describe flavor NAME; the reasons are in docs/queues.md",
        )
    flavors_named = {
        values.text(entry, "flavor") for each in seen.items(QUEUES) for entry in values.objects(each, "spec", "flavors")
    }
    if seen.items(QUEUES) and flavors_named - {""} and not seen.items(FLAVORS) and seen.listed(FLAVORS).served:
        yield Finding(
            code="NoFlavor",
            stops=Stops.SOME,
            what="queues have quota of flavors, and no Flavor exists: their quota counts nothing",
            evidence=(f"named: {values.some(flavors_named - {''})}",),
            next_step="kubectl apply -f examples/00-queues, with selectors for your devices (docs/queues.md)",
        )
    if not seen.items(QUEUES) and seen.listed(QUEUES).served and not stray:
        yield Finding(
            code="NoQueue",
            stops=Stops.NOTHING,
            what="no Queue exists: all gangs wait in one line, without quota",
            next_step="kubectl apply -f examples/00-queues, or fairlead tenant create NAME (docs/queues.md)",
        )


def waiting_gangs(seen: Seen) -> list[Raw]:
    return [each for each in seen.items(GANGS) if values.text(each, "status", "phase") in _WAITING]


def reasons(seen: Seen) -> str:
    """What waits, by reason: `3 gangs wait: 2 DevicesInUse, 1 OverQueueLimit`. Empty where none does."""
    gangs = waiting_gangs(seen)
    if not gangs:
        return ""
    counts = Counter(values.text(each, "status", "reason") or "no reason yet" for each in gangs)
    told = ", ".join(
        f"{count} {reason}" for reason, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:5]
    )
    return f"{len(gangs)} gang{'s' if len(gangs) > 1 else ''} wait{'' if len(gangs) > 1 else 's'}: {told}"


def kueue(seen: Seen) -> Iterator[Finding]:
    pods = [pod for pod in seen.waiting_pods if has_gate(pod, names.KUEUE_GATE)]
    if pods:
        where = values.some({values.namespace(pod) for pod in pods})
        yield Finding(
            code="ClaimedByKueue",
            stops=Stops.SOME,
            what=f"Kueue claims {counted(len(pods), 'waiting pod')}, too, and has not admitted what it claims",
            evidence=(f"pods {values.some(map(values.key, pods))}, with the gate {names.KUEUE_GATE}",),
            next_step=f"kubectl get workloads -n NAMESPACE says what Kueue waits for; or let one system have the namespaces ({where}): take kueue.x-k8s.io/queue-name off the jobs, or label the namespaces {names.IGNORE_LABEL}",
        )


def other_schedulers(seen: Seen) -> Iterator[Finding]:
    found: dict[str, list[Raw]] = {}
    for pod in seen.waiting_pods:
        scheduler = values.text(pod, "spec", "schedulerName")
        if scheduler not in {"", names.DEFAULT_SCHEDULER}:
            found.setdefault(scheduler, []).append(pod)
    for scheduler, pods in sorted(found.items()):
        yield Finding(
            code="OtherScheduler",
            stops=Stops.SOME,
            what=f"Fairlead releases no pods to the scheduler {scheduler}, which {counted(len(pods), 'waiting pod')} {'names' if len(pods) == 1 else 'name'}",
            evidence=(f"pods {values.some(map(values.key, pods))}: spec.schedulerName {scheduler}",),
            next_step=f"take schedulerName: {scheduler} off their workloads, so that kube-scheduler binds what Fairlead places (docs/migration.md)",
        )


def unseen(seen: Seen) -> Iterator[Finding]:
    """Pods that want managed devices and have no gate: the webhook did not review them, and the fence keeps devices from them."""
    exempt = {
        values.name(each)
        for each in seen.items(NAMESPACES)
        if is_exempt(values.name(each), {key: str(label) for key, label in values.labels_of(each).items()})
    }
    late = [
        pod
        for pod in seen.waiting_pods
        if not values.sequence(pod, "spec", "schedulingGates")
        and (made := values.time_s(pod, "metadata", "creationTimestamp")) is not None
        and seen.now - made > LATE_S
    ]
    plugin = any(plugin_gpus(node) for node in seen.items("nodes"))
    for code, pods, what in (
        ("PodsNotGated", [pod for pod in late if _asks(seen, pod)], "devices of Fairlead, without a gate"),
        (
            "LimitNotTranslated",
            [pod for pod in late if legacy_limits(pod) and not _asks(seen, pod) and not plugin],
            f"{names.LEGACY_GPU}, whose limit was not made a claim, and no node offers it",
        ),
    ):
        if not pods:
            continue
        left_out = sorted({values.namespace(pod) for pod in pods} & exempt)
        yield Finding(
            code=code,
            stops=Stops.SOME,
            what=f"the webhook did not review {counted(len(pods), 'waiting pod')} for {what}",
            evidence=(
                f"pods {values.some(map(values.key, pods))}",
                *([f"namespaces that it leaves out: {values.some(left_out)}"] if left_out else ()),
            ),
            next_step=f"take the label {names.IGNORE_LABEL} off the namespace, then delete these pods"
            if left_out
            else "delete these pods, so that their owners create them again and the webhook reviews them",
        )


def _asks(seen: Seen, pod: Raw) -> bool:
    """Whether a claim of its for managed devices has none yet."""
    found = [
        claim
        for name in claims_of(pod)
        if (claim := seen.managed_claims.get((values.namespace(pod), name))) is not None
    ]
    return any(not results_of(claim) for claim in found)
