"""What OpenCost reads and answers, from the ledger and from claims: its `GET /allocation`, and the series by which it counts GPUs. Pure.

Source: opencost/opencost, core/pkg/opencost/allocation_json.go (fields), window.go (windows), pkg/costmodel/aggregation.go (parameters),
router.go (`code`, `status`, `data`, `message`). What differs, since the ledger has claims, not pods:

- `aggregate` takes cluster, node, namespace, controller (the gang) and label:NAME as OpenCost's, and queue, user, flavor, claim and device.
  Without it: cluster, node, namespace and claim. What the ledger cannot say (pod, container, …) is a 400, where OpenCost ignores it.
- CPU, memory, network and volumes are no part of it: their costs are 0.
- `gpuCostIdle` is the part of `gpuCost` for time in which the device was idle, and with shareIdle the share of `__idle__`.
- `__idle__` is time that no claim holds: free, fragmented, drained, broken and the rest.
- Amounts have no currency there: prices in several are a 400.

A stock OpenCost counts the GPUs of pods from requests for `nvidia.com/gpu`, which pods with ResourceClaims do not have. Where the series
`container_gpu_allocation` exists it is taken instead (pkg/costmodel/allocation.go: queryFmtGPUsAllocated; allocation_helpers.go:
applyGPUsAllocated), by container, pod, namespace and node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Final, NamedTuple

from fairlead.history.cost.usage import Figures, hours, priced
from fairlead.history.cost.window import LABEL, CostError, Reader, Window, month_of, shown
from fairlead.history.ledger.entries import HELD
from fairlead.history.prices import PriceBook, rounded
from fairlead.kube.timestamps import DAY_US, HOUR_US, SECOND_US

IDLE: Final = "__idle__"
UNALLOCATED: Final = "__unallocated__"
STEPS_MAX: Final = 1000
WINDOW_DAYS_MAX: Final = 400
INTERVALS_MAX: Final = 2_000_000
FINE_INTERVALS_MAX: Final = 200_000
"""Where each claim, gang or device has a line of its own: then an interval may cost what a line does."""
LINES_MAX: Final = 20_000
"""Allocations of all sets together: each takes 130 µs of CPU and 1 kB of the answer."""
_FINE: Final = frozenset({"claim", "gang", "device"})
GROUPS: Final = {
    "node": "node",
    "namespace": "namespace",
    "controller": "gang",
    "queue": "queue",
    "user": "user",
    "flavor": "flavor",
    "claim": "claim",
    "device": "device",
}
DEFAULT: Final = "cluster,node,namespace,claim"
_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"([0-9]{1,6})([mhdw])")
_PAIR = re.compile(r"([0-9]{1,11})[,-]([0-9]{1,11})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WITHOUT_DEVICES: Final = (
    "cpuCores", "cpuCoreRequestAverage", "cpuCoreUsageAverage", "cpuCoreHours", "cpuCost", "cpuCostAdjustment", "cpuCostIdle",
    "cpuEfficiency", "networkCost", "loadBalancerCost", "pvBytes", "pvByteHours", "pvCost", "ramBytes", "ramByteRequestAverage",
    "ramByteUsageAverage", "ramByteHours", "ramCost", "ramCostAdjustment", "ramCostIdle", "ramEfficiency", "externalCost",
)  # fmt: skip
Json = dict[str, Any]


class _BadRequestError(Exception):
    pass


@dataclass(slots=True)
class _Item:
    """What is summed under one name: `share` is its part of `__idle__`."""

    figures: Figures
    properties: Json
    share: Fraction = Fraction(0)


def allocation(
    query: Mapping[str, str], reader: Reader, book: PriceBook, *, now_s: float, cluster: str = "fairlead"
) -> tuple[int, Json]:
    """HTTP status and body. `query`: window (required), aggregate, step, includeIdle, shareIdle, accumulate."""
    try:
        window = _window(query.get("window", ""), int(now_s))
        step_us = window.until_us - window.since_us if not query.get("step") else _duration_us("step", query["step"])
        names = [name.strip() for name in query.get("aggregate", DEFAULT).split(",") if name.strip()]
        include, share = _flag(query, "includeIdle"), _flag(query, "shareIdle")
        if _flag(query, "accumulate"):
            step_us = window.until_us - window.since_us
        if -(-(window.until_us - window.since_us) // step_us) > STEPS_MAX:
            raise _BadRequestError(f"bad request - step: gives more than {STEPS_MAX} sets: use a longer one")
        groups = _groups(names)
        _check_size(reader, window, groups)
        begins = range(window.since_us, window.until_us, step_us)
        known = reader.known()
        data: list[Json] = []
        left = LINES_MAX
        for begin in begins:
            part = Window(begin, min(begin + step_us, window.until_us))
            data.append(_set(reader, book, part, known, names, groups, cluster, include, share, left))
            left -= len(data[-1])
    except _BadRequestError as error:
        return 400, {"code": 400, "status": "", "data": None, "message": f"Error: {error}"}
    except CostError as error:
        return 500, {"code": 500, "status": "", "data": None, "message": f"Error: {error}"}
    return 200, {"code": 200, "status": "success", "data": data}


def _check_size(reader: Reader, window: Window, groups: tuple[str, ...]) -> None:
    if window.until_us - window.since_us > WINDOW_DAYS_MAX * DAY_US:
        raise _BadRequestError(f"bad request - window: is longer than {WINDOW_DAYS_MAX} days: ask for parts of it")
    fine = sorted(_FINE.intersection(groups))
    most = FINE_INTERVALS_MAX if fine else INTERVALS_MAX
    if reader.overlapping(window.since_us, window.until_us, most) > most:
        other = f", or aggregate by queue or namespace instead of {' and '.join(fine)}" if fine else ""
        raise _BadRequestError(f"bad request - window: has more than {most} intervals: ask for a shorter one{other}")


def _set(
    reader: Reader,
    book: PriceBook,
    window: Window,
    known: tuple[int, int] | None,
    names: list[str],
    groups: tuple[str, ...],
    cluster: str,
    include: bool,
    share: bool,
    most: int,
) -> Json:
    """One set: allocations by name. Nothing of what the ledger does not know."""
    part = Window(max(window.since_us, known[0]), min(window.until_us, known[1])) if known is not None else window
    if known is None or part.until_us <= part.since_us:
        return {}
    found, idle = dict[str, _Item](), Figures()
    for each in priced(reader, book, [part], groups):
        if each.sum.bucket not in HELD:
            idle.add(each.figures())
            continue
        keys = dict(zip(groups, each.sum.keys, strict=True))
        name = "/".join(cluster if own == "cluster" else keys[_group(own)] or UNALLOCATED for own in names)
        if name not in found and len(found) >= most:
            raise _BadRequestError(
                f"bad request - aggregate: gives more than {LINES_MAX} allocations: use a shorter window, or fewer names"
            )
        item = found.setdefault(name, _Item(Figures(), _properties(names, keys, cluster)))
        item.figures.add(each.figures())
    _one_currency([idle, *(item.figures for item in found.values())])
    spare = _cost(idle)
    total = sum((_cost(item.figures) for item in found.values()), Fraction(0))
    if include and share and total:
        for item in found.values():
            item.share = spare * _cost(item.figures) / total
    elif include:
        found[IDLE] = _Item(idle, {"cluster": cluster})
    return {name: _json(name, item, window, part) for name, item in sorted(found.items())}


def _json(name: str, item: _Item, window: Window, part: Window) -> Json:
    figures, lasts = item.figures, Fraction(part.until_us - part.since_us, HOUR_US)
    held = hours(sum(figures.weighed.values()))
    cost = _cost(figures) + item.share
    idle = sum((each.allocated for (_, bucket), each in figures.costs.items() if bucket == "idle"), Fraction(0))
    busy, request = hours(figures.busy) / lasts, held / lasts
    return {
        "name": name,
        "properties": item.properties,
        "window": {"start": shown(window.since_us), "end": shown(window.until_us)},
        "start": shown(part.since_us),
        "end": shown(part.until_us),
        "minutes": _number(lasts * 60),
        "gpuCount": _number(request),
        "gpuRequestAverage": _number(request),
        "gpuUsageAverage": _number(busy),
        "gpuHours": _number(held),
        "gpuCost": _number(cost),
        "gpuCostAdjustment": 0.0,
        "gpuCostIdle": _number(idle + item.share),
        "gpuEfficiency": _number(busy / request if busy else Fraction(0)),
        **dict.fromkeys(_WITHOUT_DEVICES, 0.0),
        "sharedCost": 0.0,
        "totalCost": _number(cost),
        "totalEfficiency": _number(busy / request if busy else Fraction(0)),
    }


def _cost(figures: Figures) -> Fraction:
    return sum((cost.allocated for cost in figures.costs.values()), Fraction(0))


def _one_currency(every: list[Figures]) -> None:
    currencies = sorted({currency for figures in every for currency, _ in figures.costs})
    if len(currencies) > 1:
        raise _BadRequestError(
            f"bad request - prices are in {' and '.join(currencies)}, and allocations have no currency: use `fairlead cost`, or one currency"
        )


def _properties(names: list[str], keys: Mapping[str, str], cluster: str) -> Json:
    """OpenCost's fields; what only Fairlead has is a label of its domain."""
    found: Json = {"cluster": cluster}
    labels = dict[str, str]()
    for own in names:
        if own == "cluster" or not (value := keys[_group(own)]):
            continue
        if own.startswith("label:"):
            labels[own.removeprefix("label:")] = value
        elif own in {"node", "namespace", "controller"}:
            found[own] = value
        else:
            labels[f"fairlead.dev/{own}"] = value
    if "controller" in found:
        found["controllerKind"] = "gang"
    return {**found, "labels": labels} if labels else found


def _groups(names: list[str]) -> tuple[str, ...]:
    if names == ["all"]:
        names[:] = ["cluster"]
    return tuple(dict.fromkeys(_group(name) for name in names if name != "cluster"))


def _group(name: str) -> str:
    if name.startswith("label:") and len(name) > len("label:"):
        return LABEL + name.removeprefix("label:")
    if name not in GROUPS:
        raise _BadRequestError(
            f"bad request - aggregate: the ledger has no {name[:80]!r}: use cluster, {', '.join(GROUPS)} or label:NAME"
        )
    return GROUPS[name]


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "").lower()
    if text not in {"", "true", "false", "1", "0", "t", "f"}:
        raise _BadRequestError(f"bad request - {name}: {text[:40]!r} is neither true nor false")
    return text in {"true", "1", "t"}


def _window(text: str, now_s: int) -> Window:
    try:
        found = _parsed(text, now_s)
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise _BadRequestError(
            f"Invalid 'window' parameter: illegal window: {text[:80]!r}: use 7d, lastmonth or two RFC 3339 times with a comma"
        )
    if found.until_us <= found.since_us:
        raise _BadRequestError(f"illegal window: {found}")
    return found


def _parsed(text: str, now_s: int) -> Window | None:
    today = now_s // 86_400 * 86_400
    sunday = today - (datetime.fromtimestamp(today, UTC).weekday() + 1) % 7 * 86_400
    month = month_of(now_s * SECOND_US).since_us // SECOND_US
    named = {
        "today": (today, today + 86_400),
        "yesterday": (today - 86_400, today),
        "week": (sunday, now_s),
        "month": (month, now_s),
        "lastweek": (sunday - 7 * 86_400, sunday),
        "lastmonth": (month_of(month * SECOND_US - 1).since_us // SECOND_US, month),
    }
    if text in named:
        return _of_seconds(*named[text])
    if lasts := _DURATION.fullmatch(text):
        unit = _UNITS["d" if lasts[2] == "w" else lasts[2]]
        end = now_s // unit * unit + unit  # the unit that has now counts whole
        return _of_seconds(end - int(lasts[1]) * _UNITS[lasts[2]], end)
    if pair := _PAIR.fullmatch(text):
        return _of_seconds(int(pair[1]), int(pair[2]))
    begin, comma, end_text = text.partition(",")
    return Window(_moment(begin), _moment(end_text)) if comma else None


def _of_seconds(since_s: int, until_s: int) -> Window:
    return Window(since_s * SECOND_US, until_s * SECOND_US)


def _moment(text: str) -> int:
    found = datetime.fromisoformat(text.upper())
    if found.tzinfo is None:
        raise ValueError("no zone")
    return (found - _EPOCH) // timedelta(microseconds=1)


def _duration_us(name: str, text: str) -> int:
    found = _DURATION.fullmatch(text)
    if not found or not int(found[1]):
        raise _BadRequestError(f"bad request - {name}: {text[:40]!r} is no duration: use 1h, 1d or 1w")
    return min(int(found[1]) * _UNITS[found[2]] * SECOND_US, 36_600 * DAY_US)


def _number(value: Fraction) -> float:
    """The number rounded as OpenCost does: five places."""
    return float(rounded(value, 5))


NAME: Final = "container_gpu_allocation"
HELP: Final = (
    "GPUs that containers hold through ResourceClaims, in whole devices; claims that are shared are divided evenly."
)


class Container(NamedTuple):
    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """An allocated claim: its part of whole devices, and the containers of the pods in its status.reservedFor that use it."""

    namespace: str
    node: str
    gpus: Fraction
    containers: tuple[Container, ...] = ()


class Series(NamedTuple):
    container: str
    pod: str
    namespace: str
    node: str
    value: float


def series(held: Iterable[HeldClaim]) -> list[Series]:
    """In the order of their labels. Claims without a container or a node are left out: OpenCost cannot charge them."""
    found = dict[tuple[str, str, str, str], Fraction]()
    for claim in held:
        users = sorted({each for each in claim.containers if each.container and each.pod})
        if not claim.node:
            continue
        for user in users:
            key = (user.container, user.pod, claim.namespace, claim.node)
            found[key] = found.get(key, Fraction(0)) + claim.gpus / len(users)
    return [Series(*key, float(value)) for key, value in sorted(found.items())]


def lines(held: Iterable[HeldClaim]) -> list[str]:
    """In Prometheus' text format, with HELP and TYPE."""
    made = [
        f'{NAME}{{container="{_escaped(each.container)}",pod="{_escaped(each.pod)}",namespace="{_escaped(each.namespace)}",'
        f'node="{_escaped(each.node)}"}} {each.value!r}'
        for each in series(held)
    ]
    return [f"# HELP {NAME} {HELP}", f"# TYPE {NAME} gauge", *made]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
