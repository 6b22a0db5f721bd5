"""What one pod costs the apiserver: accepted writes, refused writes and webhook calls, by kind.

Counted as a real apiserver's metrics count them: verb, resource and subresource, and the writer. Not counted: leases, reviews
that are only asked, dry runs, and what the cluster's own actors write whose cost is not the protocol's (kubelets, the Job
controller, this benchmark), except the POST of each pod.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping

from fairlead.sandbox.apiserver.state import Completed, State, WebhookCall

VERBS = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "apply": "APPLY",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
REVIEWS = frozenset({"subjectaccessreviews", "selfsubjectaccessreviews", "tokenreviews", "selfsubjectrulesreviews"})
BYSTANDERS = frozenset({"admin", "job-controller", "replicaset-controller"})


class Traffic:
    """Counts from its creation, or from the last `reset`."""

    def __init__(self, state: State) -> None:
        self.writes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._last = time.monotonic()
        state.on_completed = self._completed
        state.on_webhook_call = self._called

    def reset(self) -> None:
        for each in (self.writes, self.refused, self.calls):
            each.clear()

    async def quiet(self, quiet_s: float, *, at_most_s: float = 300.0) -> None:
        """Until nothing was written for so long; a writer that never rests is waited for `at_most_s`."""
        deadline = time.monotonic() + at_most_s
        self._last = time.monotonic()
        while (now := time.monotonic()) < deadline and now - self._last < quiet_s:  # noqa: ASYNC110 - counts many events
            await asyncio.sleep(0.05)

    def _completed(self, request: Completed) -> None:
        verb = VERBS.get(request.verb)
        if verb is None or request.dry_run or request.resource in REVIEWS or request.resource == "leases":
            return
        writer = request.user.name.rpartition(":")[2]
        makes_a_pod = verb == "POST" and request.resource == "pods" and not request.subresource
        if not makes_a_pod and (writer in BYSTANDERS or request.user.name.startswith("system:node:")):
            return
        self._last = time.monotonic()
        what = f"{verb} {request.resource}" + (f"/{request.subresource}" if request.subresource else "")
        if makes_a_pod:
            writer = "the pods' owner"
        if request.code < 400:
            self.writes[f"{what}, {writer}"] += 1
        else:
            self.refused[f"{what}, {writer}: {request.code}"] += 1

    def _called(self, call: WebhookCall) -> None:
        resource = call.resource + (f"/{call.subresource}" if call.subresource else "")
        self.calls[f"{'mutate' if call.mutating else 'validate'} {call.operation} {resource}"] += 1


def per_pod(counts: Mapping[str, int], pods: int) -> dict[str, float]:
    """The largest first."""
    return {what: round(n / pods, 4) for what, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))}
