"""Adds to a wheel what the sandbox applies, where the tree has a sandbox: the image is built from a tree without one."""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = ("manifests", "examples")  # read by fairlead.sandbox.files; in a checkout from where they stand


class SandboxFiles(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not (Path(self.root) / "sandbox").is_dir():
            return
        for folder in FILES:
            # File by file: given a folder, hatch includes a directory that is also linked to (manifests/crds) only once.
            # Sorted, since the order is that of the files in the wheel: a directory's own order differs between file systems.
            paths = [
                Path(at, name) for at, _, names in os.walk(Path(self.root, folder), followlinks=True) for name in names
            ]
            for path in sorted(each.relative_to(self.root) for each in paths):
                build_data["force_include"][str(path)] = f"fairlead/sandbox/_files/{path}"
