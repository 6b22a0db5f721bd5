"""IP addresses and CIDRs: parsed as by Go's netip, with Kubernetes' restrictions.

Refused here, though Python's ipaddress accepts them: zones, IPv4-mapped IPv6 addresses, prefix lengths with leading zeros.
Source: k8s.io/apiserver/pkg/cel/library/ip.go, cidr.go.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.errors import EvaluationError
from fairlead.cel.values import Cidr

NET: Final = Library("kubernetes.net")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_BITS: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_TEXT_MAX: Final = 64  # characters of a text whose meaning is cached; no address has more
_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")


def parse_ip(text: str) -> Address:
    """Raises EvaluationError."""
    return _remembered_ip(text) if len(text) <= _TEXT_MAX else _parse_ip(text)


def _parse_ip(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise EvaluationError(f"IP Address {text[:64]!r} parse error during conversion from string") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise EvaluationError(f"IP address {text!r} with zone value is not allowed")
        if address.ipv4_mapped is not None:
            raise EvaluationError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return address


_remembered_ip = lru_cache(maxsize=4096)(_parse_ip)


def parse_cidr(text: str) -> Cidr:
    """Raises EvaluationError."""
    return _remembered_cidr(text) if len(text) <= _TEXT_MAX else _parse_cidr(text)


def _parse_cidr(text: str) -> Cidr:
    head, slash, bits = text.rpartition("/")
    if not slash or not _BITS.fullmatch(bits):
        raise EvaluationError(f"network address {text[:64]!r} parse error during conversion from string")
    address = parse_ip(head)
    if int(bits) > address.max_prefixlen:
        raise EvaluationError(f"network address {text!r}: prefix length is above {address.max_prefixlen}")
    return Cidr(address, int(bits))


_remembered_cidr = lru_cache(maxsize=4096)(_parse_cidr)


def _succeeds(text: str, *, cidr: bool) -> bool:
    try:
        _ = parse_cidr(text) if cidr else parse_ip(text)
    except EvaluationError:
        return False
    return True


def _is_canonical(text: str) -> bool:
    return str(parse_ip(text)) == text


def _is_global_unicast(address: Address) -> bool:
    if address == _BROADCAST:
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


def _is_link_local_multicast(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in _MULTICAST_4
    packed = address.packed
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


_MULTICAST_4: Final = ipaddress.IPv4Network("224.0.0.0/24")


def _contains_ip(cidr: Cidr, address: Address | str) -> bool:
    if isinstance(address, str):
        address = parse_ip(address)
    return address.version == cidr.address.version and address in cidr.network


def _contains_cidr(cidr: Cidr, other: Cidr | str) -> bool:
    if isinstance(other, str):
        other = parse_cidr(other)
    return cidr.prefix <= other.prefix and _contains_ip(cidr, other.address)


def _masked(cidr: Cidr) -> Cidr:
    return Cidr(cidr.network.network_address, cidr.prefix)


def _declare() -> None:
    lib = NET
    lib.function("ip", "string", "ip", "string_to_ip", parse_ip)
    lib.function("isIP", "string", "bool", "is_ip", lambda text: _succeeds(text, cidr=False))
    lib.function("ip.isCanonical", "string", "bool", "ip_is_canonical", _is_canonical)
    lib.function("string", "ip", "string", "ip_to_string", str)
    lib.member("family", "ip", "int", "ip_family", lambda address: address.version)
    lib.member("isUnspecified", "ip", "bool", "ip_is_unspecified", lambda address: address.is_unspecified)
    lib.member("isLoopback", "ip", "bool", "ip_is_loopback", lambda address: address.is_loopback)
    lib.member("isLinkLocalMulticast", "ip", "bool", "ip_is_link_local_multicast", _is_link_local_multicast)
    lib.member("isLinkLocalUnicast", "ip", "bool", "ip_is_link_local_unicast", lambda address: address.is_link_local)
    lib.member("isGlobalUnicast", "ip", "bool", "ip_is_global_unicast", _is_global_unicast)
    lib.function("cidr", "string", "cidr", "string_to_cidr", parse_cidr)
    lib.function("isCIDR", "string", "bool", "is_cidr", lambda text: _succeeds(text, cidr=True))
    lib.function("string", "cidr", "string", "cidr_to_string", str)
    lib.member("containsIP", "cidr, string", "bool", "cidr_contains_ip_string", _contains_ip)
    lib.member("containsIP", "cidr, ip", "bool", "cidr_contains_ip_ip", _contains_ip)
    lib.member("containsCIDR", "cidr, string", "bool", "cidr_contains_cidr_string", _contains_cidr)
    lib.member("containsCIDR", "cidr, cidr", "bool", "cidr_contains_cidr", _contains_cidr)
    lib.member("ip", "cidr", "ip", "cidr_ip", lambda cidr: cidr.address)
    lib.member("masked", "cidr", "cidr", "cidr_masked", _masked)
    lib.member("prefixLength", "cidr", "int", "cidr_prefix_length", lambda cidr: cidr.prefix)


_declare()
