"""`fairlead hold | resume gang | queue`: write and take away spec.hold, and say what follows.

Whatever was written first stays: a second hold changes nothing but to add `evict`, so of two at once one reports the other's. Each
write names the resourceVersion that it was decided on. Killed at any point it has written, or it has not.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from fairlead.api import names
from fairlead.api.gang import VERB
from fairlead.api.texts import line
from fairlead.cli import completion, reading
from fairlead.cli.options import LINE, Namespace
from fairlead.cli.printer import say
from fairlead.cli.reading import OfCluster
from fairlead.kube import errors, timestamps
from fairlead.kube.resources import GANGS, PODS, QUEUES, SELF_SUBJECT_ACCESS_REVIEWS, Raw, raw
from fairlead.ui.model import plain_pods
from fairlead.ui.reading.cluster import Cluster, NotReadError, not_read

Kind = Literal["gang", "queue"]
TRIES = 5
_RESOURCES = {"gang": GANGS, "queue": QUEUES}
Evict = Annotated[
    bool, typer.Option("--evict", help="Evict what runs, too: with its checkpoint-grace, as budgets allow.")
]
Reason = Annotated[str, LINE, typer.Option(metavar="TEXT", help="Why, in one line; it stands wherever the hold shows.")]


class Operation:
    """One gang or queue; `namespace` is None for a queue. `now`: unix seconds. Raises NotReadError for whatever the user can amend."""

    def __init__(
        self, cluster: Cluster, kind: Kind, name: str, namespace: str | None, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._kind = kind
        self._name = name
        self._namespace = namespace
        self._resource = _RESOURCES[kind]
        self._say = say
        self._what = f"gang {namespace}/{name}" if kind == "gang" else f"queue {name}"

    async def hold(self, reason: str, *, evict: bool, now: float) -> None:
        for _ in range(TRIES):
            found = await self._found()
            known = _hold_of(found)
            if known is not None and not (evict and known.get("evict") is not True):
                more = "" if not reason or reason == known.get("reason") else "; its reason stays as it is"
                self._say(f"{self._what} is {_text(known)} already{more}")
                return
            wanted = await self._wanted(known, reason=reason, evict=evict, now=now)
            if await self._write(found, wanted):
                self._say(f"{self._what} is {_text(wanted)}; {self._follows(found, evict=evict)}")
                return
        raise NotReadError(f"{self._what} changes all the time: nothing was written; try again")

    async def resume(self) -> None:
        for _ in range(TRIES):
            found = await self._get()
            if found is None and self._kind == "gang":
                found = await self._found(create=False)
            if found is None:
                raise await self._unknown()
            known = _hold_of(found)
            if known is None:
                self._say(f"{self._what} is not on hold{_elsewhere(found)}")
                return
            if await self._write(found, None):
                self._say(f"{self._what} is resumed; it was {_text(known)}{_elsewhere(found)}")
                return
        raise NotReadError(f"{self._what} changes all the time: nothing was written; try again")

    # -- objects -----------------------------------------------------------------------------------------------------

    async def _get(self) -> Raw | None:
        return await self._cluster.get(self._resource, self._name, self._namespace)

    async def _found(self, *, create: bool = True) -> Raw:
        """The object; for a gang of one that has none yet, a new one that is not written."""
        found = await self._get()
        if found is not None:
            return found
        if self._kind == "gang":
            pod = await self._cluster.get(PODS, self._name, self._namespace)
            if pod is not None and plain_pods.is_plain(pod):
                labels = {names.MANAGED_BY: names.MANAGED_BY_VALUE}
                metadata = {"name": self._name, "namespace": self._namespace, "labels": labels}
                return {"metadata": metadata, "spec": {"size": 1}}
        raise await self._unknown()

    async def _unknown(self) -> NotReadError:
        known = [str(each["metadata"]["name"]) for each in await self._cluster.list(self._resource, self._namespace)]
        near = difflib.get_close_matches(self._name, known, n=3)
        if near:
            hint = f"did you mean {', '.join(near)}?"
        elif self._kind == "queue":
            hint = f"there are {', '.join(known[:8])}" if known else "there are no queues"
        else:
            await reading.check_namespace(self._cluster, self._namespace or "")
            hint = f"`{reading.program()} gangs -n {self._namespace}` lists those of that namespace, -A all"
        return NotReadError(f"there is no {self._what}; {hint}")

    async def _wanted(self, known: dict[str, Any] | None, *, reason: str, evict: bool, now: float) -> dict[str, Any]:
        if known is not None:
            return {**known, "evict": True}
        wanted: dict[str, Any] = {"since": timestamps.seconds(now)}
        user = await reading.user(self._client)
        if user:
            wanted["by"] = user
        if reason:
            wanted["reason"] = reason
        if evict:
            wanted["evict"] = True
        if self._kind == "gang" and await self._may_protect():
            wanted["protected"] = True
        return wanted

    async def _may_protect(self) -> bool:
        """Whether only users with the verb may take the hold away, as this one has it."""
        attributes = {"verb": VERB, "group": names.API_GROUP, "resource": "gangs"}  # in all namespaces
        try:
            seen = await self._client.create(SELF_SUBJECT_ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}})
        except errors.ApiError:
            return False
        return (seen.get("status") or {}).get("allowed") is True

    async def _write(self, found: Raw, hold: dict[str, Any] | None) -> bool:
        """Whether it is written; False where the object has changed since it was read. Raises NotReadError."""
        version = found["metadata"].get("resourceVersion")
        verb = "patch" if version else "create"
        try:
            if version:
                body = {"metadata": {"resourceVersion": version}, "spec": {"hold": _replaced(_hold_of(found), hold)}}
                await self._client.patch(raw(self._resource), self._name, body, namespace=self._namespace)
            else:
                await self._client.create(raw(self._resource), {**found, "spec": {**found["spec"], "hold": hold}})
        except (errors.Conflict, errors.NotFound):
            return False
        except errors.ApiError as error:
            if isinstance(error, errors.Forbidden) and "spec.hold" in str(error):
                raise NotReadError(f"{self._what}: {error.message}") from error
            if isinstance(error, errors.Invalid) and "unknown field" in str(error):
                raise NotReadError(f"{self._what}: its CRD has no spec.hold; upgrade the CRDs first") from error
            raise not_read(error, verb, self._resource, self._namespace) from error
        return True

    def _follows(self, found: Raw, *, evict: bool) -> str:
        status = found.get("status") or {}
        again = f"`{reading.program()} resume {self._kind} {self._name}{self._flag()}` ends it"
        runs = status.get("running") if self._kind == "queue" else status.get("phase") in {"Admitted", "Running"}
        if not runs:
            return again
        which = f"{runs} gangs that run there" if self._kind == "queue" else "it runs"
        if evict:
            return f"{which}{'' if self._kind == 'queue' else ', and'} will be evicted, as their notice and budgets allow; {again}"
        return f"{which}{' go on' if self._kind == 'queue' else ' on'} (--evict stops what runs); {again}"

    def _flag(self) -> str:
        return f" -n {self._namespace}" if self._kind == "gang" else ""


def _replaced(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    """The merge patch by which `new` replaces all of `old`."""
    if old is None or new is None:
        return new
    return {**dict.fromkeys(old), **new}


def _hold_of(found: Raw) -> dict[str, Any] | None:
    hold = (found.get("spec") or {}).get("hold")
    return hold if isinstance(hold, dict) else None


def _text(hold: dict[str, Any]) -> str:
    """A hold in one line, as the status says it."""
    by, since, reason = (_printable(hold.get(key)) for key in ("by", "since", "reason"))
    who = (f" by {by}" if by else "") + (f" since {since}" if since else "")
    return f"on hold{who}{f': {reason}' if reason else ''}"


def _printable(value: object) -> str:
    return line(value) if isinstance(value, str) else ""


def _elsewhere(found: Raw) -> str:
    """That another hold counts: its queue's, or that of a queue above."""
    for each in (found.get("status") or {}).get("conditions") or ():
        if each.get("type") == "OnHold" and each.get("status") == "True":
            message = _printable(each.get("message"))
            own = f"queue {found['metadata']['name']} " if found.get("kind") == "Queue" else ""
            if message.startswith("queue ") and not (own and message.startswith(own)):
                return f"; but {message}"
    return ""


# -- commands ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Holding(OfCluster):
    """One that puts a gang or a queue on hold, or ends that."""

    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="json: one object for programs.")
    ] = "text"

    def _run(self, kind: Kind, name: str, namespace: str | None, work: Callable[[Operation], Awaitable[None]]) -> None:
        def told(text: str) -> None:
            if self.output == "json":
                say(json.dumps({"kind": kind, "name": name, "namespace": namespace, "message": text}))
            else:
                say(text)

        async def connected(cluster: Cluster) -> None:
            await work(Operation(cluster, kind, name, namespace, told))

        self.ask(connected)


@dataclass(frozen=True, kw_only=True)
class HoldGang(Holding):
    """Put a gang on hold: it keeps its place and age, and is not admitted. Again: changes nothing but to add --evict."""

    name: Annotated[
        str,
        typer.Argument(help="The gang; a pod without a gang is one of its own name.", autocompletion=completion.gangs),
    ]
    namespace: Namespace = None
    reason: Reason = ""
    evict: Evict = False

    def run(self) -> None:
        namespace = self.namespace or self.own_namespace
        self._run("gang", self.name, namespace, lambda it: it.hold(self.reason, evict=self.evict, now=time.time()))


@dataclass(frozen=True, kw_only=True)
class HoldQueue(Holding):
    """Put a queue on hold: no gang of it, or of the queues below it, is admitted."""

    name: Annotated[
        str, typer.Argument(help="The queue; those below it are on hold with it.", autocompletion=completion.queues)
    ]
    reason: Reason = ""
    evict: Evict = False

    def run(self) -> None:
        self._run("queue", self.name, None, lambda it: it.hold(self.reason, evict=self.evict, now=time.time()))


@dataclass(frozen=True, kw_only=True)
class ResumeGang(Holding):
    """End the hold of a gang. One that an operator wrote takes the right that it was written with."""

    name: Annotated[str, typer.Argument(help="The gang.", autocompletion=completion.gangs)]
    namespace: Namespace = None

    def run(self) -> None:
        self._run("gang", self.name, self.namespace or self.own_namespace, lambda it: it.resume())


@dataclass(frozen=True, kw_only=True)
class ResumeQueue(Holding):
    """End the hold of a queue; holds of queues above it, and of its gangs, stay."""

    name: Annotated[str, typer.Argument(help="The queue.", autocompletion=completion.queues)]

    def run(self) -> None:
        self._run("queue", self.name, None, lambda it: it.resume())
