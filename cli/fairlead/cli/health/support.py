"""Which lines of the table of Kubernetes releases hold on this cluster, and how that is known. Pure.

What was seen of the cluster comes before what its release says: its gates, what came back of a slice, what drivers found to be dropped,
discovery, allocated claims.
For what discovery lists a gate is not enough, since its version may not be served. A release's default is the last resort, and called so.
Example: 1.34.9 whose metrics may not be read, and which stored a slice's taints: `device-taints` is there; of `device-health`, which
no slice shows, the release says that it is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fairlead.api import names, withheld
from fairlead.api.texts import counted
from fairlead.cli.health import values
from fairlead.cli.health.seen import Seen, node_of
from fairlead.driver.publish import slices
from fairlead.kube import releases
from fairlead.kube.releases import NEWEST_TRIED, OLDEST, Minor, Need
from fairlead.kube.resources import DAEMON_SETS, RESOURCE_CLAIMS, Raw

SERVED_GROUPS = tuple(sorted({path.split(".", 2)[2] for need in releases.NEEDS for path in need.served}))
"""Groups that discovery has to be asked about."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """`there` None: not known. `known` is by what."""

    need: Need
    there: bool | None
    known: str

    @property
    def what(self) -> str:
        return plain(self.need.what)

    @property
    def without(self) -> str:
        return plain(self.need.without)

    def structured(self) -> dict[str, Any]:
        return {
            "key": self.need.key,
            "what": self.what,
            "gate": self.need.gate or None,
            "there": self.there,
            "known": self.known,
            "without": self.without,
        }


def plain(markdown: str) -> str:
    """The table is written for a page; a terminal shows no code."""
    return markdown.replace("`", "")


def lines(seen: Seen) -> tuple[Line, ...]:
    """All lines of the table; none where the release is older than all of it."""
    if seen.minor and seen.minor < OLDEST:
        return ()
    return tuple(_line(seen, need) for need in releases.NEEDS)


def less(seen: Seen) -> list[Line]:
    """What is not there, though the newest release that was tried has it as it comes."""
    return [each for each in lines(seen) if each.there is False and each.need.holds(NEWEST_TRIED)]


def gates_to_turn_on(seen: Seen, found: Iterable[Line]) -> list[str]:
    """Gates of these lines that the release has."""
    if not seen.minor:
        return []
    return sorted({each.need.gate for each in found if each.need.gate and each.need.stage(release_of(seen)) != "none"})


def asked_for(seen: Seen) -> Iterator[tuple[Line, str, list[Raw]]]:
    """What is not there and a flag of the driver asks for: the line, the flag, and the DaemonSets that have it."""
    for line in lines(seen):
        for flag in line.need.flags if line.there is False else ():
            if daemons := [each for each in driver_daemons(seen) if flag in values.arguments(each)]:
                yield line, flag, daemons


def driver_daemons(seen: Seen) -> list[Raw]:
    """DaemonSets that run Fairlead's driver."""
    return [
        each
        for each in seen.items(DAEMON_SETS)
        if values.namespace(each) == names.NAMESPACE
        and values.labels_of(each).get("app.kubernetes.io/component") == "driver"
    ]


def _line(seen: Seen, need: Need) -> Line:
    for known in (_by_discovery, _by_gate, _by_slice, _by_driver, _by_claims):
        if (found := known(seen, need)) is not None:
            return Line(need=need, there=found[0], known=found[1])
    return _by_release(seen, need)


def _by_discovery(seen: Seen, need: Need) -> tuple[bool, str] | None:
    """None where there is nothing to be listed, or where a group that is served did not answer."""
    if not need.served or seen.groups is None:
        return None
    wanted = {(f"{group}/{version}", plural) for plural, version, group in (each.split(".", 2) for each in need.served)}
    found = sorted(version for version, plural in wanted if plural in seen.discovered.get(version, ()))
    if found:
        return True, f"discovery lists them in {values.some(found)}"
    groups = {version.partition("/")[0] for version, _ in wanted}
    served = {f"{group}/{version}" for group in groups for version in seen.groups.get(group, ())}
    return (False, "discovery does not list them") if served <= seen.discovered.keys() else None


def _by_gate(seen: Seen, need: Need) -> tuple[bool, str] | None:
    there = seen.gates.get(need.gate)
    if there is None:
        return None
    return there, f"{need.gate} is {'on' if there else 'off'}, by the apiserver's metrics"


def _by_slice(seen: Seen, need: Need) -> tuple[bool, str] | None:
    there = seen.slice_trial.kept.get(need.key)
    if there is None:
        return None
    came = "came back whole" if there else "came back without it"
    return there, f"a slice created with dryRun {came}{'' if there or not need.gate else f' ({need.gate} is off)'}"


def _by_driver(seen: Seen, need: Need) -> tuple[bool, str] | None:
    """Our drivers say on their slices what they need and found to be dropped."""
    found = {
        node_of(each)
        for each in seen.slices
        if any(slices.NEEDS[group] is need for group in withheld.dropped(_texts(values.annotations_of(each))))
    }
    return (False, f"found to be dropped by the driver of {values.some(found)}") if found else None


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _by_claims(seen: Seen, need: Need) -> tuple[bool, str] | None:
    """The time of an allocation is there where one claim has it. Claims without it may have been allocated before an upgrade."""
    if need.key != "allocation-time":
        return None
    claims = [each for each in seen.items(RESOURCE_CLAIMS) if values.mapping(each, "status", "allocation")]
    having = [each for each in claims if values.value(each, "status", "allocation", "allocationTimestamp")]
    if not having:
        return None
    return (
        True,
        f"{len(having)} of {counted(len(claims), 'allocated claim')} {'has' if len(having) == 1 else 'have'} it",
    )


def _by_release(seen: Seen, need: Need) -> Line:
    if not seen.minor:
        return Line(need=need, there=None, known="the release is not known")
    stage, kubernetes = need.stage(release_of(seen)), f"Kubernetes {seen.release}"
    there = stage == "on"
    if stage == "none":
        return Line(need=need, there=False, known=f"{kubernetes} does not have it")
    if not need.gate:
        return Line(need=need, there=there, known=f"{kubernetes} {'has' if there else 'drops'} it")
    gap = seen.slice_trial.gap or seen.gates_gap
    hidden = f"whether {need.gate} was turned {'off' if there else 'on'} is not visible{f' ({gap})' if gap else ''}"
    return Line(need=need, there=there, known=f"{kubernetes} has it {'on' if there else 'off'} by default; {hidden}")


def release_of(seen: Seen) -> Minor:
    """The release of the cluster, which is known."""
    major, *minor = seen.minor
    return major, next(iter(minor), 0)
