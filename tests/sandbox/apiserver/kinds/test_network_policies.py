"""NetworkPolicy: stored with its defaults, refused with what is wrong; nothing here has a network to keep it on."""

from typing import Any

import pytest

from fairlead.sandbox.apiserver.kinds.errors import FieldError
from fairlead.sandbox.apiserver.kinds.small import NetworkPolicyStrategy

STRATEGY = NetworkPolicyStrategy()
NO_CONTEXT: Any = None  # what is judged here does not depend on who asks


def policy(**spec):
    obj = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"podSelector": {}, **spec}}
    STRATEGY.default(obj)
    return obj


def test_a_policy_with_an_egress_rule_is_about_both_directions():
    assert policy()["spec"]["policyTypes"] == ["Ingress"]
    made = policy(egress=[{"ports": [{"port": 443}]}])
    assert made["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert made["spec"]["egress"][0]["ports"] == [{"port": 443, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"policyTypes": ["Inward"]}, "spec.policyTypes[0]"),
        ({"ingress": [{"ports": [{"port": 0}]}]}, "spec.ingress[0].ports[0].port"),
        ({"egress": [{"ports": [{"port": 53, "protocol": "udp"}]}]}, "spec.egress[0].ports[0].protocol"),
    ],
)
def test_what_is_wrong_is_named(spec, field):
    found: list[FieldError] = list(STRATEGY.validate(policy(**spec), NO_CONTEXT))
    assert [error.field for error in found] == [field]
