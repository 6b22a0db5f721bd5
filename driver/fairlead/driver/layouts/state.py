"""The node's label that chooses a layout, and the one beside it that says how far the node is.

Names and values of the second are those of NVIDIA's MIG manager, so that what waits for it goes on working. The reason of the
state is in an annotation, and in an Event when it is new. Where the driver may not write them, that is logged once.
Source: NVIDIA/mig-parted deployments/gpu-operator/reconfigure-mig.sh.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Literal

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.core import Node
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.informer import Informer
from fairlead.kube.resources import NODES

log = logging.getLogger(__name__)

State = Literal["pending", "success", "failed"]
STATES: tuple[State, ...] = ("pending", "success", "failed")
MESSAGE_MAX = 1024
_EVENTS: dict[State, tuple[str, str]] = {
    "pending": ("Normal", "MigConfigPending"),
    "success": ("Normal", "MigConfigApplied"),
    "failed": ("Warning", "MigConfigFailed"),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LayoutState:
    """How far the node is with the layout `config`; `state` None: no layout is asked for. `message` says why."""

    config: str = ""
    state: State | None = None
    message: str = ""


class NodeLabel:
    """The layout that the node's label chooses now. `changed` is called with each new state, for metrics."""

    def __init__(
        self, client: Client, events: EventRecorder, node_name: str, *, changed: Callable[[State | None], None]
    ) -> None:
        self._client = client
        self._events = events
        self._node_name = node_name
        self._changed = changed
        self._nodes: Informer[Node] = Informer(client, NODES, fields=f"metadata.name={node_name}")
        self._first: Node | None = None
        self._reported: LayoutState | None = None
        self._written = True
        self._refused = False

    @property
    def wanted(self) -> str | None:
        """The name of the layout; empty without a label, None while that is not known."""
        node = self._nodes.get(self._node_name) if self._nodes.synced.is_set() else self._first
        return None if node is None else node.metadata.labels.get(names.MIG_CONFIG, "")

    async def read(self) -> None:
        """Before `run`: once, so that the first slices can depend on it."""
        try:
            self._first = await self._client.get(NODES, self._node_name)
        except errors.ApiError as error:
            log.warning("Node %s: its label %s is not known yet: %s", self._node_name, names.MIG_CONFIG, error)

    async def run(self) -> None:
        """Follow the label. Never returns."""
        await self._nodes.run()

    async def report(self, state: LayoutState) -> None:
        """Write the state where it is another than before."""
        if state == self._reported:
            if not self._written:
                await self._write(state)
            return
        before, self._reported = self._reported, state
        self._changed(state.state)
        if state.state is not None:
            kind, reason = _EVENTS[state.state]
            text = f"MIG layout {state.config}: {state.message or 'the GPUs are cut as it says'}"
            log.log(logging.ERROR if state.state == "failed" else logging.INFO, "%s: %s", state.state, text)
            if (
                before is None
                or (before.config, before.state) != (state.config, state.state)
                or state.state == "failed"
            ):
                self._events.record(Regarding.node(self._node_name), reason, text, type=kind)
        elif before is None and self._state_label() is None:
            return  # there never was a layout
        await self._write(state)

    def _state_label(self) -> str | None:
        node = self._nodes.get(self._node_name) or self._first
        return None if node is None else node.metadata.labels.get(names.MIG_CONFIG_STATE)

    async def _write(self, state: LayoutState) -> None:
        message = state.message[:MESSAGE_MAX] or None
        body = {
            "metadata": {
                "labels": {names.MIG_CONFIG_STATE: state.state},
                "annotations": {names.MIG_CONFIG_MESSAGE: message},
            }
        }
        first, self._written = self._written, True
        try:
            await self._client.patch(NODES, self._node_name, body)
        except (errors.Forbidden, errors.Invalid) as error:
            if not self._refused:
                log.error("Node %s: the state of its MIG layout is not written: %s", self._node_name, error)
            self._refused = True
        except errors.ApiError as error:
            if first:
                log.warning("Node %s: the state of its MIG layout: %s; tried again", self._node_name, error)
            self._written = False
