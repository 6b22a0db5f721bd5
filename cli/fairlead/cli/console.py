"""The printer's console, for tables and live views of rich, whose import takes as long as a small command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from fairlead.api.texts import plain


class _Console(Console):
    """rich takes some control characters out of texts, not ESC; what it writes itself are segments of their own kind."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            each if each.control else Segment(plain(each.text), each.style) for each in buffer
        )


def console(**options: Any) -> Console:
    return _Console(**options)
