"""Release notes are the section of the tag's version in CHANGELOG.md, and a tag that has none is refused with the next step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import release_notes
from release_notes import Refused, notes, section, unwrapped

from fairlead.api.version import VERSION

ROOT = Path(__file__).parents[3]
CHANGELOG = """\
# Changelog

## 0.3.0 (unreleased)

- Not yet.

## 0.2.0 (2026-12-01)

- Gangs start sooner, and
  say why they wait ([docs/gangs.md](docs/gangs.md#reasons)).
- See [the site](https://example.com/x) and [above](#changelog).

```sh
fairlead a \\
  --b
```

## 0.1.0 (2026-11-24)

- The first.
"""


def test_the_section_of_the_version_and_no_other():
    text = notes(CHANGELOG, "v0.2.0", "0.2.0")
    assert text.startswith("Released 2026-12-01.\n\n- Gangs start sooner, and say why they wait ([docs/gangs.md]")
    assert "Not yet" not in text
    assert "The first" not in text
    assert "fairlead a \\\n  --b\n" in text, "code keeps its lines"
    assert notes(CHANGELOG, "v0.1.0", "0.1.0") == "Released 2026-11-24.\n\n- The first.\n"


def test_links_to_files_lead_to_the_tags_files():
    text = notes(CHANGELOG, "v0.2.0", "0.2.0", repository="https://github.com/example/fairlead")
    assert "](https://github.com/example/fairlead/blob/v0.2.0/docs/gangs.md#reasons)" in text
    assert "](https://example.com/x)" in text
    assert "](#changelog)" in text


def test_what_was_published_is_listed_below():
    text = notes(CHANGELOG, "v0.1.0", "0.1.0", artefacts={"Image": "ghcr.io/x/y@sha256:0", "Chart": "oci://z"})
    assert text.endswith("- The first.\n\n- Image: `ghcr.io/x/y@sha256:0`\n- Chart: `oci://z`\n")


def test_wrapped_lines_are_joined_and_nothing_else():
    text = "- one\n  two\n  - three\n    four\n\npara\ngraph\n\n| a | b |\n|---|---|\n| c | d |\n"
    assert unwrapped(text) == "- one two\n  - three four\n\npara graph\n\n| a | b |\n|---|---|\n| c | d |"


@pytest.mark.parametrize(
    ("changelog", "tag", "version", "said"),
    [
        (CHANGELOG, "0.2.0", "0.2.0", "tag '0.2.0' is not v and a version, such as v0.2.0"),
        (CHANGELOG, "v0.2", "0.2.0", "tag 'v0.2' is not v and a version"),
        (CHANGELOG, "v0.2.0-rc1", "0.2.0", "tag 'v0.2.0-rc1' is not v and a version"),
        (CHANGELOG, "v0.1.0", "0.2.0", "is not the version of the code, which is 0.2.0 (lib/fairlead/api/version.py): tag v0.2.0"),
        (CHANGELOG, "v0.4.0", "0.4.0", "has no section `## 0.4.0 (YYYY-MM-DD)`; its sections: 0.3.0, 0.2.0, 0.1.0"),
        ("# Changelog\n", "v0.4.0", "0.4.0", "its sections: none"),
        (CHANGELOG, "v0.3.0", "0.3.0", "line 3: the section of 0.3.0 says `(unreleased)`; write the date"),
        ("## 0.1.0\n- a\n", "v0.1.0", "0.1.0", "line 1: the section of 0.1.0 has no date"),
        ("## 0.1.0 (soon)\n- a\n", "v0.1.0", "0.1.0", "no date as in `## 0.1.0 (2026-12-01)`, but 'soon'"),
        ("## 0.1.0 (2026-13-01)\n- a\n", "v0.1.0", "0.1.0", "but '2026-13-01'"),
        ("## 0.1.0 (2026-12-01)\n\n## 0.0.9 (2026-11-01)\n- a\n", "v0.1.0", "0.1.0", "the section of 0.1.0 is empty"),
        (CHANGELOG + CHANGELOG, "v0.2.0", "0.2.0", "has 2 sections of 0.2.0, in lines 7, 27"),
        (f"## 0.1.0 (2026-12-01)\n{'x' * 130_000}\n", "v0.1.0", "0.1.0", "characters, a release's page takes 125000"),
    ],
)  # fmt: skip
def test_a_tag_that_cannot_be_released_is_refused_with_the_next_step(changelog, tag, version, said):
    with pytest.raises(Refused) as refused:
        notes(changelog, tag, version)
    assert said in str(refused.value)


def test_the_changelog_of_this_version_will_be_its_notes():
    """All but the date is there."""
    text = (
        (ROOT / "CHANGELOG.md")
        .read_text()
        .replace(f"## {VERSION} ({release_notes.UNRELEASED})", f"## {VERSION} (2026-12-01)")
    )
    _, found = section(text, VERSION)
    made = notes(text, f"v{VERSION}", VERSION, repository="https://github.com/example/fairlead")
    assert sum(line.startswith("- ") for line in made.splitlines()) == sum(
        line.startswith("- ") for line in found.splitlines()
    )
    for link in made.split("](")[1:]:
        target = link.partition(")")[0]
        if "/blob/" in target:
            assert (ROOT / target.split(f"/blob/v{VERSION}/")[1].partition("#")[0]).exists(), target


def test_the_command_prints_notes_or_says_why_not():
    def run(*arguments):
        return subprocess.run(
            [sys.executable, ROOT / "tools" / "release.py", *arguments], capture_output=True, text=True, check=False
        )

    refused = run("check", "v9.9.9")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.startswith("release: tag 'v9.9.9' is not the version of the code")
    unnamed = run("notes", f"v{VERSION}", "--artefact", "Image")
    assert (unnamed.returncode, unnamed.stderr) == (1, "release: --artefact 'Image' is not NAME=REFERENCE\n")
