"""Viewers whom a proxy logs in: what makes a request the proxy's, and that nobody else can name a viewer."""

from pathlib import Path
from typing import Any

import pytest

from fairlead.ui.access.proxy import SECRET, ProxySecretError, Trust, names_of
from fairlead.ui.app import _trust, allowed_hosts
from fairlead.ui.options import UiOptions
from tests.support.commands import invoke
from tests.support.ui_login import by_proxy

from .markup import check
from .test_scope import OTHERS, shared

TOKEN = "0123456789abcdef0123456789abcdef"
ALICE = {"X-Forwarded-User": "alice", "X-Forwarded-Groups": "team-zero, readers"}


@pytest.fixture
def trust(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{TOKEN}\n")
    return Trust(secret=path)


async def test_the_proxys_user_sees_what_the_cluster_lets_that_user_and_those_groups_list(trust):
    async with by_proxy(shared(), trust, user_prefix="oidc:", group_prefix="org:") as login:
        login.reviewer.rights |= {("oidc:alice", "nodes", ""), ("org:readers", "gangs", "team-0")}
        status, _, text = await login.get("/gangs", **{SECRET: TOKEN}, **ALICE)
        assert status == 200
        page = check(text)
        assert "team-0/run-0" in page.text
        assert "oidc:alice" in page.text
        assert not OTHERS.findall(text)
        assert not page.every("form")[0].attributes["action"].startswith("/log")
        asked = {(body["spec"]["user"], tuple(body["spec"]["groups"])) for body in login.reviewer.asked}
        assert asked == {("oidc:alice", ("org:team-zero", "org:readers", "system:authenticated"))}


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, f"did not come through the proxy: it lacks the header {SECRET}"),
        ({SECRET: ""}, "did not come through the proxy"),
        ({SECRET: "wrong"}, "holds another secret"),
        ({SECRET: TOKEN[:-1]}, "holds another secret"),
        ({SECRET: f"{TOKEN}é"}, "holds another secret"),
    ],
    ids=range(5),
)
async def test_who_is_not_the_proxy_cannot_name_a_viewer(trust, headers, said):
    async with by_proxy(shared(), trust) as login:
        login.reviewer.rights |= {("alice", "gangs", "")}
        for kind in ("text/html", "application/json"):
            status, _, text = await login.get("/gangs", Accept=kind, **ALICE, **headers)
            assert status == 401
            assert "team-" not in text
        assert said in text
        assert login.reviewer.asked == []


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "must send the header X-Forwarded-User once"),
        ({"X-Forwarded-User": " "}, "must send the header X-Forwarded-User once"),
        ({"X-Forwarded-User": "system:admin"}, "names that begin with system: are the cluster"),
        ({"X-Forwarded-User": "alice", "X-Forwarded-Groups": "a,system:masters"}, "system:masters"),
        ({"X-Forwarded-User": "a" * 2000}, "too long"),
        ({"X-Forwarded-User": "a", "X-Forwarded-Groups": "g," * 2000}, "too long"),
    ],
    ids=range(6),
)
async def test_the_proxy_may_not_name_the_clusters_own_users_nor_nobody(trust, headers, said):
    async with by_proxy(shared(), trust) as login:
        status, _, text = await login.get("/gangs", Accept="application/json", **{SECRET: TOKEN}, **headers)
        assert (status, said in text) == (401, True)
        assert login.reviewer.asked == []


async def test_a_secret_is_read_anew_when_it_changes_and_one_that_is_too_short_lets_nobody_in(trust):
    async with by_proxy(shared(), trust) as login:
        trust.secret.write_text("f" * 64)
        assert (await login.get("/gangs", **{SECRET: TOKEN}, **ALICE))[0] == 401
        assert (await login.get("/gangs", **{SECRET: "f" * 64}, **ALICE))[0] == 403  # known, without rights
        trust.secret.write_text("short")
        status, _, text = await login.get("/gangs", **{SECRET: "short"}, **ALICE)
        assert status == 401
        assert "has 5 characters: write at least 32" in text
        trust.secret.unlink()
        assert "cannot be read" in (await login.get("/gangs", **{SECRET: "short"}, **ALICE))[2]


def test_a_client_certificate_counts_by_its_name_and_not_by_its_authority_alone():
    trust = Trust(names=frozenset({"gpu-proxy"}))
    named = {"subject": ((("commonName", "gpu-proxy"),),)}
    dns = {"subject": (), "subjectAltName": (("DNS", "gpu-proxy"), ("DNS", "x"))}
    other = {"subject": ((("organizationName", "gpu-proxy"),), (("commonName", "other"),))}
    assert trust.refusal({}, named) == ""
    assert trust.refusal({}, dns) == ""
    assert "is of other, which this server does not know as its proxy" in trust.refusal({}, other)
    assert trust.refusal({}, None) == "the request did not come through the proxy: it lacks a client certificate"
    assert names_of({}) == frozenset()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "say by what the proxy is known"),
        ({"proxy_names": ("x",)}, "go together"),
        ({"client_ca": "ca"}, "go together"),
        ({"proxy_secret_file": "/nowhere/secret"}, "cannot be read"),
    ],
    ids=range(4),
)
def test_a_proxy_that_nothing_tells_from_others_is_no_way_to_log_in(options, said, tmp_path):
    made: dict[str, Any] = {name: Path(value) if isinstance(value, str) else value for name, value in options.items()}
    with pytest.raises(ValueError, match=said):
        _trust(UiOptions(login="proxy", **made))
    assert issubclass(ProxySecretError, ValueError)


@pytest.mark.parametrize(
    "url", ["http://a", "a", "https://", "https://a/b", "https://u@a", "https://a?x", "https://a:x"]
)
def test_an_address_that_browsers_cannot_reach_is_refused(url):
    with pytest.raises(ValueError, match="write where browsers reach the pages"):
        allowed_hosts([url])


def test_the_names_of_the_server_are_those_of_its_addresses():
    assert allowed_hosts([]) is None
    assert allowed_hosts(["https://GPUs.example/", "https://a:8443"]) == frozenset({"gpus.example", "a:8443"})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--login", "token", "--snapshot", __file__], "is for pages on loopback: leave it out, or --login"),
        (["--login", "token", "--context", "x"], "is for pages on loopback: leave it out, or --login"),
        (["--login", "token", "--port", "80"], "is for pages on loopback: leave it out, or --login"),
        (["--bind", "127.0.0.1:80"], "--bind: is for viewers who log in: add --login, or leave it out"),
        (["--url", "https://a"], "--url: is for viewers who log in: add --login, or leave it out"),
        (["--no-what-if"], "--what-if/--no-what-if: is for viewers who log in: add --login, or leave it out"),
        (["--client-ca", __file__], "--client-ca: is for viewers whom a proxy logs in: leave it out, or use --login proxy"),
        (["--login", "token", "--proxy-name", "p"], "--proxy-name: is for viewers whom a proxy logs in: leave it out, or use --login proxy"),
        (["--login", "token", "--user-prefix", "oidc:"], "--user-prefix: is for viewers whom a proxy logs in: leave it out, or use --login proxy"),
        (["--login", "token", "--session-idle", "1 hour"], "--session-idle"),
        (["--login", "password"], "'password' is not one of"),
    ],
    ids=range(11),
)  # fmt: skip
def test_flags_that_do_not_go_together_are_refused_with_the_way_out(words, said):
    done = invoke(["ui", *words])
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", "").split())
