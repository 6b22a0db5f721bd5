"""Release notes of a tag, from CHANGELOG.md: pure text in, text out.

A section is headed `## 0.1.0 (2026-12-01)`, and one that is being written `## 0.1.0 (unreleased)`: that one is no release yet. On a
release's page each line break of the text would be a break, so that wrapped lines are joined; links to files become links to the tag's
files, for the page has no folder.
"""

from __future__ import annotations

import datetime as dt
import re

UNRELEASED = "unreleased"
LIMIT = 125_000
"""Characters that GitHub takes as the text of a release."""
_TAG = re.compile(r"v\d+\.\d+\.\d+")
_HEADING = re.compile(r"## (\S+)(?: \((.*)\))?\s*")
_LINK = re.compile(r"(\]\()(?!https?://|mailto:|#)([^)\s]+)(\))")


class Refused(Exception):  # noqa: N818 - what it says of a tag
    """This tag cannot be released; the message says why, and what to do."""


def version_of(tag: str, version: str) -> str:
    """The version that a tag names. Raises Refused unless it is `version`, that of lib/fairlead/api/version.py."""
    if not _TAG.fullmatch(tag):
        raise Refused(f"tag {tag!r} is not v and a version, such as v{version}: delete it and push one that is")
    if tag != f"v{version}":
        raise Refused(
            f"tag {tag!r} is not the version of the code, which is {version} (lib/fairlead/api/version.py): tag v{version}, "
            "or change the version there, run `make manifests`, commit and tag again"
        )
    return version


def section(changelog: str, version: str) -> tuple[dt.date, str]:
    """The date of a version's section and its lines, without the heading. Raises Refused where there is none to release."""
    lines = changelog.splitlines()
    heads = [(number, found) for number, line in enumerate(lines) if (found := _HEADING.fullmatch(line))]
    ours = [(number, found) for number, found in heads if found[1] == version]
    if not ours:
        known = ", ".join(found[1] for _, found in heads) or "none"
        raise Refused(f"CHANGELOG.md has no section `## {version} (YYYY-MM-DD)`; its sections: {known}. Write one")
    if len(ours) > 1:
        places = ", ".join(str(number + 1) for number, _ in ours)
        raise Refused(f"CHANGELOG.md has {len(ours)} sections of {version}, in lines {places}: make them one")
    ((start, heading),) = ours
    date = _date(heading[2], version, start + 1)
    end = next((number for number, line in enumerate(lines) if number > start and line.startswith("## ")), len(lines))
    text = "\n".join(lines[start + 1 : end]).strip()
    if not text:
        raise Refused(
            f"CHANGELOG.md, line {start + 1}: the section of {version} is empty; write what a user sees of it"
        )
    return date, text


def _date(stated: str | None, version: str, line: int) -> dt.date:
    where = f"CHANGELOG.md, line {line}: the section of {version}"
    if stated == UNRELEASED:
        raise Refused(f"{where} says `({UNRELEASED})`; write the date of the release there, commit and tag again")
    try:
        return dt.date.fromisoformat(stated or "")
    except ValueError:
        raise Refused(f"{where} has no date as in `## {version} (2026-12-01)`, but {stated!r}; write it") from None


def notes(
    changelog: str, tag: str, version: str, *, repository: str = "", artefacts: dict[str, str] | None = None
) -> str:
    """The text of a release's page.

    `repository` is such as `https://github.com/example/fairlead`; without it links stay as they are. `artefacts` are names and
    references that are listed below, as `{"Image": "ghcr.io/example/fairlead@sha256:…"}`.
    """
    date, text = section(changelog, version_of(tag, version))
    if repository:
        text = _LINK.sub(rf"\g<1>{repository}/blob/{tag}/\g<2>\g<3>", text)
    text = f"Released {date.isoformat()}.\n\n{unwrapped(text)}\n"
    if artefacts:
        text += "\n" + "".join(f"- {name}: `{reference}`\n" for name, reference in artefacts.items())
    if len(text) > LIMIT:
        raise Refused(
            f"the section of {version} has {len(text)} characters, a release's page takes {LIMIT}: shorten it"
        )
    return text


def unwrapped(text: str) -> str:
    """Text whose paragraphs and list entries have one line each; code blocks and tables stay as they are."""
    lines: list[str] = []
    code = False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        begins = code or fence or not line.strip() or re.match(r"\s*(?:[-*+] |\d+\. |#|\||>)", line)
        if begins or not lines or not lines[-1].strip() or lines[-1].lstrip().startswith(("```", "#", "|")):
            lines.append(line.rstrip())
        else:
            lines[-1] += " " + line.strip()
        code ^= fence
    return "\n".join(lines)
