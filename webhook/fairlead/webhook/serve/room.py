"""Room: which sockets are open, what they hold, and which of them is ended when there is no room for another.

Anyone who reaches the port may connect, and no client says what it is. What tells the apiserver from a flood is what a connection
has done: one that has carried a review is proven, and an address with proven connections is trusted before others. A newcomer is
never refused; for it ends, in this order,
- a socket that only lingers after its answer;
- an unproven one: of the address with the most of them, the oldest;
- a proven one: of the address with the most of them, the one with the fewest reviews, and of those the one whose last is longest ago.
Where the bytes that are buffered exceed the limit, unproven connections end first, those of addresses that are not trusted before
others, and among them the one with the most bytes x seconds held: an apiserver sends a review at once.

Example: 1,024 places, 1,000 clients of one address that are silent, three connections of the apiserver. The apiserver's fourth
connection ends the oldest silent one, however many follow.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.webhook.serve.connection import Connection
from fairlead.webhook.serve.limits import Limits, Rank
from fairlead.webhook.serve.sockets import State, TlsSocket

ADDRESSES_MAX = 4096
HALF_LIFE_S = 10.0
"""After which work counts half."""
TRUSTED_S = 600.0
"""After its last review an address is trusted for so long."""
TRUST = 4
"""How much more work a trusted address may cause than another before it comes after it."""
SMALL_BYTES = 64 * 1024
"""A connection that holds no more is not ended for its bytes while another holds more."""


@dataclass(eq=False, slots=True)
class Address:
    """What the clients of one address have open, and what they have cost."""

    unproven: dict[Guest, None] = field(default_factory=dict)
    """Oldest first."""
    proven: dict[Guest, None] = field(default_factory=dict)
    """Longest without a review first."""
    work_s: float = 0.0
    worked_at: float = 0.0
    reviewed_at: float = -TRUSTED_S

    def work(self, now: float) -> float:
        """Seconds of the loop, less the older they are."""
        return float(self.work_s * 0.5 ** ((now - self.worked_at) / HALF_LIFE_S))


@dataclass(eq=False, slots=True)
class Guest:
    """One socket with its connection."""

    socket: TlsSocket
    connection: Connection
    address: Address
    since: float
    proven: bool = False
    reviews: int = 0
    held_bytes: int = 0
    held_since: float = 0.0


class Room:
    """Everything is O(1) per socket and turn, except a search for what ends, which is O(addresses) or O(holders)."""

    def __init__(self, limits: Limits, places: int, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self.places = places
        self.guests: dict[TlsSocket, Guest] = {}
        self.held_bytes = 0
        self._addresses: OrderedDict[str, Address] = OrderedDict()
        self._open: dict[Address, None] = {}
        """Addresses with a socket in the room."""
        self._lingering: dict[Guest, None] = {}
        self._holders: dict[Guest, None] = {}
        self._arrived = 0

    def enter(self, socket: TlsSocket, connection: Connection) -> Guest:
        """A newcomer; ends another where there is no place left."""
        if len(self.guests) >= self.places:
            self.make_place()
        address = self._address(socket.address)
        guest = Guest(socket, connection, address, self._clock())
        self.guests[socket] = guest
        address.unproven[guest] = None
        self._open[address] = None
        return guest

    def make_place(self) -> None:
        """End the connection that matters least, if there is one."""
        if not self.guests:
            return
        guest = next(iter(self._lingering), None)
        if guest is None:
            crowded = max(self._open, key=lambda address: len(address.unproven))
            if not crowded.unproven:
                crowded = max(self._open, key=lambda address: len(address.proven))
            guest = next(iter(crowded.unproven), None) or min(crowded.proven, key=lambda proven: proven.reviews)
        guest.socket.end("no place")

    def leave(self, socket: TlsSocket) -> Guest | None:
        """The socket is closed: whatever it held is free."""
        guest = self.guests.pop(socket, None)
        if guest is None:
            return None
        address = guest.address
        (address.proven if guest.proven else address.unproven).pop(guest, None)
        if not address.proven and not address.unproven:
            self._open.pop(address, None)
        self._lingering.pop(guest, None)
        self._holders.pop(guest, None)
        self.held_bytes -= guest.held_bytes
        return guest

    def reviewed(self, guest: Guest) -> None:
        """The connection has carried a review."""
        address = guest.address
        address.reviewed_at = self._clock()
        guest.reviews += 1
        if guest.socket not in self.guests:
            return
        address.unproven.pop(guest, None)
        address.proven.pop(guest, None)
        address.proven[guest] = None
        guest.proven = True

    def rank(self, guest: Guest) -> Rank:
        """The order of the guest's next turn in its lane: by what its address has cost; then the newest first, if it is not proven."""
        now = self._clock()
        work_s = round(guest.address.work(now), 2)
        if guest.proven:
            return (work_s,)
        self._arrived += 1
        return (work_s / TRUST if self._trusted(guest.address, now) else work_s, -self._arrived)

    def worked(self, guest: Guest, seconds: float) -> None:
        """A turn is over: counts its time and what the connection holds now, and ends connections where that is too much."""
        now, address = self._clock(), guest.address
        address.work_s, address.worked_at = address.work(now) + seconds, now
        if guest.socket in self.guests:
            self._count(guest, now)
            if guest.socket.state is State.LINGERING:
                self._lingering[guest] = None
        if self.held_bytes > self._limits.buffered_bytes:
            self._make_memory(now)

    def count(self, guest: Guest) -> None:
        """What the connection holds has changed outside a turn."""
        if guest.socket in self.guests:
            self._count(guest, self._clock())

    def states(self) -> dict[str, int]:
        """How many sockets are in each state."""
        found = dict.fromkeys(("handshake", "unproven", "proven", "lingering"), 0)
        for guest in self.guests.values():
            found[_state(guest)] += 1
        return found

    # -- inside ----------------------------------------------------------------------------------------------------

    def _trusted(self, address: Address, now: float) -> bool:
        return bool(address.proven) or now - address.reviewed_at < TRUSTED_S

    def _count(self, guest: Guest, now: float) -> None:
        held = guest.connection.buffered_bytes + guest.socket.unsent_bytes
        if held == guest.held_bytes:
            return
        if not guest.held_bytes:
            guest.held_since = now
            self._holders[guest] = None
        self.held_bytes += held - guest.held_bytes
        guest.held_bytes = held
        if not held:
            self._holders.pop(guest, None)

    def _make_memory(self, now: float) -> None:
        """Until an eighth of the limit is free, so that the search is rare."""
        enough = self._limits.buffered_bytes * 7 // 8

        def cost(guest: Guest) -> tuple[bool, bool, bool, float]:
            seconds = now - guest.held_since + 0.001
            small, trusted = guest.held_bytes <= SMALL_BYTES, self._trusted(guest.address, now)
            return (not guest.proven, not small, not trusted, guest.held_bytes * seconds)

        for guest in sorted(self._holders, key=cost, reverse=True):
            if self.held_bytes <= enough:
                return
            guest.socket.abort_reason = "no memory"
            guest.connection.shed()
            if guest.socket.state is State.OPEN and guest.socket.unsent_bytes:
                guest.socket.end("no memory")
            self.count(guest)

    def _address(self, name: str) -> Address:
        key = _network(name)
        found = self._addresses.get(key)
        if found is None:
            found = self._addresses[key] = Address(worked_at=self._clock())
            if len(self._addresses) > ADDRESSES_MAX:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(key)
        return found


def _state(guest: Guest) -> str:
    match guest.socket.state:
        case State.HANDSHAKE:
            return "handshake"
        case State.LINGERING:
            return "lingering"
        case _:
            return "proven" if guest.proven else "unproven"


def _network(name: str) -> str:
    """The address whose clients share one standing: an IPv4 address, or the /64 of an IPv6 address, of which one client has many."""
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name
    if address.version == 4:
        return name
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address) >> 64 << 64, 64)))
