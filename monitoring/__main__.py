"""Writes the dashboards' JSON into the chart, and docs/dashboards.md.

python -m monitoring            write
python -m monitoring --check    say what would change; exit code 1 if anything would
"""

from __future__ import annotations

import sys
from pathlib import Path

from monitoring import grafana, page
from monitoring.dashboards import ALL

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "manifests" / "chart" / "files" / "dashboards"


def files() -> dict[Path, str]:
    """Every generated file and its text."""
    found = {FOLDER / f"{each.uid}.json": grafana.render(each) for each in ALL}
    return found | {ROOT / "docs" / "dashboards.md": page.render(ALL)}


def main(arguments: list[str]) -> int:
    wanted = files()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    extra = [path for path in sorted(FOLDER.glob("*.json")) if path not in wanted]
    if arguments == ["--check"]:
        for path in stale + extra:
            print(f"{path.relative_to(ROOT)} is not what monitoring/ makes; edit monitoring/ and run `make manifests`")
        return 1 if stale or extra else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
        print(path.relative_to(ROOT))
    for path in extra:
        path.unlink()
        print(f"{path.relative_to(ROOT)} removed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
