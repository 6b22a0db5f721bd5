"""What a request's viewer sees: the seam between the server and pages that are in files of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from fairlead.ui.model.facts import Facts
from fairlead.ui.model.scope import Scope

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Seen(NamedTuple):
    """`facts` are those of the viewer; `everything` is for what must know more than it shows."""

    scope: Scope
    facts: Facts
    everything: Facts


Look = Callable[[web.Request], Awaitable[Seen]]
"""Raises LoginNeededError, and NotReadError where nothing was ever read."""
