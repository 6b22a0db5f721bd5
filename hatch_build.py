"""Adds to a wheel what the sandbox applies, where the tree has a sandbox: the image is built from a tree without one."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = ("manifests", "examples")  # read by fairlead.sandbox.files; in a checkout from where they stand


class SandboxFiles(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not (Path(self.root) / "sandbox").is_dir():
            return
        for folder in FILES:
            build_data["force_include"][folder] = f"fairlead/sandbox/_files/{folder}"
