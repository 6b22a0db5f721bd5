"""Writes the table of trust into docs/security.md, between its markers: `python tools/trust_table.py`, part of `make manifests`."""

from __future__ import annotations

from pathlib import Path

from fairlead.api import trust

PAGE = Path(__file__).parents[1] / "docs" / "security.md"
BEGIN, END = "<!-- trust: written by tools/trust_table.py -->\n", "<!-- end of trust -->\n"


def with_table(text: str) -> str:
    """Raises ValueError where the markers are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"{PAGE}: the markers {BEGIN.strip()} and {END.strip()} are missing: put them where the table is to be"
        )
    return f"{before}{BEGIN}\n{trust.markdown()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
