"""The pages in the chart: what they may read, their logins, their ledger and their certificate."""

from __future__ import annotations

import pytest
import yaml

from tests.support.chart import by_name, container


def test_the_pages_read_what_they_show_and_write_nothing_but_reviews(template):
    objects = by_name(template(values={"ui": {"enabled": True}}))
    rules = objects["ClusterRole", "fairlead-ui"]["rules"]
    written = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert {each for each in written if each[1] not in {"list", "watch"}} == {
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
    }
    assert not {"secrets", "configmaps"} & {resource for resource, _ in written}
    assert objects["Role", "fairlead-ui"]["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["fairlead-run-history"], "verbs": ["get"]}
    ]
    without = by_name(template(values={"ui": {"enabled": True, "whatIf": False}}))
    assert ("Role", "fairlead-ui") not in without
    listed = {each for rule in without["ClusterRole", "fairlead-ui"]["rules"] for each in rule["resources"]}
    assert not {"namespaces", "jobs", "priorityclasses"} & listed
    assert "--no-what-if" in without["Deployment", "fairlead-ui"]["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_pages_have_the_url_of_a_ledger_in_a_database_and_a_way_to_it(template):
    ledger = {"controller": {"ledger": {"urlSecret": "ledger-url"}}}
    objects = by_name(template(values={"ui": {"enabled": True}, **ledger}))
    (container,) = objects["Deployment", "fairlead-ui"]["spec"]["template"]["spec"]["containers"]
    source = {"valueFrom": {"secretKeyRef": {"name": "ledger-url", "key": "url"}}}
    assert container["env"] == [{"name": "FAIRLEAD_LEDGER", **source}]
    ports = [port for each in objects["NetworkPolicy", "fairlead-ui"]["spec"]["egress"] for port in each["ports"]]
    assert {"port": 5432} in ports
    plain = by_name(template(values={"ui": {"enabled": True}}))
    assert "env" not in plain["Deployment", "fairlead-ui"]["spec"]["template"]["spec"]["containers"][0]


def test_without_the_value_nothing_of_the_pages_is_installed(template):
    assert [each for each in by_name(template()) if "ui" in each[1].split("-")] == []


@pytest.mark.parametrize(
    ("values", "arguments", "volumes"),
    [
        ({}, {"--login=token", "--audience=fairlead-ui"}, {}),
        ({"tlsSecret": "mine"}, {"--certificate-from=/etc/fairlead/ui"}, {"certificate": "mine"}),
        (
            {"login": "proxy", "proxy": {"secret": "shared", "userPrefix": "oidc:"}},
            {"--login=proxy", "--proxy-secret-file=/etc/fairlead/proxy/secret", "--user-prefix=oidc:"},
            {"proxy": "shared"},
        ),
        (
            {"login": "proxy", "proxy": {"clientCaSecret": "ca", "names": ["a", "b"]}},
            {"--client-ca=/etc/fairlead/client-ca/ca.crt", "--proxy-name=a", "--proxy-name=b"},
            {"client-ca": "ca"},
        ),
        (
            {"urls": ["https://gpus.example.com"], "clusterTokens": True},
            {"--url=https://gpus.example.com", "--cluster-tokens"},
            {},
        ),
    ],
    ids=["token", "certificate", "secret", "mTLS", "address"],
)
def test_each_login_has_its_flags_and_its_secrets(template, values, arguments, volumes):
    objects = by_name(template(values={"ui": {"enabled": True, **values}}))
    deployment = objects["Deployment", "fairlead-ui"]
    of = container(deployment)
    assert arguments <= set(of["args"])
    found = deployment["spec"]["template"]["spec"].get("volumes") or []
    assert {each["name"]: each["secret"]["secretName"] for each in found} == volumes
    assert {each["name"] for each in of.get("volumeMounts") or []} == set(volumes)
    reviews = "tokenreviews" in yaml.safe_dump(objects["ClusterRole", "fairlead-ui"])
    assert reviews == (values.get("login") != "proxy")


def test_cert_manager_makes_the_certificate_of_the_pages_too(template):
    values = {"certManager": {"enabled": True}, "ui": {"enabled": True, "urls": ["https://gpus.example.com:8443"]}}
    objects = by_name(template(values=values))
    assert "gpus.example.com" in objects["Certificate", "fairlead-ui"]["spec"]["dnsNames"]
    assert "--certificate-from=/etc/fairlead/ui" in container(objects["Deployment", "fairlead-ui"])["args"]
