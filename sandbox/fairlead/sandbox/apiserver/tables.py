"""Tables for kubectl: a kind's columns and what each object shows in them, as `kubectl get` prints on a real cluster.

Enters: objects and the time. Leaves: cells. tables.yaml has the columns of each model: those that show a field name its path,
the others are computed here, all of a kind by one function. The HTTP Table object is built in rendering.py.
Source: pkg/printers/internalversion/printers.go (1.36), apimachinery duration.HumanDuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

from fairlead.sandbox.apiserver.kinds.base import Column
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.schema import schema_of
from fairlead.sandbox.files import table

NONE = "<none>"
UNKNOWN = "<unknown>"
_ROLE_PREFIX = "node-role.kubernetes.io/"


@dataclass(frozen=True)
class Col:
    """A column as tables.yaml has it: `+name` is a wide one. `doc` is a text, or "Model.field" in the client's models; `cell` is a path, with what
    stands for nothing after a "?", or empty for what the kind's function computes.
    """

    name: str
    doc: str
    cell: str = ""
    type: str = "string"

    def column(self) -> Column:
        text = self.doc
        model, dot, field = text.partition(".")
        if dot and field.isidentifier() and model[:1].isupper() and " " not in model:
            text = schema_of(model).fields[field].description
        name = self.name.removeprefix("+")
        return Column(name, self.type, "name" if name == "Name" else "", text, int(name != self.name))

    def shown(self, obj: Json, now: datetime) -> Any:
        path, _, otherwise = self.cell.partition(" ?")
        if path == "age":
            return age_of(obj, now)
        value: Any = obj
        for key in path.split("."):
            value = (value or {}).get(key)
        return value if self.type == "date" else otherwise if value in {None, ""} else str(value)


NAME = Col("Name", "V1ObjectMeta.name", "metadata.name")
AGE = Col("Age", "V1ObjectMeta.creationTimestamp", "age")


class Table:
    """The descriptions of the columns are looked up at first use."""

    def __init__(self, cols: Sequence[Col], computed: Cells | None = None) -> None:
        self._cols, self._computed = cols, computed

    @cached_property
    def columns(self) -> list[Column]:
        return [col.column() for col in self._cols]

    def cells(self, obj: Json, now: datetime) -> list[Any]:
        computed = iter(self._computed(obj, now) if self._computed else ())
        return [col.shown(obj, now) if col.cell else next(computed) for col in self._cols]


GENERIC = Table([NAME, Col("Created At", "V1ObjectMeta.creationTimestamp", "metadata.creationTimestamp", "date")])


@cache
def table_of(model: str) -> Table:
    found = table(__file__, "tables.yaml")
    if model not in found:
        return GENERIC
    known = {"Name": NAME, "+Name": Col("+Name", NAME.doc, NAME.cell), "Age": AGE}
    return Table([known.get(row) or Col(*row.split(" | ")) for row in found[model]], COMPUTED.get(model))


def name_of(obj: Json) -> str:
    return str(obj.get("metadata", {}).get("name", ""))


def age_of(obj: Json, now: datetime) -> str:
    return since(obj.get("metadata", {}).get("creationTimestamp"), now)


def parse_time(text: str) -> datetime:
    """RFC 3339, with or without a fraction."""
    return datetime.fromisoformat(text).astimezone(UTC)


def since(text: str | None, now: datetime) -> str:
    return human((now - parse_time(text)).total_seconds()) if text else UNKNOWN


def human(seconds_float: float) -> str:
    """A duration as kubectl shows it.

    >>> [human(s) for s in (-5, 0, 119, 120, 605, 3 * 3600 + 60, 30 * 3600, 3 * 86400 + 3600, 400 * 86400)]
    ['<invalid>', '0s', '119s', '2m', '10m', '3h1m', '30h', '3d1h', '400d']
    """
    if seconds_float < -1:
        return "<invalid>"
    seconds = max(0, int(seconds_float))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        rest = seconds % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = seconds // 3600
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years = days // 365
    if hours < 24 * 365 * 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def label_selector(selector: Json | None) -> str:
    """A LabelSelector as `a=b,c in (d,e)`."""
    if selector is None:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted(selector.get("matchLabels", {}).items())]
    for one in selector.get("matchExpressions", []):
        values = ",".join(one.get("values", []))
        operator = one.get("operator")
        parts.append(
            {
                "In": f"{one.get('key')} in ({values})",
                "NotIn": f"{one.get('key')} notin ({values})",
                "Exists": str(one.get("key")),
                "DoesNotExist": f"!{one.get('key')}",
            }.get(str(operator), "<error>")
        )
    return ",".join(parts) or NONE


def _containers(obj: Json) -> list[str]:
    """Names and images of a workload's containers, and its selector: its wide columns."""
    found = _pod_spec(obj).get("containers") or []
    listed = [",".join(one.get(key, "") for one in found) for key in ("name", "image")]
    return [*listed, label_selector(obj.get("spec", {}).get("selector"))]


def _pod_spec(obj: Json) -> Json:
    spec: Json = obj.get("spec", {}).get("template", {}).get("spec") or {}
    return spec


def _found(listed: list[Json] | None, type_: str) -> Json | None:
    return next((one for one in listed or [] if one.get("type") == type_), None)


def _holds(obj: Json, type_: str) -> bool:
    condition = _found(obj.get("status", {}).get("conditions"), type_)
    return condition is not None and condition.get("status") == "True"


def _node(node: Json, _now: datetime) -> list[str]:
    status = node.get("status", {})
    info = status.get("nodeInfo") or {}
    known = _found(status.get("conditions"), "Ready") is not None
    state = "Unknown" if not known else "Ready" if _holds(node, "Ready") else "NotReady"
    if node.get("spec", {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    given = node.get("metadata", {}).get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in given if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX}
    roles |= {value for key, value in given.items() if key == "kubernetes.io/role" and value}
    kernel, arch = info.get("kernelVersion") or UNKNOWN, info.get("architecture")
    addresses = [
        (_found(status.get("addresses"), type_) or {"address": NONE}).get("address", "")
        for type_ in ("InternalIP", "ExternalIP")
    ]
    return [state, ",".join(sorted(roles)) or NONE, *addresses, f"{kernel} ({arch})" if arch else kernel]


def _secret(obj: Json, _now: datetime) -> list[str]:
    return [str(len(obj.get("data") or {}))]


def _event(obj: Json, now: datetime) -> list[Any]:
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    series = obj.get("series") or {}
    born = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    first = since(born, now)
    last_text = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    last = since(last_text, now) if last_text else first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    if series:
        last, count = since(series.get("lastObservedTime"), now), series.get("count", 1)
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    kind = str(target.get("kind", "")).lower()
    shown = f"{kind}/{target.get('name', '')}" if target.get("name") else kind
    message = str(obj.get("message") or obj.get("note") or "").strip()
    source = f"{component}, {host}" if host else component
    return [last, shown, target.get("fieldPath", ""), source, message, first, int(count)]


def _pod(pod: Json, now: datetime) -> list[str]:
    spec, status, meta = pod.get("spec", {}), pod.get("status", {}), pod.get("metadata", {})
    total = len(spec.get("containers") or [])
    restarts, last_restart, ready = 0, None, 0
    reason = status.get("reason") or status.get("phase", "")
    if (_found(status.get("conditions"), "PodScheduled") or {}).get("reason") == "SchedulingGated":
        reason = "SchedulingGated"

    initializing, reason, sidecar_restarts = _init_reason(spec, status, reason)
    if not initializing:
        restarts = sidecar_restarts
        has_running = False
        for one in reversed(status.get("containerStatuses") or []):
            restarts += one.get("restartCount", 0)
            finished = (one.get("lastState") or {}).get("terminated", {}).get("finishedAt")
            if finished and (last_restart is None or parse_time(finished) > parse_time(last_restart)):
                last_restart = finished
            state = one.get("state") or {}
            waiting, terminated = state.get("waiting"), state.get("terminated")
            if waiting is not None and waiting.get("reason"):
                reason = waiting["reason"]
            elif terminated is not None and terminated.get("reason"):
                reason = terminated["reason"]
            elif terminated is not None:
                signal = terminated.get("signal")
                reason = f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"
            elif one.get("ready") and state.get("running") is not None:
                has_running = True
                ready += 1
        if reason == "Completed" and has_running:
            reason = "Running" if _holds(pod, "Ready") else "NotReady"
    if meta.get("deletionTimestamp"):
        reason = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"

    shown = str(restarts)
    if restarts and last_restart:
        shown = f"{restarts} ({since(last_restart, now)} ago)"
    gates = spec.get("readinessGates") or []
    met = sum(1 for gate in gates if _holds(pod, gate.get("conditionType", "")))
    ips = status.get("podIPs") or []
    return [
        f"{ready}/{total}",
        reason,
        shown,
        ips[0].get("ip", NONE) if ips else status.get("podIP") or NONE,
        f"{met}/{len(gates)}" if gates else NONE,
    ]


def _init_reason(spec: Json, status: Json, reason: str) -> tuple[bool, str, int]:
    """Whether an init container is not done, the status that it shows, and restarts."""
    inits = spec.get("initContainers") or []
    sidecars = {c.get("name") for c in inits if c.get("restartPolicy") == "Always"}
    restarts = 0
    for index, one in enumerate(status.get("initContainerStatuses") or []):
        state = one.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if one.get("name") in sidecars:
            restarts += one.get("restartCount", 0)
            if one.get("started"):
                continue
        if terminated is not None:
            if terminated.get("exitCode", 0) == 0:
                continue
            said = terminated.get("reason") or (
                f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated['exitCode']}"
            )
            return True, f"Init:{said}", restarts
        if waiting is not None and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return True, f"Init:{waiting['reason']}", restarts
        return True, f"Init:{index}/{len(inits)}", restarts
    return False, reason, restarts


def _claim(obj: Json, _now: datetime) -> list[str]:
    status = obj.get("status") or {}
    deleted = bool(obj.get("metadata", {}).get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation"):
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return [",".join(states)]


def _job(obj: Json, now: datetime) -> list[str]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    done = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        completions = f"{done}/{spec['completions']}"
    elif (spec.get("parallelism") or 0) > 1:
        completions = f"{done}/1 of {spec['parallelism']}"
    else:
        completions = f"{done}/1"
    duration = ""
    if status.get("startTime"):
        started = parse_time(status["startTime"])
        ended = parse_time(status["completionTime"]) if status.get("completionTime") else now
        duration = human((ended - started).total_seconds())
    word = "Terminating" if obj.get("metadata", {}).get("deletionTimestamp") else "Running"
    words = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")
    return [next((each for each in words if _holds(obj, each)), word), completions, duration, *_containers(obj)]


def _deployment(obj: Json, _now: datetime) -> list[str]:
    ready = obj.get("status", {}).get("readyReplicas", 0)
    return [f"{ready}/{obj.get('spec', {}).get('replicas', 0)}", *_containers(obj)]


def _daemon_set(obj: Json, _now: datetime) -> list[str]:
    selector = _pod_spec(obj).get("nodeSelector") or {}
    return [",".join(f"{key}={value}" for key, value in sorted(selector.items())) or NONE, *_containers(obj)]


def _priority_class(obj: Json, _now: datetime) -> list[str]:
    return ["true" if obj.get("globalDefault") else "false"]


Cells = Callable[[Json, datetime], list[Any]]
COMPUTED: dict[str, Cells] = {
    "V1Node": _node,
    "V1Pod": _pod,
    "V1Secret": _secret,
    "CoreV1Event": _event,
    "EventsV1Event": _event,
    "V1DaemonSet": _daemon_set,
    "V1Deployment": _deployment,
    "V1Job": _job,
    "V1PriorityClass": _priority_class,
    "ResourceV1ResourceClaim": _claim,
}
