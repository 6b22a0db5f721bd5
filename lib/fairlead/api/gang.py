"""Gang: what the controller says about a set of pods that run together or not at all.

Exists so that `kubectl get gangs` answers "why is it pending". The controller makes, keeps and deletes
Gangs; users write annotations on pods (`fairlead.api.intent`) and never a Gang.
"""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fairlead.api.base import CONDITIONS, Condition, ObjectName, Part, Resource, is_label_key

GANG_SIZE_MAX = 100_000
Phase = Literal["Waiting", "Gathering", "Admitted", "Running", "Finished", "Failed"]

DURATION = r"([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+"
_DURATION = re.compile(DURATION)
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
TOPOLOGY = r"(required|preferred):\S+"


def duration_s(text: str) -> float:
    """`1h30m`, `90s`, `2d` in seconds. Raises ValueError, which says how to write one."""
    if len(text) > 32 or not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration: write a number with a unit (s, m, h, d), such as 90s or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def topology_domain(text: str) -> tuple[bool, str]:
    """(whether required, node label) of `required:<label>` or `preferred:<label>`. Raises ValueError."""
    how, colon, label = text.partition(":")
    if not colon or how not in {"required", "preferred"} or not is_label_key(label):
        raise ValueError(
            f"{text!r} is no topology: write required: or preferred: and a node label, "
            "such as required:topology.kubernetes.io/rack"
        )
    return how == "required", label


def _duration(text: str) -> str:
    duration_s(text)
    return text


def _topology(text: str) -> str:
    topology_domain(text)
    return text


Duration = Annotated[
    str, AfterValidator(_duration), Field(json_schema_extra={"pattern": f"^{DURATION}$", "maxLength": 32})
]
Topology = Annotated[
    str, AfterValidator(_topology), Field(json_schema_extra={"pattern": f"^{TOPOLOGY}$", "maxLength": 340})
]

Line = Annotated[str, Field(max_length=1024)]


class GangSpec(Part):
    """What the members' annotations ask for."""

    size: int = Field(ge=1, le=GANG_SIZE_MAX)
    """Members that must run together."""
    queue: ObjectName | None = None
    """The queue that is asked for; absent means the one that selects the namespace."""
    topology: Topology | None = None
    """`required:` or `preferred:` and a node label: members share as few of its values as possible."""
    min_runtime: Duration | None = None
    """Not evicted before it has run this long, such as 30m."""


class GangHolder(Part):
    """A running gang whose devices this one could use."""

    gang: str = Field(default="", max_length=512)
    """namespace/name; empty for claims that belong to no gang."""
    queue: str = Field(default="", max_length=253)
    """The queue that it runs in."""
    devices: int = Field(default=0, ge=0)
    """How many of them it holds."""


class GangWhy(Part):
    """Why a gang waits, in parts: what `fairlead explain` prints. Bounded; the message holds the same in one piece."""

    message: str = Field(default="", max_length=4096)
    """What stands in the way, in one sentence."""
    advice: str = Field(default="", max_length=1024)
    """What would change it."""
    could_ever_fit: bool | None = None
    """Whether it would run on this cluster with nothing else running; absent where that is not known."""
    details: list[Line] = Field(default_factory=list, max_length=16)
    """What removed devices and nodes, the most telling first."""
    holders: list[GangHolder] = Field(default_factory=list, max_length=16)
    """Who holds devices that it could use."""
    barriers: list[Line] = Field(default_factory=list, max_length=16)
    """Whose share stands in the way, and what protects those who run."""


class GangStatus(Part):
    """Where the gang stands and why; nobody but the controller writes it."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed for."""
    phase: Phase | None = None
    """Gathering members, Waiting for devices, Admitted (devices given), Running, Finished or Failed."""
    queue: str | None = Field(default=None, max_length=253)
    """The queue that the gang waits or runs in."""
    members: int = Field(default=0, ge=0)
    """Members that exist."""
    ready: int = Field(default=0, ge=0)
    """Members that run."""
    position: int | None = Field(default=None, ge=1)
    """Place in the queue, 1 being next."""
    reason: str | None = Field(default=None, max_length=1024)
    """Why it is in this phase, as one CamelCase word."""
    message: str | None = Field(default=None, max_length=32768)
    """Why it is in this phase, for people: what is missing, and what would change it."""
    why: GangWhy | None = None
    """Why it waits, in parts."""
    nodes: list[str] = Field(default_factory=list, max_length=10_000)
    """Nodes that its members were given."""
    wait_seconds: float | None = Field(default=None, ge=0)
    """How long it waited, or has been waiting."""
    admitted_time: str | None = Field(default=None, max_length=40)
    """When devices were given, RFC 3339."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=CONDITIONS)
    """Admitted, Running, and while there is something to say Evicting, Evicted, Preempting and Reserved."""


class Gang(Resource):
    """A set of pods that run together or not at all: where it stands, and why."""

    kind: Literal["Gang"] = "Gang"
    spec: GangSpec
    """What the members' annotations ask for."""
    status: GangStatus | None = None
    """Where the gang stands and why; nobody but the controller writes it."""
