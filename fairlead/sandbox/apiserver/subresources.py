"""Subresources that are more than a view of the object: scale, binding, eviction, log, finalize, token, reviews.

Keyed by (subresource or group/resource, verb).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.exchange import Response, Stream

Handler = Callable[[Call], Awaitable[Response | Stream]]

SUBRESOURCES: dict[tuple[str, str], Handler] = {}
