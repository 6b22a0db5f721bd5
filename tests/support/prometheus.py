"""Prometheus for tests: promtool's unit tests of the rules, and a real server that scrapes what a test names.

Both programs come from the distribution (package prometheus); a test that needs one of them skips where it is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from fairlead.sandbox.ports import reserved
from tests.support import quick_yaml

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "manifests" / "chart" / "files" / "rules.yaml"
READY_TIMEOUT_S: Final = 20.0
Sample = tuple[dict[str, str], float]


def program(name: str) -> str:
    """Where `prometheus` or `promtool` is; skips the test where it is not."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install prometheus")
    return found


def groups() -> list[dict[str, Any]]:
    """The groups of rules, as written."""
    written: list[dict[str, Any]] = quick_yaml.load(RULES.read_text(encoding="utf-8"))["groups"]
    return written


def rules() -> list[dict[str, Any]]:
    """Every rule of every group, as written."""
    return [rule for group in groups() for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def promtool(*arguments: str | Path) -> str:
    """What it prints; raises AssertionError where it finds fault."""
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Target:
    """One program: `address` as host:port, and the labels that a ServiceMonitor would give its series."""

    address: str
    labels: Mapping[str, str]


class Server:
    """A running Prometheus, asked through its HTTP API."""

    def __init__(self, url: str, targets: Path, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._targets = targets
        self._session = session

    def scrape(self, targets: Iterable[Target]) -> None:
        """From now on these; noticed within a second or so."""
        listed = [{"targets": [each.address], "labels": dict(each.labels)} for each in targets]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(listed), encoding="utf-8")
        new.replace(self._targets)

    async def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer; raises AssertionError with Prometheus' words."""
        async with self._session.get(f"{self.url}/api/v1/{path}", params=parameters) as answer:
            body = await answer.json()
        assert body["status"] == "success", f"{path} {parameters}: {body.get('error')}"
        return body["data"]

    async def query(self, expression: str) -> list[Sample]:
        """An instant vector (or a scalar, without labels) of now."""
        data = await self.get("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(dict(each["metric"]), float(each["value"][1])) for each in data["result"]]

    async def firing(self) -> dict[str, list[dict[str, Any]]]:
        """Alerts that fire now, by name."""
        found: dict[str, list[dict[str, Any]]] = {}
        for each in (await self.get("alerts"))["alerts"]:
            if each["state"] == "firing":
                found.setdefault(each["labels"]["alertname"], []).append(each)
        return found


@contextlib.asynccontextmanager
async def running(directory: Path, groups: list[dict[str, Any]], *, interval_s: int = 1) -> AsyncIterator[Server]:
    """A server that scrapes and evaluates these groups of rules every `interval_s`; its data ends with the block."""
    binary = program("prometheus")
    targets = directory / "targets.json"
    targets.write_text("[]", encoding="utf-8")
    (directory / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    every = f"{interval_s}s"
    scraped = {
        "job_name": "fairlead",
        "honor_labels": True,  # as the chart's ServiceMonitor
        "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}],
    }
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(directory / "rules.yaml")],
        "scrape_configs": [scraped],
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with reserved() as port, (directory / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            binary,
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
            stdout=log,
            stderr=log,
        )
        try:
            async with aiohttp.ClientSession() as session:
                server = Server(f"http://127.0.0.1:{port}", targets, session)
                await _ready(server.url, session, process, directory / "prometheus.log")
                yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _ready(url: str, session: aiohttp.ClientSession, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            assert process.returncode is None, f"prometheus ended: {log.read_text(encoding='utf-8')[-2000:]}"
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/-/ready") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)
