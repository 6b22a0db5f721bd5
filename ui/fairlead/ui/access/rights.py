"""The scope of a user, by what the cluster says of the user's rights.

Asked are the namespaces that the pages know; a list of all namespaces in one question first. With many namespaces a no counts for longer:
`NO_EACH_S` for each, so that a viewer costs the apiserver at most ten questions a second however many tenants there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from fairlead.ui.access.reviews import NO_S, Reviews
from fairlead.ui.access.users import LIST_NODES, LIST_QUEUES, User, list_gangs
from fairlead.ui.model.scope import Scope

NO_EACH_S = 0.1
NO_MAX_S = 300.0
Namespaces = Callable[[], Awaitable[Collection[str]]]


async def scope_of(user: User, reviews: Reviews, namespaces: Namespaces) -> Scope:
    """Raises ReviewError where the cluster does not answer."""
    everywhere, nodes, queues = await asyncio.gather(
        reviews.allowed(user, list_gangs()), reviews.allowed(user, LIST_NODES), reviews.allowed(user, LIST_QUEUES)
    )
    if everywhere:
        return Scope(namespaces=None, cluster=nodes, queues=queues)
    names = sorted(each for each in await namespaces() if each)
    no_s = min(NO_MAX_S, max(NO_S, NO_EACH_S * len(names)))
    answers = await asyncio.gather(*(reviews.allowed(user, list_gangs(name), no_s=no_s) for name in names))
    seen = frozenset(name for name, allowed in zip(names, answers, strict=True) if allowed)
    return Scope(namespaces=seen, cluster=nodes, queues=queues)
