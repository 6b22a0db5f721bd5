"""Continue tokens: which revision a chunked list shows, and after which key it continues.

Pure. The token has etcd3's form, base64 of {"v","rv","start"}: some clients decode it.
Source: k8s.io/apiserver/pkg/storage/continue.go (1.36).
"""

from __future__ import annotations

import base64
import binascii
import json

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.storage.store import Key
from fairlead.sandbox.apiserver.wire.bodies import go_json_error

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
