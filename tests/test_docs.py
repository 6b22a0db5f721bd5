"""What is documented exists, and what exists is documented: metrics, commands, flags, policy rules, examples."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicySpec

ROOT = Path(__file__).resolve().parent.parent
DOCS = "\n".join(path.read_text() for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])


def documented_metrics():
    return set(re.findall(r"^\| `(fairlead_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))


def served_metrics():
    """Every metric family that the four programs register, by the name under which it is scraped."""
    from prometheus_client import CollectorRegistry

    from fairlead.controller.report.metrics import Metrics as Controller
    from fairlead.controller.report.queue_series import QueueFacts
    from fairlead.controller.watch.caches import Caches
    from fairlead.driver.common.metrics import Metrics as Driver
    from fairlead.driver.metrics.collector import SlicesCollector
    from fairlead.kube.tracing import Tracer
    from fairlead.ui.app import Metrics as Pages
    from fairlead.webhook.serve.metrics import Metrics as Webhook

    controller, webhook = CollectorRegistry(), CollectorRegistry()
    leader = Controller(controller)
    nowhere: Any = None
    facts = QueueFacts(uses=(), waiting=(), waits={}, targets_s={}, wall=0.0)
    leader.begin(Caches(nowhere, (names.DRIVER,)), lambda: facts, wall=lambda: 0.0)
    Webhook(webhook)
    driver = Driver().registry
    driver.register(SlicesCollector(lambda: None))
    traces = CollectorRegistry()
    traces.register(Tracer(nowhere, where=""))  # of each program, with traces on
    pages = CollectorRegistry()
    Pages(pages)
    registries = [controller, webhook, driver, traces, pages]
    return {
        family.name + ("_total" if family.type == "counter" else "")
        for registry in registries
        for family in registry.collect()
        if family.name.startswith("fairlead_")
    }


def test_every_metric_is_documented_and_every_documented_metric_is_served():
    assert documented_metrics() == served_metrics()


def test_every_policy_rule_is_documented():
    text = (ROOT / "docs" / "webhook.md").read_text()
    rules = [field.alias or name for name, field in TenancyPolicySpec.model_fields.items()]
    assert [rule for rule in rules if rule not in {"namespaceSelector", "mode"} and f"`{rule}`" not in text] == []


@pytest.mark.parametrize("name", ["GANG", "GANG_SIZE", "QUEUE", "TOPOLOGY", "ADMISSION_GATE", "IGNORE_LABEL", "TENANT"])
def test_every_name_that_users_write_is_documented(name):
    assert getattr(names, name) in DOCS


def test_every_make_target_in_the_docs_exists():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = re.findall(r"(?:^|`)make ((?:[a-z0-9-]+ ?)+)", DOCS, re.MULTILINE)
    assert {word for line in lines for word in line.split()} <= targets


def test_every_path_in_the_docs_exists():
    paths = set(
        re.findall(
            r"`((?:lib|engine|driver|webhook|history|controller|ui|sandbox|cli|manifests|docs|examples|tests|e2e|benchmarks|tools|monitoring)/[\w./-]*)`",
            DOCS,
        )
    )
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_what_the_readme_shows_of_explain_has_the_headings_that_explain_prints():
    (shown,) = re.findall(
        r"^gang language/bert: .*?(?=^```)", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    headings = re.findall(r"^  (\w[^:]*):$", shown, re.MULTILINE)
    known = set(re.findall(r'title="([^"]*)"', (ROOT / "ui/fairlead/ui/model/explanations.py").read_text()))
    assert len(headings) > 5
    assert set(headings) <= known


def test_the_commands_of_the_first_tasks_exist_with_their_flags():
    from typer.main import get_command

    from fairlead.cli.main import app

    lines = re.findall(r"`(fairlead [^`]+)`", (ROOT / "docs" / "first-tasks.md").read_text())
    assert len(lines) >= 20
    command: Any = get_command(app)
    for line in lines:
        words, found = shlex.split(line)[1:], command
        while words and words[0] in getattr(found, "commands", {}):
            found = found.commands[words.pop(0)]
        assert not hasattr(found, "commands") or not words or found.name == "check", line  # check FILE
        flags = {flag for each in found.params for flag in (*each.opts, *each.secondary_opts)}
        assert {word for word in words if re.match(r"--?[a-z]", word)} <= flags, line


def test_every_link_in_the_docs_leads_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/README.md")]
    links = [(page, target) for page in pages for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())]
    assert links
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []
