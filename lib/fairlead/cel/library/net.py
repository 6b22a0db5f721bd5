"""IP addresses, CIDRs and URLs: parsed as by Go's netip and net/url, with Kubernetes' restrictions.

Refused here, though Python's ipaddress accepts them: zones, IPv4-mapped IPv6 addresses, prefix lengths with leading zeros. A URL is
absolute, or an absolute path (urllib accepts nearly any text).
Source: k8s.io/apiserver/pkg/cel/library/ip.go, cidr.go, urls.go; Go net/url.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

from fairlead.cel.declare import Library
from fairlead.cel.errors import EvaluationError
from fairlead.cel.values import Cidr, Url

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


URLS: Final = Library("kubernetes.urls")
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_PERCENT: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
_HOST: Final = re.compile(r"(?:\[[0-9a-fA-F:.%~a-zA-Z_-]*\]|[^\[\]:/?#@\s<>\"{}|\\^`]*)(?::[0-9]*)?")
_PATH_SAFE: Final = "/$&+,;=:@-_.~!*'()[]%"


def parse_url(text: str) -> Url:
    """Raises EvaluationError."""
    wrong = EvaluationError(
        f"URL parse error during conversion from string: parse {text[:80]!r}: invalid URI for request"
    )
    if not text or _CONTROL.search(text):
        raise wrong
    rest, _, _ = text.partition("#")
    rest, _, query = rest.partition("?")
    scheme = ""
    if not rest.startswith("/"):
        match = _SCHEME.match(rest)
        if match is None or rest[match.end() : match.end() + 1] != ":":
            raise wrong
        scheme, rest = match.group().lower(), rest[match.end() + 1 :]
        if not rest.startswith("/"):
            if not rest and not scheme:
                raise wrong
            return Url(text, scheme, "", "", "", "", _query(query))  # opaque, as mailto:a@b
    host = ""
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, tail = rest[2:].partition("/")
        rest = slash + tail
        host = authority.rpartition("@")[2]
        if not _HOST.fullmatch(host) or (_BAD_PERCENT.search(host) and not host.startswith("[")):
            raise wrong
    if _BAD_PERCENT.search(rest):
        raise wrong
    hostname, port = _split_host(host)
    return Url(text, scheme, host, hostname, port, _escaped(rest), _query(query))


def _split_host(host: str) -> tuple[str, str]:
    if host.startswith("["):
        inner, _, tail = host[1:].partition("]")
        return inner, tail.removeprefix(":")
    name, _, port = host.partition(":")
    return name, port


def _escaped(path: str) -> str:
    """Go's EscapedPath: the given escaping if it is valid, else its own."""
    return path if quote(path, safe=_PATH_SAFE) == path else quote(unquote(path), safe="/$&+,;=:@-_.~!*'()")


def _query(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    values: dict[str, list[str]] = {}
    for pair in text.split("&"):
        if not pair or ";" in pair or _BAD_PERCENT.search(pair):
            continue
        key, _, value = pair.partition("=")
        values.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return tuple((key, tuple(found)) for key, found in values.items())


def is_url(text: str) -> bool:
    try:
        parse_url(text)
    except EvaluationError:
        return False
    return True


def _query_map(url: Url) -> dict[object, object]:
    return {key: list(values) for key, values in url.query}


URLS.function("url", "string", "url", "string_to_url", parse_url)
URLS.function("isURL", "string", "bool", "is_url_string", is_url)
URLS.member("getScheme", "url", "string", "url_get_scheme", lambda url: url.scheme)
URLS.member("getHost", "url", "string", "url_get_host", lambda url: url.host)
URLS.member("getHostname", "url", "string", "url_get_hostname", lambda url: url.hostname)
URLS.member("getPort", "url", "string", "url_get_port", lambda url: url.port)
URLS.member("getEscapedPath", "url", "string", "url_get_escaped_path", lambda url: url.path)
URLS.member("getQuery", "url", "map(string, list(string))", "url_get_query", _query_map)
