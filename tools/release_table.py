"""The table of docs/install.md: what each release of Kubernetes has of what Fairlead needs, from lib/fairlead/kube/releases.py. Pure.

It stands between two comments, which stay; the prose around it is written by hand.
"""

from __future__ import annotations

from fairlead.kube import releases
from fairlead.kube.releases import NEEDS, RELEASES, TRIED, Minor, Need

BEGIN = "<!-- from lib/fairlead/kube/releases.py by `make manifests`: change it there -->"
END = "<!-- end of the table -->"
_CELLS = {"on": "on", "off": "off by default", "none": "none"}


def table() -> str:
    """Markdown: a line for each need, and a sentence on what was tried."""
    heads = ["", "feature gate", *map(releases.written, RELEASES), "how it is found out", "where it is absent"]
    rows = [
        [
            each.what,
            f"`{each.gate}`" if each.gate else "",
            *(_cell(each, release) for release in RELEASES),
            each.found,
            each.without,
        ]
        for each in NEEDS
    ]
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + f"\n{_tried()}\n"


def _cell(need: Need, release: Minor) -> str:
    stage = need.stage(release)
    return "dropped" if stage == "off" and not need.gate else _CELLS[stage]


def _tried() -> str:
    """The rows of releases that were tried; of others the table is what their source says."""
    patches = [TRIED[each] for each in RELEASES if each in TRIED]
    others = [releases.written(each) for each in RELEASES if each not in TRIED]
    tried = f"Tried: control planes of {_listed(patches)}."
    return f"{tried} Of {_listed(others)} the table is what the source of Kubernetes says." if others else tried


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def written(page: str) -> str:
    """The page with the table of now. Raises ValueError where it lacks the comments."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/install.md has no line {BEGIN if not begin else END}")
    return f"{before}{begin}\n\n{table()}\n{end}{after}"
