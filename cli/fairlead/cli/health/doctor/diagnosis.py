"""`fairlead doctor`: every cause is asked, in the order in which one explains another; what was found is printed, and the exit status says whether
anything stops gangs.

A cause that stops everything comes before one that stops some; among equals the order of `CAUSES` holds, since without the API there
are no slices, without the programs no leader, and without slices no flavor has a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fairlead.cli import printer
from fairlead.cli.health import reading
from fairlead.cli.health.doctor import admission, before_install, devices, programs, waiting
from fairlead.cli.health.doctor.finding import Cause, Finding, Stops
from fairlead.cli.health.doctor.waiting import reasons
from fairlead.cli.health.reading import SHARED, Looking
from fairlead.cli.health.seen import Seen
from fairlead.cli.health.support import SERVED_GROUPS, lines
from fairlead.cli.printer import say_coloured
from fairlead.cli.reading import program
from fairlead.kube import resources
from fairlead.ui.reading.cluster import Cluster

WELL, FOUND, NOT_REACHED = 0, 1, 3
WELL_TEXT = "nothing was found that keeps gangs from being scheduled"
WELL_BEFORE = "nothing was found that stands in the way of an install"
KINDS = (
    *SHARED,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.EVENTS,
    resources.ENDPOINT_SLICES,
    resources.MUTATING_WEBHOOKS,
    resources.VALIDATING_WEBHOOKS,
    resources.VALIDATING_POLICIES,
    resources.VALIDATING_POLICY_BINDINGS,
)
_WEIGHTS = {Stops.EVERYTHING: "stops everything", Stops.SOME: "stops some", Stops.NOTHING: "a note"}
_COLOURS = {Stops.EVERYTHING: "red", Stops.SOME: "yellow", Stops.NOTHING: ""}
CAUSES: tuple[Cause, ...] = (
    programs.api,
    programs.gates,
    programs.kinds,
    programs.rights,
    programs.leader,
    admission.certificate,
    admission.registration,
    admission.reachability,
    admission.classes,
    devices.published,
    programs.kubelets,
    devices.runtime,
    devices.stale,
    devices.unusable,
    programs.control_plane,
    admission.foreign,
    admission.fence,
    admission.mixed_drivers,
    admission.shared_drivers,
    devices.two_drivers,
    devices.preparing,
    waiting.queues,
    waiting.kueue,
    waiting.other_schedulers,
    waiting.unseen,
    devices.partly_published,
    programs.clocks,
    programs.images,
    programs.untried,
    programs.lacking,
)


BEFORE_INSTALL: tuple[Cause, ...] = (
    programs.api,
    programs.gates,
    before_install.kubelet_gates,
    programs.kubelets,
    before_install.gpu_nodes,
    devices.runtime,
    before_install.rights,
    before_install.namespace,
    before_install.device_plugin,
    before_install.other_driver,
    programs.control_plane,
    programs.clocks,
    before_install.driver_container,
    before_install.left_out,
    before_install.certificates,
    before_install.installed,
    programs.untried,
    programs.lacking,
)


@dataclass(frozen=True, kw_only=True)
class Doctor(Looking):
    """Say why nothing is scheduled: what is missing or in the way, the most likely cause first, each with the next step.

    It reads with your own rights, changes nothing, and names what it may not read. With --before-install: what an install would meet.

    Exit status 0: nothing found that stops gangs (there may be notes). 1: something found. 2: wrong flags. 3: the cluster cannot be reached.
    """

    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the pod that is created for trial.")
    ] = "default"
    try_webhook: Annotated[
        bool,
        typer.Option(
            "--try-webhook/--no-try-webhook",
            help="Create a pod with dryRun, to see whether the apiserver reaches the webhook. Nothing is stored.",
        ),
    ] = True
    before_install: Annotated[
        bool, typer.Option("--before-install", help="On a cluster without Fairlead: what is missing for an install.")
    ] = False

    def run(self) -> int:
        before = self.before_install

        async def work(cluster: Cluster) -> Seen:
            return await reading.read(
                cluster,
                SHARED if before else KINDS,
                drivers=self.managed_drivers,
                shared_drivers=self.shared_claim_drivers,
                look_into=SERVED_GROUPS,
                parts=("gates", "kubelets", "install") if before else ("gates", "rights"),
                try_slices=self.try_slices,
                try_webhook=self.namespace if self.try_webhook and not before else None,
            )

        seen = self.ask(work, unread=NOT_REACHED)
        found = diagnose(seen, BEFORE_INSTALL if before else CAUSES)
        if self.output != "table":
            printer.structured(structured(seen, found), self.output)
        else:
            if before:
                printer.paragraph(before_install.summary(seen))
            _print(seen, found, well=WELL_BEFORE if before else WELL_TEXT)
        return FOUND if any(each.stops is not Stops.NOTHING for each in found) else WELL


def diagnose(seen: Seen, causes: Sequence[Cause] = CAUSES) -> list[Finding]:
    """The most likely cause first."""
    found = [finding for cause in causes for finding in cause(seen)]
    return sorted(found, key=lambda finding: finding.stops)


def gaps(seen: Seen) -> list[str]:
    """What could not be looked at, and why, each once."""
    told = [listed.gap for listed in seen.lists.values() if listed.gap]
    told += [
        seen.groups_gap,
        seen.gates_gap,
        seen.kubelets_gap,
        seen.slice_trial.gap,
        seen.allowed_gap,
        seen.trial.message if seen.trial.answered is None else "",
    ]
    return sorted({each for each in told if each})


def structured(seen: Seen, found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "kubernetes": seen.release,
        "needs": [each.structured() for each in lines(seen)],
        "findings": [each.structured() for each in found],
        "waiting": reasons(seen),
        "notLookedAt": gaps(seen),
    }


def _print(seen: Seen, found: Sequence[Finding], *, well: str = WELL_TEXT) -> None:
    for number, each in enumerate(found, 1):
        weight = (_WEIGHTS[each.stops], _COLOURS[each.stops])
        say_coloured([(f"{number}. ", ""), (each.code, "bold"), (" (", ""), weight, (")", "")])
        printer.paragraph(each.what, indent=3)
        for line in each.evidence:
            printer.paragraph(f"seen: {line}", indent=3)
        printer.paragraph(f"next: {each.next_step}", indent=3)
    if not any(each.stops is not Stops.NOTHING for each in found):
        more = ", as far as could be looked" if gaps(seen) else ""
        printer.paragraph(f"{well}{more}")
    waits = reasons(seen)
    if waits:
        printer.paragraph(f"{waits}; of each: {program()} gangs -A, {program()} explain NAME -n NAMESPACE")
    for gap in gaps(seen):
        printer.paragraph(f"not looked at: {gap}")
