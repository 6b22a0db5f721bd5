"""Recorded exchanges of a real apiserver: what a line of a recording says, and which objects it shows.

For the conformance suite. Reads files; replaying.py replays them.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json


@dataclass(frozen=True)
class Exchange:
    """One line of a recording. Without a request it is the next page of the exchange before."""

    scenario: str
    step: str
    request: Json | None
    response: Json


@dataclass
class Outcome:
    """What the server answered to an exchange."""

    exchange: Exchange
    status: int
    content_type: str = ""
    body: Any = None
    events: list[Json] = field(default_factory=list)
    warning: str = ""
    served: bool = True  # False: about an API group that this server does not have


def load(path: Path) -> list[Exchange]:
    """The exchanges of a `*.jsonl.gz`, in order."""
    found = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            raw = json.loads(line)
            if "response" not in raw:
                continue  # a remark
            step = str(raw.get("step") or f"after-{number}")
            found.append(Exchange(raw["scenario"], step, raw.get("request"), raw["response"]))
    return found


def objects_of(response: Json) -> list[Json]:
    """The objects that an answer shows: one, a list's, or those that a watch begins with."""
    if response["status"] >= 300:
        return []
    if "events" in response:
        return [event["object"] for event in response["events"] if event["type"] == "ADDED"]
    body = response.get("body")
    if not isinstance(body, dict) or body.get("kind") in {
        "Table",
        "PartialObjectMetadataList",
        "PartialObjectMetadata",
    }:
        return []
    if "items" in body:
        return [item for item in body["items"] or [] if "name" in item.get("metadata", {})]
    return [body] if (body.get("metadata") or {}).get("name") else []


def made_by_loops(obj: Json) -> bool:
    """A claim that the claim controller made for a pod: it comes when a list shows it, not before."""
    return "resource.kubernetes.io/pod-claim-name" in (obj["metadata"].get("annotations") or {})


def node_of(row: Json) -> Json:
    """The node that a table's row is of: kubelet filled it in, no request did."""
    cells = row["cells"]
    kernel, _, architecture = cells[8].partition(" ")
    info = {
        "kubeletVersion": cells[4],
        "osImage": cells[7],
        "kernelVersion": kernel,
        "containerRuntimeVersion": cells[9],
    }
    if architecture:
        info["architecture"] = architecture.strip("()")
    ready = {"type": "Ready", "status": "True" if cells[1] == "Ready" else "Unknown"}
    return {**row["object"], "spec": {}, "status": {"conditions": [ready], "nodeInfo": info}}
