"""How the containers of a pod are stopped: preStop hooks, SIGTERM, and SIGKILL at the end of the grace period.

Source: kubernetes pkg/kubelet/pod_workers.go (calculateEffectiveGracePeriod), kuberuntime/kuberuntime_container.go
(killContainer), 1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final

from fairlead.sandbox.kubelet.runtime import Container, Runtime
from fairlead.sandbox.objects import Obj, meta, spec_of

LEAST_S: Final = 1.0  # of a grace period
AFTER_HOOK_S: Final = 2.0  # that a container has at least between SIGTERM and SIGKILL
DEFAULT_S: Final = 30.0


def grace_s(pod: Obj, *, before_s: float | None) -> float:
    """The pod's grace period: the deletion's, or the spec's where the pod ends without one.

    A pod that was removed from the API at once (grace period 0) was never marked: it has all of its spec's time. `before_s` is
    what an earlier deletion allowed: it can only become less.
    """
    asked = meta(pod).get("deletionGracePeriodSeconds")
    if asked is None:
        asked = spec_of(pod).get("terminationGracePeriodSeconds")
    wanted = max(LEAST_S, DEFAULT_S if asked is None else float(asked))
    return wanted if before_s is None else min(wanted, before_s)


@contextlib.asynccontextmanager
async def stop(runtime: Runtime, containers: Iterable[Container], *, grace_s: float) -> AsyncIterator[asyncio.Event]:
    """Stops them for the length of the block; the event is set when all have ended. SIGTERM stays sent after the block."""
    done = asyncio.Event()

    async def run() -> None:
        await asyncio.gather(*(_stop(runtime, each, grace_s) for each in containers))
        done.set()

    task = asyncio.create_task(run())
    try:
        yield done
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _stop(runtime: Runtime, container: Container, grace_s: float) -> None:
    hook_s = 0.0 if container.signalled else min(container.program.pre_stop_s, grace_s)
    if hook_s:
        await _ends_within(container, hook_s)
    runtime.terminate(container)
    if not await _ends_within(container, max(grace_s - hook_s, AFTER_HOOK_S)):
        runtime.kill(container)


async def _ends_within(container: Container, timeout_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await container.ended.wait()
    return container.ended_s is not None
