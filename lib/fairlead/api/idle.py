"""What happens to gangs of a queue whose devices are idle."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fairlead.api.base import Part
from fairlead.api.gang import Duration

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
