"""Gang: the state of a set of pods that run together or not at all, and why it is pending.

The controller creates, updates and deletes Gangs; users write annotations on pods (`fairlead.api.intent`), and of a Gang only `spec.hold`.
`kubectl get gangs` and `fairlead explain` show them.

A hold, of a Gang or of a Queue and those below it: nothing is admitted until it is taken away. Who may hold is said elsewhere (RBAC, and the
admission policy `fairlead-holds`).
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from fairlead.api import align, topology
from fairlead.api.base import CONDITIONS, Condition, CustomResource, ObjectName, Part
from fairlead.api.durations import DURATION, duration_s
from fairlead.api.models import Models
from fairlead.api.phases import Phase

GANG_SIZE_MAX = 100_000
SPOTS_MAX = 256
"""Pods of a gang whose place is recorded while it moves."""
SPOT_DEVICES_MAX = 128
DECISIONS_MAX = 16
"""Evictions of one gang under way at a time."""
REFUSED_MAX = 100
"""Nodes that are recorded as refused."""


def _duration(text: str) -> str:
    duration_s(text)
    return text


def _align(text: str) -> str:
    align.alignments(text)
    return text


def _topology(text: str) -> str:
    topology.levels(text)
    return text


Duration = Annotated[
    str, AfterValidator(_duration), Field(json_schema_extra={"pattern": f"^{DURATION}$", "maxLength": 32})
]
Topology = Annotated[
    str,
    AfterValidator(_topology),
    Field(json_schema_extra={"pattern": f"^{topology.PATTERN}$", "maxLength": topology.TEXT_MAX}),
]

Align = Annotated[str, AfterValidator(_align), Field(max_length=align.TEXT_MAX)]
Line = Annotated[str, Field(max_length=1024)]


REASON_MAX = 512
USER_MAX = 256
VERB = "hold"
"""RBAC verb on gangs, in all namespaces: its bearers may write protected holds, and take away those of others."""


_LINE: dict[str, JsonValue] = {"pattern": "^[^\\x00-\\x1f\\x7f]*$"}


def _one_line(text: str) -> str:
    """Both are printed in terminals and messages: what moves a cursor or breaks a line is refused."""
    if not text.isprintable():
        raise ValueError(f"{text[:40]!r} has a line break or control character: write one line of plain text")
    return text


def _time(text: str) -> str:
    try:
        known = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"{text[:40]!r} is no time: write RFC 3339, such as 2026-11-24T08:00:00Z")
    return text


class Hold(Part):
    """Nothing is admitted until this is removed; what runs goes on, unless `evict` says otherwise."""

    reason: Annotated[str, AfterValidator(_one_line)] = Field(
        default="", max_length=REASON_MAX, json_schema_extra=_LINE
    )
    """Why, in one line for users."""
    by: Annotated[str, AfterValidator(_one_line)] = Field(default="", max_length=USER_MAX, json_schema_extra=_LINE)
    """The user who wrote it."""
    since: Annotated[str, AfterValidator(_time)] | None = Field(default=None, max_length=40)
    """When it was written, RFC 3339."""
    evict: bool = False
    """Whether what runs is evicted, too: with its checkpoint-grace, and as PodDisruptionBudgets allow."""
    protected: bool = False
    """Whether only users with the verb `hold` on gangs in all namespaces may change or remove it. Means something on gangs only."""


class GangSpec(Part):
    """What the members' annotations request."""

    size: int = Field(ge=1, le=GANG_SIZE_MAX)
    """Members that must run together."""
    queue: ObjectName | None = None
    """The requested queue; absent means the one whose namespaceSelector matches the namespace."""
    topology: Topology | None = None
    """`required:` or `preferred:` and a node label, or several with commas: members run in as few domains of each as possible."""
    models: Models | None = None
    """same: its devices come from one GPU product (of MIG devices: one profile on one). any: models may mix. Absent means as a TenancyPolicy or its Queue says, at last same."""
    align: Align | None = None
    """Attributes whose values the devices of all members have in common, or apart, such as `gpu.fairlead.dev/rail=same of gpu`."""
    subgroup_size: int | None = Field(default=None, ge=1, le=GANG_SIZE_MAX)
    """So many members with neighbouring ranks are a subgroup."""
    subgroup_topology: Topology | None = None
    """As `topology`, of each subgroup by itself."""
    min_runtime: Duration | None = None
    """It is not evicted before it has run this long, such as 30m."""
    hold: Hold | None = None
    """It is not admitted until this is removed (`fairlead hold gang`). The one field that users write."""


class GangHolder(Part):
    """A running gang with devices that the pending gang could use."""

    gang: str = Field(default="", max_length=512)
    """namespace/name; empty for claims that belong to no gang."""
    queue: str = Field(default="", max_length=253)
    """The queue that it runs in."""
    devices: int = Field(default=0, ge=0)
    """Number of such devices that are allocated to it."""


class GangWhy(Part):
    """Why a gang is pending, in parts, as `fairlead explain` prints it; the message is the short form."""

    message: str = Field(default="", max_length=4096)
    """What prevents it from running, in one sentence."""
    advice: str = Field(default="", max_length=1024)
    """What would let it run."""
    could_ever_fit: bool | None = None
    """Whether it would fit on this cluster if nothing else ran; absent when that is not known."""
    details: list[Line] = Field(default_factory=list, max_length=16)
    """Which filters removed devices and nodes, the decisive ones first."""
    holders: list[GangHolder] = Field(default_factory=list, max_length=16)
    """Running gangs with devices that it could use."""
    blockers: list[Line] = Field(default_factory=list, max_length=16)
    """Why it may not reclaim or preempt: shares of queues, and the protections of running gangs."""


class GangForecast(Part):
    """When the gang is likely to start, from simulated futures: a forecast, not a commitment."""

    p50: str | None = Field(default=None, max_length=40)
    """It starts by then in half of the futures, RFC 3339; absent when that is beyond the horizon, or not known."""
    p90: str | None = Field(default=None, max_length=40)
    """It starts by then in nine of ten futures."""
    as_of: str = Field(default="", max_length=40)
    """When this was computed. It is written again only when it moves noticeably."""
    because: str = Field(default="", max_length=1024)
    """What it rests on: samples, where run times come from, which gang's end it waits for; or why there is none."""
    never: bool = False
    """The gang cannot start on this cluster as it is; `because` says why."""


class GangNodes(Part):
    """What becomes of its demand for nodes with more devices (Flavor.spec.autoscaling)."""

    state: Literal["Asked", "Rests", "AtMax"]
    """Asked: nodes are asked for. Rests: none came within the flavor's patience, and they are asked for again later. AtMax: the flavor's max forbids it."""
    mode: str = Field(default="", max_length=64)
    """How they are asked for: the flavor's autoscaling.mode."""
    flavor: str = Field(default="", max_length=253)
    """The Flavor that says so."""
    since: str | None = Field(default=None, max_length=40)
    """When they were first asked for, RFC 3339."""
    expected: str | None = Field(default=None, max_length=40)
    """When they are expected: by the median of the flavor's scale-ups; absent where none is known, or it takes longer."""
    evicts_from: str | None = Field(default=None, max_length=40)
    """Nothing is evicted or moved for it before; absent where that does not wait."""
    message: str = Field(default="", max_length=1024)
    """The same in words, with what the cluster answered and the next step."""


class GangLevel(Part):
    """Where members are at one level of the topology: its domains, and how far neighbouring ranks are apart."""

    level: str = Field(max_length=340)
    """The node label or device attribute; kubernetes.io/hostname for nodes themselves."""
    asked: str = Field(default="", max_length=64)
    """required or preferred, of the gang or of each subgroup; absent where the gang does not name the level."""
    domains: int = Field(default=0, ge=0)
    """In how many domains of it members are."""
    apart: int | None = Field(default=None, ge=0)
    """Of pairs of members with neighbouring ranks, how many are in different domains; absent where members have no ranks."""
    where: list[Line] = Field(default_factory=list, max_length=16)
    """Each domain with its members, by rank."""


class GangModels(Part):
    """The GPU models of its devices."""

    rule: Models
    """same: one model, for each worker group where it has several. any: models may mix. As its pods, a TenancyPolicy or its Queue say."""
    held: list[Line] = Field(default_factory=list, max_length=16)
    """The devices that it holds, by model, such as `16 × NVIDIA H100 80GB HBM3`."""


class GangSpot(Part):
    """Where one new pod of a gang that moves has its place."""

    node: str = Field(max_length=253)
    """The node."""
    devices: list[Line] = Field(default_factory=list, max_length=SPOT_DEVICES_MAX)
    """The devices, each as driver/pool/device."""
    requests: dict[str, int] = Field(default_factory=dict, json_schema_extra={"maxProperties": 64})
    """The room that the pod takes on the node, by resource."""


class GangRefusal(Part):
    """A node on which kube-scheduler refused the gang's pods."""

    node: str = Field(max_length=253)
    """The node."""
    until: str = Field(max_length=40)
    """It is not chosen again for this gang before, RFC 3339."""
    times: int = Field(default=1, ge=1)
    """How often it was refused in a row."""
    why: str = Field(default="", max_length=4096)
    """What kube-scheduler said."""


class GangEviction(Part):
    """The gang's last eviction or roll-back, as the next leader reads it. Users cannot write it."""

    at: str = Field(max_length=40)
    """When it was evicted, RFC 3339."""
    since: str = Field(max_length=40)
    """Since when it is queued: its recreated pods keep this age."""
    what: str = Field(default="", max_length=1024)
    """What happened, such as `reclaimed for gang ml/x`."""
    why: str = Field(default="", max_length=4096)
    """Why it happened."""
    until: str | None = Field(default=None, max_length=40)
    """How long this object outlives the gang's pods."""
    queue: str = Field(default="", max_length=253)
    """The queue that is charged for the place."""
    owner: str = Field(default="", max_length=128)
    """UID of the owner of a gang of one: its next pod has another name."""
    maker: str = Field(default="", max_length=253)
    """Kind of what makes its pods again; empty for bare pods."""
    place: list[GangSpot] = Field(default_factory=list, max_length=SPOTS_MAX)
    """The place that is held for its new pods, where it moves."""
    held: str | None = Field(default=None, max_length=40)
    """Until when the place is held."""
    refused: list[GangRefusal] = Field(default_factory=list, max_length=REFUSED_MAX)
    """Nodes on which kube-scheduler refused its pods."""


class GangDecision(Part):
    """An eviction that is decided: the marks on its pods count only where they say the same."""

    kind: str = Field(max_length=32)
    """Why, such as Reclaim, Preempt or Move."""
    at: str = Field(max_length=40)
    """When the pods go, RFC 3339."""
    beneficiary: str = Field(default="", max_length=512)
    """namespace/name of the gang that gets the devices; empty where it is for none."""
    place: list[GangSpot] = Field(default_factory=list, max_length=SPOTS_MAX)
    """The place that is held for its new pods, where it moves."""


class GangStatus(Part):
    """Observed state, and why. Written by the controller only."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed for."""
    phase: Phase | None = None
    """Gathering members, Waiting for devices, Evicted (until its pods are made again), Admitted (devices allocated), Running, Finished or Failed."""
    queue: str | None = Field(default=None, max_length=253)
    """The queue in which the gang is pending or running."""
    members: int = Field(default=0, ge=0)
    """Members that exist."""
    ready: int = Field(default=0, ge=0)
    """Members that are running."""
    without_devices: list[str] = Field(default_factory=list, max_length=100)
    """Pods that ask for no device, and wait and start with the others (fairlead.dev/members: all)."""
    position: int | None = Field(default=None, ge=1)
    """Place among the gangs that wait in its queue, 1 being next."""
    reason: str | None = Field(default=None, max_length=1024)
    """Why it is in this phase, as one CamelCase word."""
    message: str | None = Field(default=None, max_length=32768)
    """Why it is in this phase, for people: what is missing, and what would let it run."""
    why: GangWhy | None = None
    """Why it is pending, in parts."""
    forecast: GangForecast | None = None
    """When it is likely to start, while it waits."""
    asks: list[Line] = Field(default_factory=list, max_length=16)
    """The devices that its members ask for, by device class, such as `8 × gpu.nvidia.com`, until it has them."""
    nodes_awaited: GangNodes | None = None
    """Its demand for nodes, while it lacks devices of a flavor that scales."""
    nodes: list[str] = Field(default_factory=list, max_length=10_000)
    """Nodes of its members."""
    placement: list[GangLevel] = Field(default_factory=list, max_length=16)
    """Where its members are, level by level, outermost first; of gangs with a topology, subgroups or ranks."""
    models: GangModels | None = None
    """The models of its devices, once it has any."""
    reserved_nodes: list[str] = Field(default_factory=list, max_length=1000)
    """Nodes on which nothing starts that would delay it, while it has a reservation (condition Reserved)."""
    queued_time: str | None = Field(default=None, max_length=40)
    """Since when it is queued, RFC 3339: when the first of its pods was made; an eviction keeps it."""
    wait_seconds: float | None = Field(default=None, ge=0)
    """How long it was pending, or has been."""
    admitted_time: str | None = Field(default=None, max_length=40)
    """When devices were allocated, RFC 3339."""
    last_eviction: GangEviction | None = None
    """Its last eviction, from which the next leader goes on."""
    evictions: list[GangDecision] = Field(default_factory=list, max_length=DECISIONS_MAX)
    """Evictions of it that are decided and not yet over."""
    reserved_until: str | None = Field(default=None, max_length=40)
    """Until when devices that evictions free are reserved for it, RFC 3339."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=CONDITIONS)
    """Admitted and Running; Evicting, Evicted, Preempting, Reserved and AwaitingNodes while they apply."""


class Gang(CustomResource):
    """A set of pods that run together or not at all: its state, and why."""

    kind: Literal["Gang"] = "Gang"
    spec: GangSpec
    """What the members' annotations request."""
    status: GangStatus | None = None
    """Observed state, and why. Written by the controller only."""
