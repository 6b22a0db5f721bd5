"""The tables that `make manifests` writes into pages whose prose is written by hand: each stands between two comments, which stay.

docs/install.md: what each release of Kubernetes has of what Fairlead needs, from lib/fairlead/kube/releases.py. docs/security.md: who may
write what, from lib/fairlead/api/trust.py. Pure.
"""

from __future__ import annotations

from fairlead.api import trust
from fairlead.kube import releases
from fairlead.kube.releases import NEEDS, RELEASES, TRIED, Minor, Need

BEGIN = "<!-- from lib/fairlead/kube/releases.py by `make manifests`: change it there -->"
END = "<!-- end of the table -->"
TRUST_BEGIN, TRUST_END = "<!-- trust: from lib/fairlead/api/trust.py by `make manifests` -->", "<!-- end of trust -->"
_CELLS = {"on": "on", "off": "off by default", "none": "none"}


def install(page: str) -> str:
    """The page with the table of releases of now. Raises ValueError where it lacks the comments."""
    return _between(page, f"{BEGIN}\n\n{releases_table()}\n{END}")


def security(page: str) -> str:
    """The page with the table of trust of now. Raises ValueError where it lacks the comments."""
    return _between(page, f"{TRUST_BEGIN}\n\n{trust.markdown()}\n{TRUST_END}")


def _between(page: str, table: str) -> str:
    """The page with this table, whose first and last line are the comments."""
    first, last = table.splitlines()[0], table.splitlines()[-1]
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no line {last if begin else first}: put it where the table is to be")
    return f"{before}{table}{after}"


def releases_table() -> str:
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
