"""What an Xid means: an error of a program or of the GPU, and what the GPU needs after it.

The table in xids.yaml decides; Xids of class `needs-reset` and `fatal` taint the GPU. A code that the table lacks
counts as `needs-reset`: NVML reports only critical ones.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Literal, cast

from fairlead.bounded import yaml_text

XidClass = Literal["application", "informational", "recoverable", "needs-reset", "fatal"]


@functools.cache
def _table() -> dict[int, tuple[XidClass, str]]:
    text = (resources.files("fairlead.driver.backend") / "xids.yaml").read_text(encoding="utf-8")
    return {
        int(code): (cast("XidClass", row["class"]), str(row["name"])) for code, row in yaml_text.document(text).items()
    }


def classify(code: int) -> XidClass:
    return _table().get(code, ("needs-reset", ""))[0]


def describe(code: int) -> str:
    """`Xid 79 (GPU_HAS_FALLEN_OFF_THE_BUS)`."""
    name = _table().get(code, ("", ""))[1]
    return f"Xid {code} ({name})" if name else f"Xid {code}"
