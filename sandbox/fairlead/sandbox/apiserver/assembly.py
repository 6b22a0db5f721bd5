"""Puts an apiserver together: the kinds, admission, authorization, and the objects that every cluster starts with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from random import Random

from fairlead.sandbox.apiserver import admission, bootstrap
from fairlead.sandbox.apiserver.auth.rbac import Rbac
from fairlead.sandbox.apiserver.authn import Tokens
from fairlead.sandbox.apiserver.kinds import catalogue
from fairlead.sandbox.apiserver.kinds.base import Registry
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.storage.store import Store
from fairlead.sandbox.release import NEWEST, Release


def assemble(
    clock: Callable[[], datetime],
    random: Random,
    *,
    authorize: bool,
    bookmark_interval_s: float,
    history_limit: int,
    release: Release = NEWEST,
) -> State:
    """A state whose history starts now: no older revision can be watched, as after the start of a real one."""
    state = State(
        Store(history_limit=history_limit),
        Registry(catalogue.kinds(release)),
        clock,
        random,
        Tokens(random),
        bookmark_interval_s=bookmark_interval_s,
        release=release,
    )
    if authorize:
        state.authorizer = Rbac(state)
    bootstrap.populate(state)
    state.admission = admission.chain(
        state,
        called=state.webhook_called,
        converted=state.converted,
        store=partial(state.replace, "", "resourcequotas"),
    )
    state.store.compact()
    return state
