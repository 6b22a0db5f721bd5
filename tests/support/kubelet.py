"""A scripted DRA driver: for tests of kubelet, over real unix sockets.

Kubelet's rules are tested without the real driver, including answers that no correct driver gives.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from fairlead.driver.kubelet import protocol


@dataclass(kw_only=True)
class FakeDriver:
    """Prepares every claim with one device `dev-<claim name>` and a CDI file for it, unless `errors` or `answer` says otherwise."""

    root: Path
    name: str = "gpu.example.com"
    versions: Sequence[str] = (protocol.DRA_V1, protocol.DRA_V1BETA1)
    kind: str = protocol.PLUGIN_TYPE
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    registered: list[tuple[bool, str]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)  # claim name -> error
    answer: Callable[[Any, Any], Any] | None = None  # (request, answer) -> answer to give instead

    @property
    def registry_dir(self) -> Path:
        return self.root / "reg"

    @property
    def cdi_dir(self) -> Path:
        return self.root / "cdi"

    @property
    def endpoint(self) -> Path:
        return self.root / "dra.sock"

    def prepared(self) -> list[str]:
        return sorted(path.stem for path in self.cdi_dir.glob("*.json"))

    @contextlib.asynccontextmanager
    async def serving(self, *, socket: str = "reg.sock") -> AsyncIterator[FakeDriver]:
        self.registry_dir.mkdir(parents=True, exist_ok=True)
        self.cdi_dir.mkdir(parents=True, exist_ok=True)
        plugin = grpc.aio.server()
        registrar = grpc.aio.server()
        for service in protocol.DRA.values():
            service.serve(_Plugin(self), plugin)
        protocol.REGISTRATION.serve(_Registration(self), registrar)
        self.endpoint.unlink(missing_ok=True)
        plugin.add_insecure_port(f"unix:{self.endpoint}")
        registrar.add_insecure_port(f"unix:{self.registry_dir / socket}")
        await plugin.start()
        await registrar.start()
        try:
            yield self
        finally:
            (self.registry_dir / socket).unlink(missing_ok=True)
            await registrar.stop(None)
            await plugin.stop(None)


class _Registration:
    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver

    async def GetInfo(self, request: Any, context: Any) -> Any:
        return protocol.pluginregistration_v1_pb2.PluginInfo(
            type=self._driver.kind,
            name=self._driver.name,
            endpoint=str(self._driver.endpoint),
            supported_versions=list(self._driver.versions),
        )

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
        self._driver.registered.append((request.plugin_registered, request.error))
        return protocol.pluginregistration_v1_pb2.RegistrationStatusResponse()


class _Plugin:
    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver

    async def NodePrepareResources(self, request: Any, context: Any) -> Any:
        driver = self._driver
        driver.calls.append(("prepare", tuple(claim.name for claim in request.claims)))
        answer = protocol.dra_v1_pb2.NodePrepareResourcesResponse()
        for claim in request.claims:
            if claim.name in driver.errors:
                answer.claims[claim.uid].error = driver.errors[claim.name]
                continue
            self._write_cdi(claim)
            device = answer.claims[claim.uid].devices.add(pool_name="n1", device_name=f"dev-{claim.name}")
            device.request_names.append("gpu")
            device.cdi_device_ids.append(f"example.com/claim={claim.uid}-dev")
        return driver.answer(request, answer) if driver.answer else answer

    async def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        self._driver.calls.append(("unprepare", tuple(claim.name for claim in request.claims)))
        answer = protocol.dra_v1_pb2.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            (self._driver.cdi_dir / f"{claim.uid}.json").unlink(missing_ok=True)
            answer.claims[claim.uid].error = ""
        return self._driver.answer(request, answer) if self._driver.answer else answer

    def _write_cdi(self, claim: Any) -> None:
        edits = {"env": [f"CLAIM={claim.name}"], "deviceNodes": [{"path": f"/dev/{claim.name}"}]}
        spec = {
            "cdiVersion": "0.6.0",
            "kind": "example.com/claim",
            "devices": [{"name": f"{claim.uid}-dev", "containerEdits": edits}],
            "containerEdits": {"env": ["SHARED=1"]},
        }
        (self._driver.cdi_dir / f"{claim.uid}.json").write_text(json.dumps(spec))
