"""URLs: absolute ones or absolute paths, parsed as by Go's net/url (urllib accepts nearly any text).

Source: k8s.io/apiserver/pkg/cel/library/urls.go; Go net/url.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

from fairlead.cel.declare import Library
from fairlead.cel.errors import EvaluationError
from fairlead.cel.values import Url

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
