"""What happens to gangs of a queue whose devices are all idle."""

from typing import Literal

from pydantic import Field

from fairlead.api.base import Part
from fairlead.api.gang import Duration

Then = Literal["nothing", "warn", "suspendBorrowing", "evict"]


class Idle(Part):
    """When a gang counts as idle, and what then happens. What an idle device is, the driver says (`--idle-below`, `--idle-window`)."""

    for_: Duration = Field(default="1h", alias="for")
    """How long all devices of a gang have to be idle."""
    grace: Duration = "10m"
    """How long after the gang was told so that it follows, unless a device is busy again."""
    then: Then = "warn"
    """What follows. warn: nothing but the event and the condition. suspendBorrowing: the gang is the first to go where others reclaim or preempt, whatever its min-runtime. evict: it is evicted. nothing: not even told, for a queue below one that says otherwise."""
