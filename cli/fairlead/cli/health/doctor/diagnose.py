"""Every cause, asked in the order in which one explains another: what lies beneath comes first among causes that stop as much.

A cause that stops everything comes before one that stops some; among equals the order of `CAUSES` holds, since without the API there
are no slices, without the programs no leader, and without slices no flavor has a device. Pure.
"""

from __future__ import annotations

from fairlead.cli.health.doctor import admission, devices, platform, programs, release, waiting
from fairlead.cli.health.doctor.finding import Cause, Finding
from fairlead.cli.health.seen import Seen

CAUSES: tuple[Cause, ...] = (
    release.api,
    release.gates,
    programs.kinds,
    programs.rights,
    programs.leader,
    admission.certificate,
    admission.registration,
    admission.reachability,
    admission.classes,
    devices.published,
    platform.kubelets,
    devices.runtime,
    devices.stale,
    devices.unusable,
    platform.control_plane,
    admission.foreign,
    admission.fence,
    devices.two_drivers,
    devices.preparing,
    waiting.queues,
    waiting.kueue,
    waiting.other_schedulers,
    waiting.unseen,
    devices.partly_published,
    platform.clocks,
    programs.images,
    release.untried,
    release.lacking,
)


def diagnose(seen: Seen) -> list[Finding]:
    """The most likely cause first."""
    found = [finding for cause in CAUSES for finding in cause(seen)]
    return sorted(found, key=lambda finding: finding.stops)


def gaps(seen: Seen) -> list[str]:
    """What could not be looked at, and why, each once."""
    told = [listed.gap for listed in seen.lists.values() if listed.gap]
    told += [
        seen.groups_gap,
        seen.gates_gap,
        seen.slice_trial.gap,
        seen.allowed_gap,
        seen.trial.message if seen.trial.answered is None else "",
    ]
    return sorted({each for each in told if each})
