"""An apiserver that answers nothing but discovery, from recorded documents (data/discovery.yaml)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fairlead.kube import errors

DOCUMENTS: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "discovery.yaml").read_text()
)

Groups = Mapping[str, Mapping[str, Sequence[str]]]


class Discovery:
    """As a Client, as far as `request`. `release` is "1.36"; `groups` what it serves."""

    def __init__(self, release: str, groups: Groups) -> None:
        self._release, self._groups = release, groups

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        """Raises NotFound for what is not served."""
        assert method == "GET"
        found = self._answer(path.strip("/").split("/"))
        if found is None:
            raise errors.NotFound("404 page not found", status=404)
        return json.dumps(found).encode()

    def _answer(self, path: Sequence[str]) -> Mapping[str, Any] | None:
        match path:
            case ["version"]:
                major, minor = self._release.split(".")
                return {"major": major, "minor": minor, "gitVersion": f"v{self._release}.0"}
            case ["apis", group] if group in self._groups:
                versions = [{"groupVersion": f"{group}/{each}", "version": each} for each in self._groups[group]]
                return {"kind": "APIGroup", "name": group, "versions": versions, "preferredVersion": versions[0]}
            case ["apis", group, version] if version in self._groups.get(group, ()):
                resources = [{"name": each} for each in self._groups[group][version]]
                return {"kind": "APIResourceList", "groupVersion": f"{group}/{version}", "resources": resources}
        return None
