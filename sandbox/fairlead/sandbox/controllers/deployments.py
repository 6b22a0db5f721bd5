"""What the Deployment controller decides: its ReplicaSet of now, how many replicas each of its sets has, and the status.

Pure. Example: 4 replicas, maxSurge 1, maxUnavailable 1, all available, a new template. The new set may have 1 (5 pods in all), the
old one goes to 3 at once, since 3 have to be available and 4 are; each pod of the new set that becomes available lets one more go.
Source: kubernetes pkg/controller/deployment (rolling.go, recreate.go, progress.go, util), 1.36.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Final

from fairlead.kube import timestamps
from fairlead.sandbox.controllers.replica_sets import replicas_of
from fairlead.sandbox.objects import (
    Obj,
    annotations_of,
    condition,
    is_deleting,
    labels_of,
    meta,
    name_of,
    namespace_of,
    owner_reference,
    phase_of,
    spec_of,
    status_of,
    with_condition,
)

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MOST: Final = "deployment.kubernetes.io/max-replicas"
_NO_DEADLINE: Final = 2**31 - 1


def template_hash(deployment: Obj) -> str:
    """A hash of the pods' template: the same for the same template. Ten of the characters that names may have without making a word."""
    text = json.dumps(spec_of(deployment).get("template"), sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2s(text.encode()).digest()
    return "".join("bcdfghjklmnpqrstvwxz2456789"[byte % 27] for byte in digest[:10])


def current(deployment: Obj, sets: Iterable[Obj]) -> Obj | None:
    """The set that has its template."""
    return next((each for each in sets if labels_of(each).get(HASH) == template_hash(deployment)), None)


def new_set(deployment: Obj, sets: Sequence[Obj]) -> Obj:
    """The set for a template that has none: with as many replicas as may be started at once."""
    hashed = template_hash(deployment)
    spec, template = spec_of(deployment), spec_of(deployment)["template"]
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH: hashed}
    selector = spec["selector"]
    annotations = {
        **{
            key: value
            for key, value in annotations_of(deployment).items()
            if not key.startswith("kubectl.kubernetes.io/")
        },
        REVISION: str(1 + max((revision_of(each) for each in sets), default=0)),
        DESIRED: str(replicas_of(deployment)),
        MOST: str(replicas_of(deployment) + surge_and_unavailable(deployment)[0]),
    }
    made: Obj = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{name_of(deployment)}-{hashed}",
            "namespace": namespace_of(deployment),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(deployment, api_version="apps/v1", kind="Deployment")],
        },
        "spec": {
            "replicas": 0,
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: hashed}},
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
            **({"minReadySeconds": spec["minReadySeconds"]} if spec.get("minReadySeconds") else {}),
        },
    }
    made["spec"]["replicas"] = _of_new(deployment, made, sets)
    return made


def revision_of(obj: Obj) -> int:
    text = annotations_of(obj).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def scales(deployment: Obj, sets: Sequence[Obj], pods: Sequence[Obj]) -> dict[str, int]:
    """By name, the sets that are to have another number of replicas now. `pods` are those of all its sets."""
    if is_deleting(deployment):
        return {}
    new = current(deployment, sets)
    old = sorted((each for each in sets if each is not new), key=lambda each: str(meta(each).get("creationTimestamp")))
    if spec_of(deployment).get("paused"):
        only = [each for each in sets if replicas_of(each)]
        resized = len(only) == 1 and only[0] is new and replicas_of(only[0]) != replicas_of(deployment)
        return {name_of(only[0]): replicas_of(deployment)} if resized else {}
    if new is None:
        return {}
    if _strategy(deployment).get("type") == "Recreate":
        living = {name_of(each): 0 for each in old if replicas_of(each)}
        if living:
            return living
        left = any(
            phase_of(pod) not in {"Succeeded", "Failed"} and labels_of(pod).get(HASH) != labels_of(new).get(HASH)
            for pod in pods
        )
        return {} if left or replicas_of(new) == replicas_of(deployment) else {name_of(new): replicas_of(deployment)}
    wanted = _of_new(deployment, new, sets)
    if wanted != replicas_of(new):
        return {name_of(new): wanted}
    return _of_old(deployment, new, old)


def surge_and_unavailable(deployment: Obj) -> tuple[int, int]:
    """How many pods there may be beyond the replicas, and how many fewer may be available: surge rounds up, the other down."""
    rolling = _strategy(deployment).get("rollingUpdate")
    if _strategy(deployment).get("type") == "Recreate" or rolling is None:
        return 0, 0
    replicas = replicas_of(deployment)
    surge = _share(rolling.get("maxSurge", "25%"), replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), replicas, up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _share(value: object, replicas: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * replicas / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(str(value))


def _strategy(deployment: Obj) -> Obj:
    found: Obj = spec_of(deployment).get("strategy") or {}
    return found


def _of_new(deployment: Obj, new: Obj, sets: Sequence[Obj]) -> int:
    """How many replicas the set with the template of now has at the next step."""
    replicas = replicas_of(deployment)
    if _strategy(deployment).get("type") == "Recreate":
        return 0 if any(replicas_of(each) for each in sets if each is not new) else replicas
    if replicas_of(new) >= replicas:
        return replicas
    total = sum(replicas_of(each) for each in sets if name_of(each) != name_of(new)) + replicas_of(new)
    room = replicas + surge_and_unavailable(deployment)[0] - total
    return replicas_of(new) if room <= 0 else replicas_of(new) + min(room, replicas - replicas_of(new))


def _of_old(deployment: Obj, new: Obj, old: Sequence[Obj]) -> dict[str, int]:
    """Old sets shrink: first by what is not available, then as far as enough stay available."""
    least = replicas_of(deployment) - surge_and_unavailable(deployment)[1]
    total = sum(replicas_of(each) for each in (new, *old))
    may_go = total - least - (replicas_of(new) - _available(new))
    left = {name_of(each): replicas_of(each) for each in old}
    if may_go <= 0 or not any(left.values()):
        return {}
    for each in old:
        broken = min(may_go, left[name_of(each)] - min(left[name_of(each)], _available(each)))
        left[name_of(each)] -= broken
        may_go -= broken
    spare = sum(_available(each) for each in (new, *old)) - least
    for each in old:
        going = max(0, min(spare, left[name_of(each)]))
        left[name_of(each)] -= going
        spare -= going
    return {name_of(each): left[name_of(each)] for each in old if left[name_of(each)] != replicas_of(each)}


def outdated(deployment: Obj, sets: Sequence[Obj]) -> list[str]:
    """Old sets beyond the history that is kept, of those that have no pods."""
    kept = spec_of(deployment).get("revisionHistoryLimit")
    new = current(deployment, sets)
    old = [each for each in sets if each is not new and not replicas_of(each) and not status_of(each).get("replicas")]
    old.sort(key=revision_of)
    return [name_of(each) for each in old[: max(0, len(old) - (10 if kept is None else int(kept)))]]


def _available(replica_set: Obj) -> int:
    return int(status_of(replica_set).get("availableReplicas") or 0)


def deployment_status(deployment: Obj, sets: Sequence[Obj], *, now_s: float) -> tuple[Obj, float | None]:
    """The status, and in how many seconds its deadline for progress ends."""
    new = current(deployment, sets)
    replicas, now = replicas_of(deployment), timestamps.seconds(now_s)
    counts = {
        "replicas": sum(int(status_of(each).get("replicas") or 0) for each in sets),
        "updatedReplicas": int(status_of(new).get("replicas") or 0) if new is not None else 0,
        "readyReplicas": sum(int(status_of(each).get("readyReplicas") or 0) for each in sets),
        "availableReplicas": sum(_available(each) for each in sets),
    }
    counts["unavailableReplicas"] = max(0, sum(replicas_of(each) for each in sets) - counts["availableReplicas"])
    before = status_of(deployment)
    conditions: list[Obj] = [each for each in before.get("conditions") or () if each["type"] != "ReplicaFailure"]
    enough = counts["availableReplicas"] >= replicas - surge_and_unavailable(deployment)[1]
    available = {
        "type": "Available",
        "status": "True" if enough else "False",
        "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
    }
    conditions = with_condition(conditions, available, now=now)
    conditions, left_s = _progress(deployment, new, counts, conditions, now_s)
    failures = [found for each in sets if (found := condition(each, "ReplicaFailure")) is not None]
    status: Obj = {
        "observedGeneration": meta(deployment).get("generation", 1),
        **{name: count for name, count in counts.items() if count},
        "conditions": [*conditions, *(dict(each) for each in failures[:1])],
    }
    return status, left_s


def _progress(
    deployment: Obj, new: Obj | None, counts: dict[str, int], conditions: list[Obj], now_s: float
) -> tuple[list[Obj], float | None]:
    """With the Progressing condition, whose `lastUpdateTime` is that of the last progress."""
    deadline_s = int(spec_of(deployment).get("progressDeadlineSeconds") or _NO_DEADLINE)
    replicas, before = replicas_of(deployment), status_of(deployment)
    shown = f'ReplicaSet "{name_of(new)}"' if new is not None else f'Deployment "{name_of(deployment)}"'
    known = next((each for each in conditions if each["type"] == "Progressing"), None)
    done = counts["updatedReplicas"] == counts["replicas"] == counts["availableReplicas"] == replicas
    better = any(
        counts[name] > int(before.get(name) or 0) for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    fewer_old = counts["replicas"] - counts["updatedReplicas"] < int(before.get("replicas") or 0) - int(
        before.get("updatedReplicas") or 0
    )
    changed = known is None or shown not in str(known.get("message"))
    since = timestamps.parse(str(known["lastUpdateTime"])) if known is not None else now_s
    if done:
        state, reason, message = "True", "NewReplicaSetAvailable", f"{shown} has successfully progressed."
    elif changed or better or fewer_old:
        state, reason, message = "True", "ReplicaSetUpdated", f"{shown} is progressing."
    elif known is not None and known["reason"] != "NewReplicaSetAvailable" and now_s - since > deadline_s:
        state, reason, message = "False", "ProgressDeadlineExceeded", f"{shown} has timed out progressing."
    else:
        waits = known is not None and known["reason"] == "ReplicaSetUpdated"
        return conditions, max(0.0, since + deadline_s - now_s) + 1 if waits and deadline_s < _NO_DEADLINE else None
    moved = changed or better or fewer_old or known is None or known["reason"] != reason
    updated = timestamps.seconds(now_s) if moved else str(known["lastUpdateTime"] if known is not None else "")
    found = {"type": "Progressing", "status": state, "reason": reason, "message": message, "lastUpdateTime": updated}
    left_s = deadline_s + 1.0 if reason == "ReplicaSetUpdated" and deadline_s < _NO_DEADLINE else None
    return with_condition(conditions, found, now=timestamps.seconds(now_s)), left_s
