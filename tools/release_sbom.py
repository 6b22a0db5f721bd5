"""A software bill of materials of what is installed beside Fairlead: a lock file as CycloneDX 1.6, which scanners read.

The lock names every distribution with its version and the hashes of its files; nothing is looked up. The same lock and time give the
same document. The image's own, with the packages of Debian in it, is made by BuildKit when the image is built.

Source: https://cyclonedx.org/docs/1.6/json/ and https://github.com/package-url/purl-spec (type pypi).
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from typing import Any

Json = dict[str, Any]
_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]*?))?\s*\\?"
)
_HASH = re.compile(r"\s+--hash=sha256:(?P<digest>[0-9a-f]{64})\s*\\?")
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://fairlead.dev/sbom")


def components(lock: str) -> list[Json]:
    """What a lock file pins, in its order. Raises ValueError for a line that is no pin, hash or comment, and for a pin without hashes."""
    found: list[Json] = []
    for number, line in enumerate(lock.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if (digest := _HASH.fullmatch(line)) and found:
            found[-1]["properties"].append({"name": "fairlead:file-sha256", "value": digest["digest"]})
        elif pin := _PIN.fullmatch(line):
            found.append(_component(pin))
        else:
            raise ValueError(
                f"line {number} of the lock is neither `name==version` nor a sha256 hash: {line.strip()!r}; run `make lock`"
            )
    without = [
        each["name"] for each in found if not any(p["name"] == "fairlead:file-sha256" for p in each["properties"])
    ]
    if without:
        raise ValueError(f"the lock has no hash of {', '.join(without)}; run `make lock`")
    return found


def _component(pin: re.Match[str]) -> Json:
    name = re.sub(r"[-_.]+", "-", pin["name"]).lower()
    purl = f"pkg:pypi/{name}@{pin['version']}"
    properties = [{"name": "fairlead:marker", "value": pin["marker"].strip()}] if pin["marker"] else []
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": pin["version"], "purl": purl, "properties": properties,
    }  # fmt: skip


def document(lock: str, version: str, at: dt.datetime) -> Json:
    """The bill of `fairlead` in `version`, made `at` (with a time zone)."""
    parts = components(lock)
    root = f"pkg:pypi/fairlead@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'{version} {at.isoformat()} {lock}')}",
        "version": 1,
        "metadata": {
            "timestamp": at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application", "bom-ref": root, "name": "fairlead", "version": version, "purl": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": parts,
        "dependencies": [{"ref": root, "dependsOn": [each["bom-ref"] for each in parts]}],
    }  # fmt: skip
