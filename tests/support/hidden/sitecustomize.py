"""Read by each Python with this directory in PYTHONPATH: the modules in $HIDDEN_MODULES are as if they were not installed."""

import importlib.abc
import os
import sys


class _Hidden(importlib.abc.MetaPathFinder):
    def __init__(self, names):
        self._names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if names := frozenset(filter(None, os.environ.get("HIDDEN_MODULES", "").split(","))):
    sys.meta_path.insert(0, _Hidden(names))
