"""The tables of rules and of refusals: every field of a policy is in one row, and every message of the recorded verdicts reads as its row says."""

import re

from pydantic.alias_generators import to_camel

from fairlead.api.policy import TenancyPolicySpec
from fairlead.webhook.policy.refusals import REFUSALS
from fairlead.webhook.policy.rules import RULES
from tests.webhook.verdict_table import cases, results

NO_RULES = {"namespaceSelector", "exemptions", "mode"}
NOT_THE_WEBHOOKS = {"models", "lostNodeTimeout"}  # the controller reads them
REFUSES_NOTHING = {"members"}


def test_every_field_of_a_policy_is_in_one_row() -> None:
    fields = [field for rule in RULES for field in rule.says]
    assert sorted(fields) == sorted(
        {*map(to_camel, TenancyPolicySpec.model_fields)} - NO_RULES - NOT_THE_WEBHOOKS - REFUSES_NOTHING
    )


def test_every_finding_reads_as_its_row_says() -> None:
    says = {field: texts for rule in RULES for field, texts in rule.says.items()}
    found = {(each.rule, each.text) for _, case in cases() for result in results(case) for each in result.findings}
    unlike = [(rule, text) for rule, text in sorted(found) if not any(matches(said, text) for said in says[rule])]
    assert unlike == []
    assert len(found) > 30


def test_every_refusal_reads_as_a_row_of_its_cause_says() -> None:
    """But for manifests that cannot be read, and of our own kinds: their messages say the field and what is expected there."""
    denials = [
        (result.last.cause, line.removeprefix(f"{result.review.subject}: "))
        for _, case in cases()
        for result in results(case)
        if not result.allowed and result.last.cause not in {"policy", "malformed", "tenancypolicy"}
        for line in re.split(r"\n(?! )", result.last.message)
    ]
    says = {cause: [said for row in REFUSALS if row.cause == cause for said in row.says] for cause, _ in denials}
    assert [denial for denial in denials if not any(matches(said, denial[1]) for said in says[denial[0]])] == []
    assert len(denials) > 20


def matches(said: str, text: str) -> bool:
    pattern = re.sub(r"<[\w ]+>", ".+", re.escape(said).replace("\\ ", " ")).replace("…", ".*")
    return re.fullmatch(pattern, text, re.DOTALL) is not None
