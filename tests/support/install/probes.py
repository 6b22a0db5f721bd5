"""Kubelet's probes of one container: when they are sent, and what a row of failures means.

Startup first, if there is one; then liveness and readiness side by side, each with its own period, timeout and thresholds. A
container whose liveness or startup probe has failed too often would be killed: `verdict` says so, and the test fails on it.
Source: pkg/kubelet/prober, defaults of pkg/apis/core/v1.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fairlead.sandbox.install.pod_commands import port_number
from tests.support.install.network import Streams

_TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_TRUSTING.check_hostname = False
_TRUSTING.verify_mode = ssl.CERT_NONE
"""Kubelet checks no certificate."""
Dial = Callable[[int], Awaitable[Streams]]


class Probing:
    def __init__(self, container: Mapping[str, Any], dial: Dial) -> None:
        self.ready = asyncio.Event()
        self.live = asyncio.Event()
        self.verdict = ""
        self._container, self._dial = container, dial
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        startup = self._container.get("startupProbe")
        if startup is not None and not await self._succeeded("startup", startup):
            return
        async with asyncio.TaskGroup() as group:
            for kind, seen in (("liveness", self.live), ("readiness", self.ready)):
                probe = self._container.get(f"{kind}Probe")
                if probe is None:
                    seen.set()
                else:
                    group.create_task(self._repeat(kind, probe, seen))

    async def _succeeded(self, kind: str, probe: Mapping[str, Any]) -> bool:
        """Whether a startup probe succeeds before it has failed too often."""
        seen = asyncio.Event()
        repeating = asyncio.create_task(self._repeat(kind, probe, seen))
        waiting = asyncio.create_task(seen.wait())
        try:
            await asyncio.wait((repeating, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (repeating, waiting):
                task.cancel()
            await asyncio.gather(repeating, waiting, return_exceptions=True)
        return seen.is_set()

    async def _repeat(self, kind: str, probe: Mapping[str, Any], seen: asyncio.Event) -> None:
        """Forever, or until the container would be killed. `seen`: the last probe that counted succeeded."""
        await asyncio.sleep(float(probe.get("initialDelaySeconds", 0)))
        failures, why = 0, ""
        while True:
            why = await self._failure(probe)
            failures = failures + 1 if why else 0
            if not why:
                seen.set()
            elif failures >= int(probe.get("failureThreshold", 3)):
                seen.clear()
                if kind != "readiness":
                    self.verdict = f"{kind} probe failed {failures} times: {why}"
                    return
            await asyncio.sleep(float(probe.get("periodSeconds", 10)))

    async def _failure(self, probe: Mapping[str, Any]) -> str:
        """Why one probe failed; empty when it succeeded."""
        request = probe["httpGet"]
        port = port_number(self._container, request["port"])
        try:
            async with asyncio.timeout(float(probe.get("timeoutSeconds", 1))):
                reader, writer = await self._dial(port)
                try:
                    if request.get("scheme") == "HTTPS":
                        await writer.start_tls(_TRUSTING)
                    writer.write(f"GET {request['path']} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n".encode())
                    answer = (await reader.read()).decode()
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            return f"{type(error).__name__} {error}"
        status = int(answer.split()[1]) if answer.startswith("HTTP/") else 0
        return "" if 200 <= status < 400 else answer.rpartition("\r\n\r\n")[2]
