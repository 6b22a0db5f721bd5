"""The table of verdicts as data, and the documentation page that is made of it.

`python -m tests.webhook.verdict_table` writes docs/admission.md and docs/admission-rules.md; test_verdicts.py holds the pages and the webhook to
the table. A case names ready policies, or holds its own; `shared`: drivers of `sharedClaimDrivers`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from fairlead.api import names
from fairlead.api.drivers import part_class
from fairlead.webhook.offline import Result, World, judge, world_of
from fairlead.webhook.policy.policies import Kind
from fairlead.webhook.policy.refusals import REFUSALS
from fairlead.webhook.policy.rules import RULES
from tests.support import quick_yaml

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).parent / "verdicts"
PAGE = ROOT / "docs" / "admission.md"
RULES_PAGE = ROOT / "docs" / "admission-rules.md"
READY = ROOT / "manifests" / "policies"
HEAD = """\
# Verdicts of the webhook

What the webhook answers to which manifest. Each case links to its manifest, policies and patch in `tests/webhook/verdicts/`; the
tests run the same table, so this page is true. `fairlead check FILE…` gives the verdicts on your own manifests, without a cluster.

A *refused* object is denied with the message. A *patched* one is admitted with fields set or removed, an *allowed* one as it is; an
*untouched* one is not managed. Left out is the label `fairlead.dev/reviewed` of gated pods and of the templates of Jobs.
Policies in `code` are ready in `manifests/policies/`, the others are written in the case; [the webhook's page](webhook.md#tenancy-policies) says what their fields mean.

The cluster of the table has the two shipped device classes, an H100 and a MIG device 1g.10gb of an A100, the templates
`one-gpu` (in `ml`, `dev` and `prod`) and `slice` (in `dev`), and the namespaces `ml` (labels `fairlead.dev/gpus: "true"` and
`fairlead.dev/qos: guaranteed`),
`dev` and `prod` (label `fairlead.dev/tier`), and `gpu-operators`.
"""


def files() -> list[Path]:
    return sorted(TABLE.glob("[0-9]*.yaml"))


def cases() -> Iterator[tuple[str, Json]]:
    for file in files():
        section = quick_yaml.load(file.read_text())
        for case in section["cases"]:
            yield f"{section['title']}: {case['name']}", case


def in_names_of(driver: str, found: Any) -> Any:
    """Anything of the table as it reads where the devices are this driver's."""
    text = json.dumps(found).replace(names.MIG_CLASS, part_class(driver)).replace(names.DRIVER, driver)
    return json.loads(text)


def policies_of(case: Json) -> list[Json]:
    """The manifests of the case's policies."""
    return [
        quick_yaml.load((READY / f"{found}.yaml").read_text()) if isinstance(found, str) else found
        for found in case.get("policies", ())
    ]


def world(case: Json) -> World:
    """The cluster of a case; `driver` of a case is whose devices it has."""
    driver = case.get("driver", names.DRIVER)
    documents = [*quick_yaml.load((TABLE / "world.yaml").read_text()), *policies_of(case)]
    made = world_of(in_names_of(driver, documents), drivers=(driver,), shared_drivers=tuple(case.get("shared", ())))
    assert made.faults == []
    return made


def results(case: Json) -> list[Result]:
    """The object's result, and those of the pods that it would create."""
    return list(judge(case["object"], world(case), username="alice"))


def outcome(case: Json) -> Json:
    """What a case expects, as the table writes it."""
    result = results(case)[0]
    patch = list(_without_label(result.mutated.patch))
    found: Json = {"verdict": "allowed" if result.outcome == "patched" and not patch else result.outcome}
    if not result.allowed:
        found["message"] = result.last.message
    if result.warnings:
        found["warnings"] = list(result.warnings)
    if result.audit:
        found["audit"] = list(result.audit)
    if result.allowed and patch:
        found["patch"] = patch
    return found


def _without_label(patch: Iterable[Json]) -> Iterator[Json]:
    """The operations but for those that only make the label of the review, which test_pods.py tries."""
    listed = list(patch)
    for at, operation in enumerate(listed):
        beyond = [later["path"] for later in listed[at + 1 :] if later["path"].startswith(f"{operation['path']}/")]
        empty = operation.get("value") == {} and bool(beyond)
        if not all(_of_label(path) for path in beyond if empty) or not (empty or _of_label(operation["path"])):
            yield operation


def _of_label(path: str) -> bool:
    return path.endswith(("/metadata/labels", f"/metadata/labels/{names.REVIEWED.replace('/', '~1')}"))


def page() -> str:
    return "\n".join([HEAD, *(_section(file) for file in files())])


RULES_HEAD = """\
# What the webhook refuses, and the rules of policies

Made of the tables that the webhook runs. What comes of them, manifest by manifest: [admission.md](admission.md).
"""


def rules_page() -> str:
    return f"{RULES_HEAD}\n{_refusals()}\n{_rules()}"


def _refusals() -> str:
    """What no policy has to say, from the table that the webhook runs."""
    lines = [
        "## Refusals without a policy\n",
        "In the order in which they are looked for; all that is found is in one message, whose code is that of the first row: 422 the object",
        "must be written otherwise, 403 the user may not do it, 429 the pod is to be created again. Where a manifest cannot be read at all,",
        "or is too large to be judged, the message says the field.\n",
    ]
    lines += ["| for | reads | code | says |", "|---|---|---|---|"]
    for row in REFUSALS:
        says = "<br>".join(map(_cell, row.says))
        lines.append(f"| {_kinds(row.of)} | {_cell(row.reads)} | {row.code} | {says} |")
    return "\n".join(lines) + "\n"


def _kinds(of: frozenset[Kind]) -> str:
    return ", ".join(kind.value for kind in Kind if kind in of)


def _rules() -> str:
    """The rules of policies, from the table that the webhook runs."""
    lines = [
        "## Rules of policies\n",
        "A finding is, by the policy's mode, a denial, a warning or a note in the audit log. In the order in which they are judged:\n",
    ]
    lines += ["| field of the policy | for | reads | says |", "|---|---|---|---|"]
    for rule in RULES:
        for name, says in rule.says.items():
            lines.append(f"| `{name}` | {_kinds(rule.of)} | {_cell(rule.reads)} | {'<br>'.join(map(_cell, says))} |")
    return "\n".join(lines) + "\n"


def _section(file: Path) -> str:
    text = file.read_text()
    section, link = quick_yaml.load(text), f"../{file.relative_to(ROOT)}"
    lines = [f"## {section['title']}\n", f"{section['intro']} Cases: [{file.name}]({link}).\n"]
    lines += ["| case | verdict | message |", "|---|---|---|"]
    for case, line in zip(section["cases"], _lines_of_cases(text), strict=True):
        name = f"[{_cell(case['name'])}]({link}#L{line})"
        with_policies = ", ".join(_policy_name(found) for found in case.get("policies", ()))
        with_policies += ", ".join(f"`sharedClaimDrivers: [{driver}]`" for driver in case.get("shared", ()))
        lines.append(
            f"| {name}{f', with {with_policies}' if with_policies else ''} | {case['expect']['verdict']} "
            f"| {'<br>'.join(_messages(case['expect']))} |"
        )
    return "\n".join(lines) + "\n"


def _lines_of_cases(text: str) -> list[int]:
    """The line at which each case begins, counted from 1."""
    top = yaml.compose(text)
    assert isinstance(top, yaml.MappingNode)
    (listed,) = (value for key, value in top.value if key.value == "cases")
    return [case.start_mark.line + 1 for case in listed.value]


def _policy_name(policy: Any) -> str:
    return f"`{policy}`" if isinstance(policy, str) else str(policy["metadata"]["name"])


def _messages(expect: Json) -> Iterator[str]:
    """The message of a denial, warnings, what the audit log shows, and the fields that the patch sets and removes."""
    yield from map(_cell, expect.get("message", "").split("\n") if "message" in expect else ())
    for title, texts in (("warning", expect.get("warnings", ())), ("audit log", expect.get("audit", ()))):
        yield from (f"{title}: {_cell(text)}" for text in texts)
    for word, operations in (("sets", {"add", "replace"}), ("removes", {"remove"})):
        changed = [
            f"`{_field(operation['path'])}`"
            for operation in expect.get("patch", ())
            if operation["op"] in operations and operation.get("value") != {}
        ]
        if changed:
            yield f"{word} {', '.join(dict.fromkeys(changed))}"


def _field(pointer: str) -> str:
    """`/spec/containers/0/env/-` as `spec.containers[0].env`, and a key with dots or slashes in brackets."""
    text = ""
    for step in (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]):
        if step.isdigit() or "/" in step or "." in step:
            text += f"[{step}]"
        elif step != "-":
            text += f".{step}" if text else step
    return text


def _cell(text: str) -> str:
    """Text that a cell of a Markdown table shows as it is."""
    for plain, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*")):
        text = text.replace(plain, written)
    return " ".join(text.split())


if __name__ == "__main__":
    for path, text in ((PAGE, page()), (RULES_PAGE, rules_page())):
        path.write_text(text)
        print(path)
