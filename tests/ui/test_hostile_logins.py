"""What keeps others out: tokens that are refused or guessed, forged forms, redirects to other servers, hostile names."""

import re

import pytest

from fairlead.ui.access import tokens
from fairlead.ui.access.sessions import BURST, Attempts, network
from fairlead.ui.serve.security import foreign, local_path
from tests.support import ui
from tests.support.ui_login import HOST, OWN_PAGE, PATHS, alice, by_token, made

from .markup import SCRIPTS, check
from .test_scope import shared


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("", "There is no token."),
        ("x", "This token is not accepted: the cluster does not know it."),
        ("two words", "This token is not accepted: it is no token, but something else."),
        ("\u202e", "This token is not accepted: it is no token, but something else."),
        ("x" * 20_000, "This token is not accepted: it is no token, but something else."),
        (made(exp=ui.NOW - 1), "This token is not accepted: it expired at 2027-01-15 07:59:59 UTC."),
        (made(exp=10**30), "This token is not accepted: the cluster does not know it."),
        (made(exp=-(10**30)), "This token is not accepted: it has expired."),
        (
            made(exp=ui.NOW + 9, aud=["https://kubernetes.default.svc"]),
            "This token is not accepted: it is made for https://kubernetes.default.svc, and this server accepts tokens for fairlead-ui.",
        ),
    ],
    ids=range(9),
)
async def test_a_token_that_is_refused_has_a_page_that_says_why(token, said):
    async with by_token(shared()) as login:
        status, headers, text = await login.log_in(token)
        assert status == 401
        assert said in check(text).text
        assert "Set-Cookie" not in headers
        assert not token or f'"{token}"' not in text


async def test_a_token_for_the_apiserver_is_accepted_only_where_that_was_chosen():
    for accepted in (False, True):
        async with by_token(shared(), cluster_tokens=accepted) as login:
            token = alice(login)
            login.reviewer.audiences[token] = ("api",)
            assert (await login.log_in(token))[0] == (303 if accepted else 401)


async def test_a_token_that_an_authenticator_accepts_for_another_audience_opens_nothing():
    async with by_token(shared()) as login:
        token = alice(login)
        login.reviewer.audiences[token] = ("api",)
        login.reviewer.of_any_audience = True
        assert (await login.log_in(token))[0] == 401


@pytest.mark.parametrize(
    "token",
    ["", "a.b", "a.!.c", "a.bnVsbA.c", "a.W10.c", made(exp="x", aud=1), made(exp=True), made(exp=10**400), "." * 20],
)
def test_what_a_token_says_of_itself_may_be_anything(token):
    assert tokens.ends(token) is None
    assert tokens.hint(token, ("a",), cluster_tokens=False, now=0.0) == ""


async def test_tokens_cannot_be_tried_without_end_and_others_still_can_log_in_meanwhile():
    async with by_token(shared()) as login:
        token = alice(login)
        cookie = await login.cookie(token)
        found = [await login.log_in(f"guess-{number}") for number in range(BURST + 5)]
        assert [status for status, _, _ in found] == [401] * BURST + [429] * 5
        assert "Too many tokens were tried from 127.0.0.1; try again in 2 s." in check(found[-1][2]).text
        assert (await login.get("/gangs", Authorization="Bearer guess-x"))[0] == 429
        assert (await login.get("/gangs", cookie))[0] == 200
        assert (await login.log_in(token))[0] == 303  # it was accepted a moment ago, so it costs nothing
        login.times.now += 2
        assert (await login.log_in("guess"))[0] == 401
        assert (await login.log_in("guess"))[0] == 429


def test_attempts_count_by_address_and_for_all():
    times = ui.Times()
    attempts = Attempts(clock=times)
    assert all(attempts.begin(f"10.0.{at // 200}.{at % 200}") == 0 for at in range(200))
    assert attempts.begin("10.9.9.9") > 0
    times.now += 0.2
    assert attempts.begin("10.9.9.9") == 0
    assert network("2001:db8::1") == network("2001:db8::2") != network("2001:db8:0:1::1")
    assert network("::ffff:10.0.0.1") == "10.0.0.1"
    assert network("") == ""


FORGED = [
    {},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": f"http://{HOST}"},
    {"Origin": f"https://{HOST}:444"},
    {"Origin": f"https://{HOST}", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
]


@pytest.mark.parametrize("path", ["/login", "/logout"])
async def test_a_form_that_another_site_sends_is_refused(path):
    async with by_token(shared()) as login:
        token = alice(login)
        cookie = await login.cookie(token)
        for headers in FORGED:
            status, answered, text = await login.send("POST", path, data={"token": token}, cookie=cookie, **headers)
            assert (status, "Set-Cookie" in answered) == (403, False), headers
            assert "This request is refused" in text
        assert (await login.get("/gangs", cookie))[0] == 200


def test_a_form_of_this_server_is_accepted_by_browsers_with_and_without_fetch_metadata():
    assert foreign({"Host": "a:8443", "Origin": "https://a:8443"}) == ""
    assert foreign({"Host": "a", "Sec-Fetch-Site": "same-origin"}) == ""
    assert foreign({"Host": "a", "Sec-Fetch-Site": "same-origin", "Origin": "null"}) == ""
    assert foreign({"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:1"}, scheme="http") == ""
    assert foreign({"Host": "A", "Origin": "https://a", "Sec-Fetch-Site": "same-origin"}) == ""


async def test_a_login_in_another_form_than_the_pages_is_not_read():
    async with by_token(shared()) as login:
        token = alice(login)
        for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
            status, headers, _ = await login.send(
                "POST", "/login", data=f"token={token}", Content_Type=kind, **OWN_PAGE
            )
            assert status == 415
            assert "Set-Cookie" not in headers
        assert (await login.send("POST", "/login", data={"token": "x" * 100_000}, **OWN_PAGE))[0] == 413


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example/",
        "///evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "/%0d%0aSet-Cookie:x=y\r\nX: y",
        "/gangs\nLocation: //evil.example",
        "javascript:alert(1)",
        "evil.example",
        "",
        " //evil.example",
        "/\t/evil.example",
        "/login?next=/login",
        "/" + "x" * 3000,
        "/\u202egangs",
    ],
    ids=range(15),
)
def test_no_path_leads_to_another_server(path):
    assert local_path(path) == "/"


async def test_no_login_leads_to_another_server():
    async with by_token(shared()) as login:
        status, headers, _ = await login.log_in(alice(login), "//evil.example/")
        assert (status, headers["Location"]) == (303, "/")


async def test_a_link_of_another_site_arrives_and_cannot_be_made_to_lead_elsewhere():
    sent = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with by_token(shared()) as login:
        status, _, text = await login.get("/gangs?queue=queue-0", **sent)
        assert status == 200
        assert '<meta http-equiv="refresh" content="0; url=/gangs?queue=queue-0&amp;arrived=1">' in text
        assert (await login.get("/gangs?queue=queue-0&arrived=1", **sent))[0] == 401
        cookie = await login.cookie(alice(login))
        assert "refresh" not in (await login.get("/gangs", cookie, **sent))[2]
        _, _, text = await login.get("//evil.example/gangs", **sent)
        assert "evil.example" not in "".join(re.findall(r'(?:content|href)="[^"]*"', text))


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a\u202eb", '"><img src=x>', "{{ 7*7 }}"])
async def test_a_hostile_name_of_a_user_is_text(name):
    async with by_token(shared()) as login:
        cookie = await login.cookie(login.reviewer.user("t", name, gangs=("team-0",)))
        for path in (*PATHS, "/login", "/none"):
            page = check((await login.get(path, cookie))[2])
            assert not page.every("img")
            assert all(each.attributes["src"].startswith(SCRIPTS) for each in page.every("script"))
