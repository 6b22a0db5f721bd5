"""Gangs of one that have no Gang object, since they did not wait: read from their pods. Pure.

The webhook's record of their claims tells such pods from those that Fairlead does not manage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from fairlead.api import claim_sources, foreign, legacy, names
from fairlead.kube import timestamps
from fairlead.kube.resources import Raw
from fairlead.ui.model.gangs import Line, line_of

_PHASES = {"Running": "Running", "Succeeded": "Finished", "Failed": "Failed"}
_REASONS = {
    "Gathering": "Queued",
    "Admitted": "Starting",
    "Running": "MembersRun",
    "Finished": "PodsSucceeded",
    "Failed": "PodsFailed",
}


def is_plain(pod: Raw) -> bool:
    """Whether the pod is a gang of one whose claims the webhook named."""
    meta = pod["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    group = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    return names.CLAIM_SOURCES in annotations and foreign.gang_name(annotations, labels, group) is None


def gang_of(pod: Raw) -> str:
    """The name of the pod's gang, by the controller's rules."""
    meta = pod["metadata"]
    group = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    return foreign.gang_name(meta.get("annotations") or {}, meta.get("labels") or {}, group) or str(meta["name"])


def queue_of(pod: Raw) -> str:
    """That took it, or that it names; "" while neither is known."""
    annotations, labels = pod["metadata"].get("annotations") or {}, pod["metadata"].get("labels") or {}
    return str(annotations.get(names.ADMITTED_QUEUE) or annotations.get(names.QUEUE) or labels.get(names.QUEUE) or "")


def lines(pods: Iterable[Raw], gangs: Iterable[Raw], *, now: float) -> Iterator[Line]:
    """One of each such pod, in the order of `pods`."""
    known = {(raw["metadata"].get("namespace", ""), raw["metadata"]["name"]) for raw in gangs}
    for pod in pods:
        if is_plain(pod) and (pod["metadata"]["namespace"], pod["metadata"]["name"]) not in known:
            yield line(pod, now=now)


def claims(pod: Raw) -> Iterator[str]:
    """Where each of the pod's named claims comes from, in words."""
    meta = pod["metadata"]
    try:
        sources = claim_sources.read(meta.get("annotations") or {})
    except claim_sources.ClaimSourcesError as error:
        yield str(error)
        return
    for entry, source in sorted(sources.items()):
        yield f"{entry}: ResourceClaim {meta['namespace']}/{source.claim}, made from {_origin(source)}"


def _origin(source: claim_sources.ClaimSource) -> str:
    request = legacy.parse_template_name(source.template) if source.is_legacy else None
    if request is None:
        return f"ResourceClaimTemplate {source.template}"
    narrowed = f" ({', '.join(f'{key} {value}' for key, value in request.narrow)})" if request.narrow else ""
    return f"the limit {request.resource}: {request.count}{narrowed}"


def line(pod: Raw, *, now: float) -> Line:
    """The line of a pod that `is_plain`; of one that cannot be read what it is called, and why."""
    return line_of(partial(_line, pod, now=now), pod)


def _line(pod: Raw, *, now: float) -> Line:
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    gated = any(gate.get("name") == names.ADMISSION_GATE for gate in spec.get("schedulingGates") or ())
    phase = _PHASES.get(status.get("phase", ""), "Gathering" if gated else "Admitted")
    node = spec.get("nodeName")
    return Line(
        namespace=meta["namespace"],
        name=meta["name"],
        phase=phase,
        queue=queue_of(pod),
        position=None,
        size=1,
        members=1,
        ready=int(phase in {"Running", "Finished"}),
        nodes=(node,) if node else (),
        age_s=max(0.0, now - timestamps.parse(meta["creationTimestamp"])) if meta.get("creationTimestamp") else 0.0,
        reason=_REASONS[phase],
        evicting="",
        why="",
    )
