"""The table of rules: every field of a policy is in it, and every finding of the recorded verdicts reads as it says."""

import re

from pydantic.alias_generators import to_camel

from fairlead.api.policy import TenancyPolicySpec
from fairlead.webhook.policy.rules import RULES
from tests.webhook.verdict_table import cases, results

NO_RULES = {"namespaceSelector", "exemptions", "mode"}
NOT_THE_WEBHOOKS = {"models", "lostNodeTimeout"}  # the controller reads them


def test_every_field_of_a_policy_is_in_one_row() -> None:
    fields = [field for rule in RULES for field in rule.says]
    assert sorted(fields) == sorted({*map(to_camel, TenancyPolicySpec.model_fields)} - NO_RULES - NOT_THE_WEBHOOKS)


def test_every_finding_reads_as_its_row_says() -> None:
    says = {field: texts for rule in RULES for field, texts in rule.says.items()}
    found = {(each.rule, each.text) for _, case in cases() for result in results(case) for each in result.findings}
    unlike = [(rule, text) for rule, text in sorted(found) if not any(matches(said, text) for said in says[rule])]
    assert unlike == []
    assert len(found) > 30


def matches(said: str, text: str) -> bool:
    pattern = re.sub(r"<[\w ]+>", ".+", re.escape(said).replace("\\ ", " ")).replace("…", ".*")
    return re.fullmatch(pattern, text) is not None
