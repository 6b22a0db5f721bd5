"""`fairlead doctor`: reads the cluster, prints what it found, and says by its exit status whether anything stops gangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.cli.health import reading as clusters
from fairlead.cli.health.commands import Doctor
from fairlead.cli.health.doctor.diagnose import diagnose, gaps
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.doctor.waiting import reasons
from fairlead.cli.health.seen import Seen
from fairlead.cli.health.support import SERVED_GROUPS, lines
from fairlead.cli.printer import say_coloured
from fairlead.cli.views import printing, reading
from fairlead.kube import resources
from fairlead.kube.resources import Resource
from fairlead.ui.reading.cluster import Cluster

WELL, FOUND, NOT_REACHED = 0, 1, 3
KINDS: tuple[Resource[Any], ...] = (
    resources.NODES,
    resources.NAMESPACES,
    resources.LEASES,
    resources.PODS,
    resources.EVENTS,
    resources.DEPLOYMENTS,
    resources.DAEMON_SETS,
    resources.ENDPOINT_SLICES,
    resources.RESOURCE_SLICES,
    resources.RESOURCE_CLAIMS,
    resources.DEVICE_CLASSES,
    resources.QUEUES,
    resources.FLAVORS,
    resources.GANGS,
    resources.TENANCY_POLICIES,
    resources.MUTATING_WEBHOOKS,
    resources.VALIDATING_WEBHOOKS,
    resources.VALIDATING_POLICIES,
    resources.VALIDATING_POLICY_BINDINGS,
)
_WEIGHTS = {Stops.EVERYTHING: "stops everything", Stops.SOME: "stops some", Stops.NOTHING: "a note"}
_COLOURS = {Stops.EVERYTHING: "red", Stops.SOME: "yellow", Stops.NOTHING: ""}


def doctor(asked: Doctor) -> int:
    """The exit status: 0 where nothing was found that stops gangs, 1 where something was, 3 where the cluster was not reached."""

    async def work(cluster: Cluster) -> Seen:
        return await clusters.read(
            cluster,
            KINDS,
            drivers=asked.managed_drivers,
            look_into=SERVED_GROUPS,
            parts=("gates", "rights"),
            try_slices=asked.try_slices,
            try_webhook=asked.namespace if asked.try_webhook else None,
        )

    _, seen = reading.run(work, kubeconfig=asked.kubeconfig, context=asked.context)
    if seen is None:
        return NOT_REACHED
    found = diagnose(seen)
    if asked.output != "table":
        printing.structured(structured(seen, found), asked.output)
    else:
        _print(seen, found)
    return FOUND if any(each.stops is not Stops.NOTHING for each in found) else WELL


def structured(seen: Seen, found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "kubernetes": seen.release,
        "needs": [each.structured() for each in lines(seen)],
        "findings": [each.structured() for each in found],
        "waiting": reasons(seen),
        "notLookedAt": gaps(seen),
    }


def _print(seen: Seen, found: Sequence[Finding]) -> None:
    for number, each in enumerate(found, 1):
        weight = (_WEIGHTS[each.stops], _COLOURS[each.stops])
        say_coloured([(f"{number}. ", ""), (each.code, "bold"), (" (", ""), weight, (")", "")])
        printing.paragraph(each.what, indent=3)
        for line in each.evidence:
            printing.paragraph(f"seen: {line}", indent=3)
        printing.paragraph(f"next: {each.next_step}", indent=3)
    if not any(each.stops is not Stops.NOTHING for each in found):
        more = ", as far as could be looked" if gaps(seen) else ""
        printing.paragraph(f"nothing was found that keeps gangs from being scheduled{more}")
    waits = reasons(seen)
    if waits:
        printing.paragraph(
            f"{waits}; of each: {reading.program()} gangs -A, {reading.program()} explain NAME -n NAMESPACE"
        )
    for gap in gaps(seen):
        printing.paragraph(f"not looked at: {gap}")
