"""The table of verdicts as data, and the documentation page that is made of it.

Exists so that what docs/admission.md says is what the webhook does. `python tests/webhook/verdict_table.py` writes the page;
test_verdicts.py holds page and webhook to the table. A case names ready policies, or holds its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from fairlead.webhook.offline import Result, World, judge, world_of

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).parent / "verdicts"
PAGE = ROOT / "docs" / "admission.md"
READY = ROOT / "manifests" / "policies"
HEAD = """\
# Verdicts of the webhook

What the webhook answers to which manifest, with its reason and its patch. This page is made of the table that the tests run
(`tests/webhook/verdicts/`), so it cannot be wrong for long. What the policies' fields mean is in [the webhook's page](webhook.md);
the ready ones are in `manifests/policies/`. `fairlead check FILE…` says the same about your own manifests, without a cluster.

The cluster of the table has the two shipped device classes, an H100 and a MIG device 1g.10gb of an A100, the templates
`one-gpu` (in `ml`, `dev` and `prod`) and `slice` (in `dev`), and the namespaces `ml` (label `fairlead.dev/gpus: "true"`),
`dev` and `prod` (label `fairlead.dev/tier`), and `gpu-operators`.
"""


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def sections() -> list[Json]:
    return [yaml.safe_load(path.read_text()) for path in sorted(TABLE.glob("0*.yaml"))]


def cases() -> Iterator[tuple[str, Json]]:
    for section in sections():
        for case in section["cases"]:
            yield f"{section['title']}: {case['name']}", case


def policies_of(case: Json) -> list[Json]:
    """The manifests of the case's policies."""
    return [
        yaml.safe_load((READY / f"{found}.yaml").read_text()) if isinstance(found, str) else found
        for found in case.get("policies", ())
    ]


def world(case: Json) -> World:
    made = world_of([*yaml.safe_load((TABLE / "world.yaml").read_text()), *policies_of(case)])
    assert made.faults == []
    return made


def results(case: Json) -> list[Result]:
    """The object's result, and those of the pods that it would make."""
    return list(judge(case["object"], world(case), username="alice"))


def outcome(case: Json) -> Json:
    """What a case expects, as the table writes it."""
    result = results(case)[0]
    found: Json = {"verdict": result.outcome}
    if not result.allowed:
        found["message"] = result.last.message
    if result.warnings:
        found["warnings"] = list(result.warnings)
    if result.audit:
        found["audit"] = list(result.audit)
    if result.allowed and result.mutated.patch:
        found["patch"] = list(result.mutated.patch)
    return found


def page() -> str:
    parts = [HEAD]
    for section in sections():
        parts.append(f"## {section['title']}\n\n{section['intro']}\n")
        parts += [_shown(case) for case in section["cases"]]
    return "\n".join(parts)


def _shown(case: Json) -> str:
    expect = case["expect"]
    lines = [f"### {case['name'][:1].upper()}{case['name'][1:]}\n"]
    for policy in case.get("policies", ()):
        if isinstance(policy, str):
            lines.append(f"With `manifests/policies/{policy}.yaml`.\n")
        else:
            lines.append(
                f"With a policy `{policy['metadata']['name']}`:\n\n```yaml\n{_yaml({'spec': policy['spec']})}```\n"
            )
    lines.append(f"```yaml\n{_yaml(case['object'])}```\n")
    lines.append(f"**{expect['verdict'].capitalize()}**\n")
    for title, texts in (
        ("", expect.get("message", "").split("\n") if "message" in expect else ()),
        ("Warning: ", expect.get("warnings", ())),
        ("Audit: ", expect.get("audit", ())),
    ):
        lines += [f"> {title}{text}\n" for text in texts]
    if "patch" in expect:
        patch = "".join(f"{_yaml([operation], flow=True)}" for operation in expect["patch"])
        lines.append(f"```yaml\n{patch}```\n")
    return "\n".join(lines)


def _yaml(value: Any, *, flow: bool = False) -> str:
    text: str = yaml.dump(
        value, Dumper=_Plain, sort_keys=False, width=118, allow_unicode=True, default_flow_style=None if flow else False
    )
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
