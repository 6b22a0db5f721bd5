"""A certificate that a gang cannot start now: the document, and what each kind of statement in it means.

`fairlead explain --prove` writes it, `fairlead verify` checks it against the cluster's objects. Each kind says something that
can be looked up or computed again from those objects; nothing in it is taken on trust but `given`. All numbers are exact: an
amount is the text of a whole number or of a fraction ("3/8"). docs/proof.md has the semantics with an example of each kind.
"""

from __future__ import annotations

import msgspec

VERSION = 1
DeviceId = tuple[str, str, str]  # driver, pool, device


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The base of all parts: a field that is unknown or missing makes a certificate unreadable."""


class Tagged(Part, frozen=True, kw_only=True, tag_field="kind"):
    """A part whose `kind` is its class's name."""


# -- why a device serves none of some requests ---------------------------------------------------------------------


class Held(Tagged, frozen=True, kw_only=True, tag=True):
    """The claim (namespace/name) is allocated the device: all of it, where it could be shared."""

    device: DeviceId
    claim: str


class GivenAway(Tagged, frozen=True, kw_only=True, tag=True):
    """The device is among what is `given` to this gang (namespace/name)."""

    device: DeviceId
    gang: str


class Counter(Tagged, frozen=True, kw_only=True, tag=True):
    """The device needs more of a shared counter of its pool than is left."""

    device: DeviceId
    counter_set: str
    counter: str
    left: str
    needs: str


class Filtered(Tagged, frozen=True, kw_only=True, tag=True):
    """One word for each alternative of each request of each kind of unit, in order: class, selector, error, taint, capacity or full.

    class, selector: a CEL selector of the DeviceClass, or of the request, is not true of the device; error: one fails on it;
    taint: a taint is not tolerated; capacity: the device has too little; full: others consume too much of it.
    """

    device: DeviceId
    by: tuple[str, ...]


RuledOut = Held | GivenAway | Counter | Filtered


# -- what bounds the units that a node, or a domain, can take -----------------------------------------------------------


class Refused(Tagged, frozen=True, kw_only=True, tag=True):
    """The node takes no unit of this kind, for what a pod of it (counted from 0) needs besides devices.

    `by`: NotReady, Unschedulable, Taint, NodeSelector, Affinity, Claim (an allocated claim of it is reachable from other nodes only)
    or Port. `what`: the taint's key, the label, the claim's key, the port; else "".
    """

    unit: int
    pod: int
    by: str
    what: str = ""


class Room(Tagged, frozen=True, kw_only=True, tag=True):
    """So much of a resource is left on the node, in thousandths, and each unit of each kind wants so much of it."""

    resource: str
    left: int
    wants: tuple[int, ...]


class Devices(Tagged, frozen=True, kw_only=True, tag=True):
    """`free` and `ruled_out` are all devices that the node reaches (of a domain: that any of its nodes reaches).

    A free one serves some request of some kind of unit; a ruled out one serves none. On a node no search finds devices among the
    free ones for more units than `most` says: the verifier searches. In a domain there are fewer free ones, none of which can
    be shared, than all units want at least.
    """

    free: tuple[DeviceId, ...]
    ruled_out: tuple[RuledOut, ...]


Bound = Refused | Room | Devices


class NodeProof(Part, frozen=True, kw_only=True):
    """`most`: how many units of each kind fit at most if no other kind is there. It follows from `because`, and from nothing else."""

    node: str
    most: tuple[int, ...]
    because: tuple[Bound, ...] = ()


class Domain(Part, frozen=True, kw_only=True):
    """All nodes (`domain` None), or those of one topology domain: `most` is the sum over them; `because` bounds them together."""

    domain: str | None
    most: tuple[int, ...]
    because: Devices | None = None


# -- why the gang does not start -----------------------------------------------------------------------------------


class Place(Tagged, frozen=True, kw_only=True, tag=True):
    """No set of nodes takes all units: `units` of each kind are wanted, and no domain that is allowed can take them.

    A unit is one pod, or pods that share a claim which is still to be allocated. Units of one kind have equal claims and pods;
    kinds are in the order in which the gang's members show them.
    """

    units: tuple[int, ...]
    nodes: tuple[NodeProof, ...]
    domains: tuple[Domain, ...]


class Gathering(Tagged, frozen=True, kw_only=True, tag=True):
    """Fewer pods exist than the gang's size."""

    present: int
    size: int


class Invalid(Tagged, frozen=True, kw_only=True, tag=True):
    """A field of a claim cannot be served on any cluster. `claim` is its key in the snapshot; "" is the gang's topology.

    `field`: requests, requests[0], requests[0].count, .deviceClassName, .allocationMode or .selectors (of an alternative
    requests[0].NAME.count), constraints[0]; missing where there is no such claim.
    """

    claim: str
    field: str


class QueueRefuses(Tagged, frozen=True, kw_only=True, tag=True):
    """`fault`: Unknown (no such Queue), NotLeaf (it has queues below it), Namespace (not for the gang's), None (none takes it)."""

    queue: str | None
    fault: str


class Limit(Tagged, frozen=True, kw_only=True, tag=True):
    """used + charge > limit: of a flavor, by the queue and those below it; the charge is the least that the gang can cost.

    `bound` is limit or borrowingLimit (then the limit is deserved + borrowingLimit).
    """

    queue: str
    flavor: str
    used: str
    charge: str
    limit: str
    bound: str


class Quota(Tagged, frozen=True, kw_only=True, tag=True):
    """used + asked > limit: of a resource, in a ResourceQuota of the gang's namespace."""

    quota: str
    resource: str
    used: int
    asked: int
    limit: int


class ClaimTaken(Tagged, frozen=True, kw_only=True, tag=True):
    """A claim that is not allocated yet, and that the gang shares with another, is `given` to that one."""

    claim: str
    gang: str


class Behind(Tagged, frozen=True, kw_only=True, tag=True):
    """The queue is StrictFIFO, `head` is before the gang in it, and cannot start, because of this."""

    queue: str
    head: str
    because: Place | Gathering | Invalid | Limit | Quota | ClaimTaken


class NotProven(Tagged, frozen=True, kw_only=True, tag=True):
    """No proof of these kinds was found. `code` is the reason that the controller would report."""

    code: str


Because = Place | Gathering | Invalid | QueueRefuses | Limit | Quota | ClaimTaken | Behind | NotProven


class Share(Part, frozen=True, kw_only=True):
    """A device, or so much of the capacities of a shared one."""

    device: DeviceId
    consumes: dict[str, str] = {}


class Given(Part, frozen=True, kw_only=True):
    """A premise: the decision gives or holds this for another pending gang. Not in the objects, so it cannot be checked.

    `role`: Admitted (it starts in the same decision), Nominated (it starts there once others have gone, and counts for its queue)
    or Reserved (the place is kept for it, as it has waited long).
    """

    gang: str
    uid: str
    role: str
    claims: tuple[str, ...] = ()
    devices: tuple[Share, ...] = ()
    pods: dict[str, str] = {}


class Certificate(Part, frozen=True, kw_only=True):
    """The gang cannot start in this snapshot, nothing being evicted, provided that what is `given` is so."""

    version: int = VERSION
    gang: str
    uid: str
    snapshot: str
    given: tuple[Given, ...] = ()
    because: Because
