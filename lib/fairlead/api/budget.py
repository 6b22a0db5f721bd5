"""What a queue may spend in a calendar day, week or month, in GPU-hours or hours of a resource of pods; and which period a moment is in.

A GPU-hour is one whole GPU held for an hour, busy or not; a partition counts as its share of the GPU. Of a Flavor with measure Resource an
hour is a core, a GiB or a piece that pods requested for an hour (`api.resource_units`). What was spent is the
controller's to count, and what follows from it the engine's. Pure: the time is an argument.

And below which utilisation devices of a queue's gangs count as idle, and what becomes of these gangs then (`Idle`).
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from fractions import Fraction
from math import floor
from typing import Annotated, Literal, NamedTuple, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fairlead.api.base import ObjectName, Part
from fairlead.api.gang import Duration
from fairlead.api.recurrence import ZONE_LENGTH_MAX, checked_zone
from fairlead.api.resource_units import GPU_HOURS

WARNINGS_MAX = 8
HOURS = r"[0-9]{1,12}(\.[0-9]{1,6})?"
_HOURS = re.compile(HOURS)

OnExhausted = Literal["warn", "noBorrow", "stop"]
Per = Literal["day", "week", "month"]


def _number_of(unit: str) -> Callable[[object], object]:
    def checked(value: object) -> object:
        text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
        if not _HOURS.fullmatch(text):
            raise ValueError(
                f"{value!r} is no number of {unit}: write digits, in quotes where there is a point, such as '1000' or '2.5'"
            )
        if not Fraction(text):
            raise ValueError(
                f"{value!r} {unit} are spent before they begin: write more, or set limit 0 in spec.flavors"
            )
        return value

    return checked


_SCHEMA = {"x-kubernetes-int-or-string": True, "pattern": f"^{HOURS}$", "maxLength": 19}
GpuHours = Annotated[int | str, BeforeValidator(_number_of(GPU_HOURS)), Field(json_schema_extra=_SCHEMA)]
Hours = Annotated[int | str, BeforeValidator(_number_of("hours")), Field(json_schema_extra=_SCHEMA)]
Percentage = Annotated[int, Field(ge=1, le=100)]


TimeZone = Annotated[
    str, AfterValidator(checked_zone), Field(json_schema_extra={"minLength": 1, "maxLength": ZONE_LENGTH_MAX})
]


class Budget(Part):
    """What the gangs of a queue, and of the queues below it, may spend in a period: gpuHours, or hours of a flavor."""

    gpu_hours: GpuHours | None = None
    """Most of a period, such as "1000": whole GPUs times the hours for which they are held; a partition counts as its share. Either this, or flavor and hours."""
    flavor: ObjectName | None = None
    """In place of gpuHours: a Flavor with measure Resource, whose hours are bounded."""
    hours: Hours | None = None
    """With flavor: most of a period, such as "5000", in hours of a core of cpu, of a GiB of memory or ephemeral-storage, or of one of any other resource that pods request."""
    per: Per
    """Calendar period: from midnight; a week begins on Monday, a month on its first day."""
    time_zone: TimeZone = "UTC"
    """IANA name of the time zone of the period, such as Europe/Berlin."""
    on_exhausted: OnExhausted = "warn"
    """What follows until the period ends. warn: a condition and an event. noBorrow: gangs are admitted within deserved only. stop: no gang is admitted; those that run go on."""
    warn_at: list[Percentage] = Field(default_factory=lambda: [80], max_length=WARNINGS_MAX)
    """Percentages of it at which there is an event, once in a period each; absent means 80."""

    @model_validator(mode="after")
    def _bounds_one_thing(self) -> Self:
        if self.gpu_hours is not None:
            for field, value in (("flavor", self.flavor), ("hours", self.hours)):
                if value is not None:
                    raise ValueError(f"{field}: means nothing beside gpuHours: remove one of them")
        elif self.flavor is None and self.hours is None:
            raise ValueError("gpuHours: is required, or flavor and hours of a Flavor with measure Resource")
        elif self.flavor is None:
            raise ValueError("flavor: is required with hours: write the Flavor whose hours they are, or gpuHours")
        elif self.hours is None:
            raise ValueError(f"hours: is required with flavor, such as hours: '1000' of {self.flavor}")
        return self

    @model_validator(mode="after")
    def _warns_once_each(self) -> Self:
        for index, percent in enumerate(self.warn_at):
            if percent in self.warn_at[:index]:
                raise ValueError(f"warnAt[{index}]: {percent} is listed twice: remove one")
        return self

    @property
    def limit(self) -> Fraction:
        """GPU-hours, or hours of the flavor."""
        return Fraction(str(self.hours if self.gpu_hours is None else self.gpu_hours))


class Period(NamedTuple):
    """Unix seconds. Its start belongs to it, its end does not."""

    start: float
    end: float


def period(per: Per, time_zone: str, now: float) -> Period:
    """The one that `now` (unix seconds) is in."""
    zone = ZoneInfo(time_zone)
    today = datetime.fromtimestamp(floor(now), zone).date()
    match per:
        case "day":
            first, after = today, today + timedelta(days=1)
        case "week":
            first = today - timedelta(days=today.weekday())
            after = first + timedelta(days=7)
        case "month":
            first = today.replace(day=1)
            after = (first + timedelta(days=31)).replace(day=1)
    start, end = (datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() for day in (first, after))
    return Period(start, end)


Devices = Literal["All", "Any"]
Then = Literal["nothing", "warn", "suspendBorrowing", "evict"]
UTILISATION = "[1-9][0-9]?%"


def _utilisation(text: str) -> str:
    if re.fullmatch(UTILISATION, text) is None:
        raise ValueError(
            f"{text[:40]!r} is no utilisation below which devices are idle; write whole percent from 1% to 99%"
        )
    return text


Utilisation = Annotated[
    str, AfterValidator(_utilisation), Field(json_schema_extra={"pattern": f"^{UTILISATION}$", "maxLength": 3})
]


class Idle(Part):
    """When a gang counts as idle, and what then happens."""

    below: Utilisation | None = None
    """A device whose utilisation is below this for all of the driver's `--idle-window` is idle, such as 10%; absent means the driver's own threshold (`--idle-below`). Of a percentage that is none of the driver's levels (`--idle-levels`) the next lower level counts."""
    devices: Devices = "All"
    """Which devices of a gang have to be idle for the gang to be. All: a gang is not idle where one of them is busy or not reported. Any: it is where one is reported idle, so that keeping one busy exempts no gang of several."""
    for_: Duration = Field(default="1h", alias="for")
    """How long these devices have to be idle."""
    grace: Duration = "10m"
    """How long after the gang was told so that it follows, unless a device is busy again."""
    then: Then = "warn"
    """What follows. warn: nothing but the event and the condition. suspendBorrowing: the gang is the first to go where others reclaim or preempt, whatever its min-runtime. evict: it is evicted. nothing: not even told, for a queue below one that says otherwise."""
