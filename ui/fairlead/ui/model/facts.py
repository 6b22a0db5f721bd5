"""What was read of a cluster at one moment, and of its ledger: the arguments of the pages' models. Made by `fairlead.ui.reading`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.types.pods import Workload
from fairlead.history.ledger.entries import Gap, Span, Wait
from fairlead.kube.device_usage import DeviceId
from fairlead.kube.resource import DeviceClass, ResourceClaim
from fairlead.kube.resources import Raw
from fairlead.kube.timestamps import SECOND_US

ELSEWHERE = "a gang of another namespace"  # in place of a name that the viewer may not see


def gang_text(gang: str) -> str:
    """The gang in a sentence: `gang namespace/name`, or that the viewer may not see which."""
    return ELSEWHERE if gang == ELSEWHERE else f"gang {gang}"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """What holds a claim: `gang` is namespace/name, "" where the claim is in no gang that is known."""

    gang: str = ""
    queue: str = ""
    starting: bool = False  # none of its pods runs yet
    since: float | None = None  # unix seconds: when the claim was allocated; None where that is not known


class Usage(NamedTuple):
    """How busy a device is. `idle_since`: unix seconds; None: it is not idle. `percent`: mean utilisation; None: the hardware does not tell.
    Of a share of a device `claim` is the UID of its claim, and `share` says what it has and uses.
    """

    idle_since: float | None = None
    percent: int | None = None
    claim: str = ""
    share: str = ""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Nodes, devices, and the claims that hold them. The tables are the reader's: use them at once, and change nothing.

    `holders`: by claim UID. `usage`: of devices of which their driver wrote lately. `reserved`: nodes that are kept free for a
    gang, and its namespace/name. `workload`: the usual requests; None: not known, and then no device is called fragmented.
    `namespaces`: of claims that may be named; None: of all.
    """

    inventory: Inventory
    nodes: NodeTable
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    workload: Workload | None = None
    holders: Mapping[str, Holder] = field(default_factory=dict)
    usage: Mapping[DeviceId, Usage] = field(default_factory=dict)
    reserved: Mapping[str, str] = field(default_factory=dict)
    namespaces: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """`at`: unix seconds. `refused`: why objects of a kind are missing, or some of them, by plural. `hardware` None: not readable.

    `late`: why nothing newer was read; "" where this is what there is. `origin`: a snapshot's file, or
    what the cluster is called; "" where that is not known.
    """

    at: float
    hardware: Hardware | None = None
    gangs: tuple[Raw, ...] = ()
    pods: tuple[Raw, ...] = ()
    queues: tuple[Raw, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    late: str = ""
    origin: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Past:
    """`missing`: why nothing is known of it, and what to do; "" where something is. `known_us`: the part of the window that the ledger knows.

    Times are unix microseconds. `window_us`: of what was asked; None: the ledger knows nothing of it. `waits` are of gangs that were admitted within the window. `made`: what models make of it and keep,
    since one answer of the ledger serves many pages.
    """

    spans: tuple[Span, ...] = ()
    waits: tuple[Wait, ...] = ()
    gaps: tuple[Gap, ...] = ()
    known_us: tuple[int, int] | None = None
    window_us: tuple[int, int] | None = None
    missing: str = ""
    made: dict[Any, Any] = field(default_factory=dict, repr=False)

    def begins(self, since: float) -> float | None:
        """When the ledger begins, unix seconds, where that is later than `since` by more than a minute."""
        begins = since if self.known_us is None else self.known_us[0] / SECOND_US
        return begins if begins > since + 60.0 else None
