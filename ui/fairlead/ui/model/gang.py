"""The page of one gang: its explanation as `fairlead explain -o json` has it, and what of it is linked; pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from fairlead.kube.resources import Raw
from fairlead.ui.model import idle_devices, plain_pods
from fairlead.ui.model.explanations import Explanation, gang_explanation, gang_of, holders_of, pod_explanation
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gangs import line
from fairlead.ui.model.line import Line

NEAR_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderLink:
    """A gang with devices that this one could use; `gang` "": claims outside any gang."""

    gang: str
    queue: str
    devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangView:
    line: Line
    explanation: Explanation
    holders: tuple[HolderLink, ...] = ()
    reserved: tuple[str, ...] = ()  # nodes that are kept free for it


def find(facts: Facts, namespace: str, name: str, *, known: Raw | None = None) -> GangView | None:
    """A Gang, or a pod that is a gang of one without a Gang object. None where there is neither. `known`: the Gang, where it was found."""
    raw = known or raw_of(facts, namespace, name)
    if raw is not None:
        devices = _devices(facts, raw)
        return GangView(
            line=line(raw, now=facts.at),
            reserved=tuple((raw.get("status") or {}).get("reservedNodes") or ()),
            explanation=gang_explanation(raw, now=facts.at, devices=devices),
            holders=tuple(
                HolderLink(
                    gang=each.get("gang") or "", queue=each.get("queue") or "", devices=int(each.get("devices") or 0)
                )
                for each in holders_of(raw)
            ),
        )
    pod = next((each for each in facts.pods if _is(each, namespace, name) and plain_pods.is_plain(each)), None)
    if pod is None:
        return None
    running = (pod.get("status") or {}).get("phase") == "Running"
    devices = _devices_of(facts, namespace, {str(pod["metadata"].get("uid", ""))}) if running else ""
    (seen,) = plain_pods.lines([pod], [], now=facts.at)
    return GangView(line=seen, explanation=pod_explanation(pod, None, now=facts.at, devices=devices))


def raw_of(facts: Facts, namespace: str, name: str) -> Raw | None:
    return next((each for each in facts.gangs if _is(each, namespace, name)), None)


def near(facts: Facts, namespace: str, name: str) -> list[str]:
    """namespace/name of gangs that are called the same elsewhere, or nearly the same there."""
    ids = [(raw["metadata"].get("namespace", ""), raw["metadata"]["name"]) for raw in facts.gangs]
    same = [f"{where}/{each}" for where, each in ids if each == name]
    here = [each for where, each in ids if where == namespace]
    return [*same, *(f"{namespace}/{each}" for each in difflib.get_close_matches(name, here, NEAR_MAX))][:NEAR_MAX]


def _devices(facts: Facts, gang: Raw) -> str:
    if (gang.get("status") or {}).get("phase") != "Running":
        return ""
    namespace, name = gang["metadata"]["namespace"], gang["metadata"]["name"]
    pods = {
        str(pod["metadata"].get("uid", ""))
        for pod in facts.pods
        if pod["metadata"]["namespace"] == namespace and gang_of(pod) == name
    }
    return _devices_of(facts, namespace, pods)


def _devices_of(facts: Facts, namespace: str, pods: set[str]) -> str:
    if not pods:
        return ""
    own = [claim for claim in facts.claims if claim.metadata.namespace == namespace]
    return idle_devices.line(own, pods, now=facts.at)


def _is(raw: Raw, namespace: str, name: str) -> bool:
    return bool(raw["metadata"]["name"] == name and raw["metadata"].get("namespace", "") == namespace)
