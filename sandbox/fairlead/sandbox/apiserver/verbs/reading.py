"""GET and LIST: one object, or a page of those that the selectors match.

Chunked lists show one revision throughout; `resourceVersion=0` ignores the limit, as the real one does when its cache
answers. A continue token has etcd3's form, base64 of {"v","rv","start"}: some clients decode it. Watches are in watching.py.
Source: k8s.io/apiserver/pkg/storage/continue.go (1.36).
"""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Callable

from fairlead.sandbox.apiserver import rendering, statuses
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, not_supported
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.rendering import negotiate
from fairlead.sandbox.apiserver.selectors import FieldSelector, LabelSelector, SelectorError, parse_fields, parse_labels
from fairlead.sandbox.apiserver.store import Compacted, Key, Stored
from fairlead.sandbox.apiserver.wire.bodies import go_json_error
from fairlead.sandbox.apiserver.wire.exchange import Request, Response

Predicate = Callable[[Stored], bool]

EXACT, NOT_OLDER = "Exact", "NotOlderThan"


def get(call: Call) -> Response:
    stored = call.state.store.get(call.kind.storage, call.key)
    if stored is None:
        raise statuses.not_found(call.kind, call.target.name)
    wanted = negotiate(call.request.accept)
    revision = parse_revision(call.request)
    if revision is not None and revision > call.state.store.revision:
        raise statuses.too_large_revision(revision, call.state.store.revision)
    return rendering.one(
        call.kind, stored, wanted, call.state.now(), include=call.request.param("includeObject") or "Metadata"
    )


def list_objects(call: Call) -> Response:
    request, store = call.request, call.state.store
    wanted = negotiate(request.accept)
    selects, selected = selection(request, call.kind)
    check_list_options(request)
    revision = parse_revision(request)
    token = request.param("continue")
    limit = max(call.number("limit") or 0, 0)
    after = None
    at = store.revision
    if token:
        if revision:
            raise statuses.bad_request("specifying resource version is not allowed when using continue")
        after, asked = decode(token, call.namespace, namespaced=call.kind.namespaced)
        at = store.revision if asked == LATEST else asked
    elif revision is not None:
        if revision > store.revision:
            raise statuses.too_large_revision(revision, store.revision)
        if request.param("resourceVersionMatch") == EXACT:
            at = revision
        elif revision == 0:
            limit = 0  # answered from the watch cache, which does not page
    try:
        entries = store.entries(call.kind.storage, call.namespace, at=at)
    except Compacted as error:
        if after is None:
            raise statuses.expired(TOO_OLD) from error
        fresh = encode(after, LATEST, namespaced_list=bool(call.namespace))
        raise statuses.expired(EXPIRED, continue_token=fresh) from error
    if after is not None:
        entries = entries[bisect_right(entries, after, key=lambda stored: stored.key) :]
    page, remaining = _page(entries, selects, limit)
    metadata: Json = {"resourceVersion": str(at)}
    if remaining:
        metadata["continue"] = encode(page[-1].key, at, namespaced_list=bool(call.namespace))
        if not selected:
            metadata["remainingItemCount"] = remaining
    include = request.param("includeObject") or "Metadata"
    return rendering.many(call.kind, page, metadata, wanted, call.state.now(), include=include)


def _page(entries: list[Stored], selects: Predicate, limit: int) -> tuple[list[Stored], int]:
    """The first `limit` matches, and how many entries (matching or not) come after the last of them."""
    if not limit:
        return [stored for stored in entries if selects(stored)], 0
    page: list[Stored] = []
    for index, stored in enumerate(entries):
        if selects(stored):
            page.append(stored)
            if len(page) == limit:
                return page, len(entries) - index - 1
    return page, 0


def parse_revision(request: Request) -> int | None:
    """`resourceVersion`, None when not given. Raises 500."""
    text = request.param("resourceVersion")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        # A 500 without a reason: the real one does not map its storage's error (kubernetes/kubernetes#139485).
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise statuses.ApiError(500, "", why)
    return int(text)


def check_list_options(request: Request) -> None:
    """Raises 422 for options that do not go together."""
    errors: list[FieldError] = []
    match = request.param("resourceVersionMatch")
    if request.param("sendInitialEvents"):
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if match:
        field = "resourceVersionMatch"
        if not request.param("resourceVersion"):
            errors.append(forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if request.param("continue"):
            errors.append(forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in {EXACT, NOT_OLDER}:
            errors.append(not_supported(field, match, [EXACT, NOT_OLDER, ""]))
        if match == EXACT and request.param("resourceVersion") == "0":
            errors.append(forbidden(field, 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'))
    if errors:
        raise statuses.invalid_kind("meta.k8s.io", "ListOptions", "", errors)


def selection(request: Request, kind: Kind) -> tuple[Predicate, bool]:
    """A predicate for the request's selectors, and whether there are any. Raises 400."""
    try:
        labels = parse_labels(request.param("labelSelector"))
        fields = parse_fields(request.param("fieldSelector"))
    except SelectorError as error:
        raise statuses.bad_request(str(error)) from error
    known = ["metadata.name", "metadata.namespace", *kind.strategy.selectable_fields({"metadata": {}})]
    for field, _, _ in fields.terms:
        if field not in known:
            raise statuses.bad_request(_unknown_field(kind, field, known))
    if not labels.requirements and not fields.terms:
        return _everything, False
    return _predicate(kind, labels, fields), True


def _everything(_: Stored) -> bool:
    return True


def _predicate(kind: Kind, labels: LabelSelector, fields: FieldSelector) -> Predicate:
    read = kind.strategy.selectable_fields

    def selects(stored: Stored) -> bool:
        if labels.requirements and not labels.matches(stored.obj["metadata"].get("labels") or {}):
            return False
        return not fields.terms or fields.matches(stored.fields(read))

    return selects


def _unknown_field(kind: Kind, field: str, known: list[str]) -> str:
    """The real one's texts differ by group."""
    if kind.strategy.custom_resource:
        return f"field label not supported: {field}"
    if kind.group == "resource.k8s.io" and len(known) > 2:
        return f"field label not supported for {kind.api_version}, Kind={kind.kind}: {field}"
    if kind.group == "batch":
        return f'field label "{field}" not supported for {kind.kind}'
    if len(known) <= 2:
        return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    return f"field label not supported: {field}"


_VERSION = "meta.k8s.io/v1"
LATEST = -1  # the revision of a token that continues inconsistently, after 410

EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
TOO_OLD = "The resourceVersion for the provided list is too old."


def encode(after: Key, revision: int, *, namespaced_list: bool) -> str:
    """A token that continues after `after`. In a list of one namespace the key has no namespace."""
    namespace, name = after
    start = f"/{name}\0" if namespaced_list or not namespace else f"/{namespace}/{name}\0"
    text = json.dumps({"v": _VERSION, "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(token: str, namespace: str, *, namespaced: bool) -> tuple[Key, int]:
    """The key to continue after, and the revision. Raises 400."""
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise _bad(f"illegal base64 data at input byte {_first_bad(token)}") from error
    text = data.decode("latin-1")  # Go decodes bytes; an invalid one is shown as a code point
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad(_latin_error(text, error)) from error
    if not isinstance(found, dict) or found.get("v") != _VERSION:
        version = found.get("v", "") if isinstance(found, dict) else ""
        raise _bad(f'server does not recognize this encoded version "{version}"')
    start, revision = found.get("start", ""), found.get("rv", 0)
    if not start:
        raise _bad(f"encoded start key empty (version {_VERSION})")
    if not isinstance(start, str) or not isinstance(revision, int) or not revision:
        raise _bad(f"incorrect encoded start resourceVersion (version {_VERSION})")
    parts = start.encode("latin-1").decode().strip("/").removesuffix("\0").split("/")
    if len(parts) > 2 or (len(parts) == 2) != (namespaced and not namespace):
        raise _bad(f'invalid start key "{start}"')
    key = (parts[0], parts[1]) if len(parts) == 2 else (namespace, parts[0])
    return key, revision


def _bad(why: str) -> statuses.ApiError:
    return statuses.bad_request(f"invalid continue token: continue key is not valid: {why}")


def _first_bad(token: str) -> int:
    for index, char in enumerate(token):
        if not (char.isascii() and (char.isalnum() or char in "-_")):
            return index
    return len(token)


def _latin_error(text: str, error: json.JSONDecodeError) -> str:
    rest = text[error.pos :].lstrip()
    if rest and not rest[0].isascii():
        return f"invalid character '{_code_point(rest[0])}' looking for beginning of value"
    return go_json_error(text, error)


def _code_point(char: str) -> str:
    return char if char.isprintable() else f"\\u{ord(char):04x}"
