"""Logins by a token: what a viewer gets, what keeps others out, how sessions end, and what each refusal says."""

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import Collection
from typing import Any
from urllib.parse import urlencode

import pytest

from fairlead.history.ledger.entries import Batch
from fairlead.history.ledger.store.errors import UnavailableError
from fairlead.history.ledger.store.writer import open_writer
from fairlead.ui.access import jwt
from fairlead.ui.access.attempts import BURST, Attempts, network
from fairlead.ui.access.namespaces import AGAIN_S, KnownNamespaces, of_ledger
from fairlead.ui.access.reviews import AWAY_S, YES_S
from fairlead.ui.access.sessions import Sessions
from fairlead.ui.access.tokens import COOKIE
from fairlead.ui.serve.origins import foreign, local_path
from tests.support import ui
from tests.support.costs import at
from tests.support.kube import VirtualTime
from tests.support.ledger_in_memory import allocation, interval
from tests.support.ui_login import HOST, OWN_PAGE, Login, by_token, cookie_of

from .markup import check
from .test_scope import OTHERS, shared

PATHS = [
    "/",
    "/?node=node-001",
    "/queues",
    "/queues/queue-1",
    "/gangs",
    "/gangs?text=run",
    "/gangs/team-0/wait-00000",
    "/gangs/team-1/run-1",
    "/time",
    "/time?by=node",
    "/cost",
    "/what-if",
]
WITH_QUEUES = {("alice", "queues", "")}


def alice(login: Login, *, nodes: bool = True) -> str:
    login.reviewer.rights |= WITH_QUEUES
    return login.reviewer.user("token-of-alice", "alice", "team-zero", gangs=("team-0",), nodes=nodes)


@pytest.mark.parametrize("path", PATHS)
async def test_without_a_login_every_page_is_the_form_and_says_nothing_of_the_cluster(path):
    async with by_token(shared()) as login:
        for how in ({}, {"Accept": "application/json"}, {"Cookie": "__Host-fairlead=x"}):
            status, headers, text = await login.get(path, **how)
            assert status == 401
            assert headers["WWW-Authenticate"].startswith("Bearer")
            assert headers["Cache-Control"] == "no-store"
            assert not re.search(
                r"node-00[0-9]\b(?!#)|queue-[0-9]|held", text.replace(path, "").replace("node-001", "")
            )
        page = check((await login.get(path))[2])
        (form,) = [each for each in page.every("form") if each.attributes["method"] == "post"]
        assert form.attributes["action"] == "/login"


async def test_a_login_begins_a_session_with_a_cookie_that_no_script_and_no_other_site_gets():
    async with by_token(shared()) as login:
        status, headers, _ = await login.log_in(alice(login), "/gangs?queue=queue-0")
        assert (status, headers["Location"]) == (303, "/gangs?queue=queue-0")
        assert re.fullmatch(
            r"__Host-fairlead=[-\w]{75}; HttpOnly; Path=/; SameSite=Strict; Secure", headers["Set-Cookie"]
        )
        status, headers, text = await login.get("/gangs", cookie_of(headers))
        assert status == 200
        assert "team-0/wait-00000" in text
        assert headers["Cache-Control"] == "private, no-cache"
        assert "Cookie" in headers["Vary"]
        page = check(text)
        assert "alice" in page.text
        assert [each.attributes["action"] for each in page.every("form")] == ["/logout", "/gangs"]


@pytest.mark.parametrize("nodes", [True, False])
async def test_nothing_of_another_tenant_is_in_any_answer(nodes):
    async with by_token(shared()) as login:
        cookie = await login.cookie(alice(login, nodes=nodes))
        for path in PATHS:
            for kind in ("text/html", "application/json"):
                status, _, text = await login.get(path, cookie, Accept=kind)
                assert status in {200, 403, 404}
                said = re.sub(r"no gang is called [-\w]+ in namespace [-\w]+", "", text)
                assert not OTHERS.findall(said), (path, kind)
        assert (await login.get("/", cookie))[0] == (200 if nodes else 403)


async def test_a_bearer_token_is_accepted_with_each_request():
    async with by_token(shared()) as login:
        token = alice(login)
        status, headers, text = await login.get("/gangs", Authorization=f"Bearer {token}", Accept="application/json")
        assert status == 200
        assert {each["namespace"] for each in json.loads(text)} == {"team-0"}
        assert "Set-Cookie" not in headers
        status, _, text = await login.get("/gangs", Authorization="Bearer wrong")
        assert (status, json.loads(text)["error"]) == (401, "Login needed")
        assert (await login.get("/gangs", Authorization="Basic eDp5"))[0] == 401


async def test_a_viewer_without_any_right_is_told_which_ones_are_missing():
    async with by_token(shared()) as login:
        cookie = await login.cookie(login.reviewer.user("t", "nobody"))
        for path, right in (("/", "nodes"), ("/queues", "queues.fairlead.dev"), ("/gangs", "gangs.fairlead.dev")):
            status, _, text = await login.get(path, cookie)
            assert status == 403
            assert f"ask for a role with the verb list on {right}" in check(text).text


async def test_who_may_list_all_namespaces_is_asked_of_no_single_one():
    async with by_token(shared()) as login:
        cookie = await login.cookie(login.reviewer.user("t", "admin", gangs=("",), nodes=True))
        status, _, text = await login.get("/gangs", cookie, Accept="application/json")
        assert status == 200
        assert {"team-0", "team-4"} <= {each["namespace"] for each in json.loads(text)}
        assert len([body for body in login.reviewer.asked if body["kind"] == "SubjectAccessReview"]) == 3


async def test_reviews_are_remembered_and_a_right_that_is_taken_away_is_gone_within_a_minute():
    async with by_token(shared()) as login:
        cookie = await login.cookie(alice(login))
        await login.get("/gangs", cookie)
        asked = len(login.reviewer.asked)
        await login.get("/gangs", cookie)
        assert len(login.reviewer.asked) == asked
        login.reviewer.rights.discard(("alice", "gangs", "team-0"))
        login.times.now += YES_S
        status, _, text = await login.get("/gangs", cookie)
        assert status == 403
        assert "team-0" not in text


async def test_a_right_that_is_given_shows_after_a_few_seconds():
    async with by_token(shared()) as login:
        cookie = await login.cookie(alice(login))
        assert "team-1" not in (await login.get("/gangs", cookie))[2]
        login.reviewer.rights.add(("alice", "gangs", "team-1"))
        login.times.now += 6
        assert "team-1/run-1" in (await login.get("/gangs", cookie))[2]


# ----------------------------------------------------------------------------------------------------- how it ends


async def test_a_token_that_is_revoked_ends_its_session_within_a_minute_and_the_page_says_so():
    async with by_token(shared()) as login:
        cookie = await login.cookie(alice(login))
        del login.reviewer.tokens["token-of-alice"]
        login.times.now += YES_S
        status, _, text = await login.get("/gangs", cookie)
        assert status == 401
        assert "The token of your session has expired, or was revoked." in check(text).text
        login.reviewer.user("token-of-alice", "alice")
        assert "Your session has ended." in check((await login.get("/gangs", cookie))[2]).text


async def test_a_session_ends_when_its_token_does():
    async with by_token(shared()) as login:
        token = login.reviewer.user(made(exp=ui.NOW + 120), "alice", gangs=("team-0",))
        cookie = await login.cookie(token)
        login.times.now += 119
        assert (await login.get("/gangs", cookie))[0] == 200
        login.times.now += 1
        assert (await login.get("/gangs", cookie))[0] == 401


async def test_a_session_ends_when_it_is_not_used_and_after_its_time():
    async with by_token(shared(), idle_s=1000, absolute_s=2500) as login:
        cookie = await login.cookie(alice(login))
        for wait, status in ((999, 200), (999, 200), (501, 200), (1, 401)):
            login.times.now += wait
            assert (await login.get("/gangs", cookie))[0] == status
        cookie = await login.cookie(alice(login))
        login.times.now += 1000
        assert (await login.get("/gangs", cookie))[0] == 401


async def test_a_logout_ends_the_session_and_takes_the_cookie_back():
    async with by_token(shared()) as login:
        cookie = await login.cookie(alice(login))
        status, headers, _ = await login.send("POST", "/logout", cookie=cookie, **OWN_PAGE)
        assert (status, headers["Location"], headers["Clear-Site-Data"]) == (303, "/login", '"cache"')
        assert "Max-Age=0" in headers["Set-Cookie"]
        assert (await login.get("/gangs", cookie))[0] == 401


async def test_while_the_apiserver_is_away_who_was_seen_lately_is_known_and_others_wait():
    async with by_token(shared()) as login:
        cookie = await login.cookie(alice(login))
        await login.get("/gangs", cookie)
        login.reviewer.away = True
        login.times.now += YES_S
        assert (await login.get("/gangs", cookie))[0] == 200
        status, _, text = await login.log_in("another")
        assert status == 503
        assert "the cluster does not answer a TokenReview" in text
        login.times.now += AWAY_S
        assert (await login.get("/gangs", cookie))[0] == 503
        login.reviewer.away = False
        assert (await login.get("/gangs", cookie))[0] == 200


async def test_a_server_that_may_not_ask_for_reviews_says_which_right_it_lacks():
    async with by_token(shared()) as login:
        login.reviewer.forbidden = True
        status, _, text = await login.log_in("t")
        assert status == 503
        assert "its ServiceAccount lacks create on tokenreviews" in text


# ------------------------------------------------------------------------------------------- tokens that are refused


def made(**claims):
    """A token as an apiserver makes it, of which nobody checks the signature here."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2ln"


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


@pytest.mark.parametrize(
    "token", ["", "a.b", "a.!.c", "a.bnVsbA.c", "a.W10.c", made(exp="x", aud=1), made(exp=True), "." * 20]
)
def test_what_a_token_says_of_itself_may_be_anything(token):
    assert jwt.ends(token) is None
    assert jwt.hint(token, ("a",), cluster_tokens=False, now=0.0) == ""


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


# ------------------------------------------------------------------------------------------------ forged requests


@pytest.mark.parametrize("path", ["/login", "/logout"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://{HOST}"},
        {"Origin": f"https://{HOST}:444"},
        {"Origin": f"https://{HOST}", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=range(8),
)
async def test_a_form_that_another_site_sends_is_refused(path, headers):
    async with by_token(shared()) as login:
        token = alice(login)
        cookie = await login.cookie(token)
        status, answered, text = await login.send("POST", path, data={"token": token}, cookie=cookie, **headers)
        assert status == 403
        assert "Set-Cookie" not in answered
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
async def test_no_login_leads_to_another_server(path):
    assert local_path(path) == "/"
    async with by_token(shared()) as login:
        status, headers, _ = await login.log_in(alice(login), path)
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
            assert all(each.attributes["src"].startswith("/vendor/") for each in page.every("script"))


async def test_errors_have_the_headers_of_security_too():
    async with by_token(shared()) as login:
        for path in ("/gangs", "/login", "/none", "/style.css", "/healthz"):
            _, headers, _ = await login.get(path)
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert headers["Referrer-Policy"] == "same-origin"
            assert "Strict-Transport-Security" not in headers


# ---------------------------------------------------------------------------------------------------- sessions


def test_what_is_kept_of_a_session_does_not_hold_the_token_and_half_a_cookie_opens_nothing():
    times = ui.Times()
    sessions = Sessions(clock=times)
    value = sessions.begin("alice", "the-secret-token")
    assert sessions.token(value) == "the-secret-token"
    assert b"the-secret-token" not in repr(vars(sessions)).encode()
    first, second = (sessions.begin("alice", "the-secret-token") for _ in range(2))
    assert first != second
    for wrong in (value[:32] + "A" * 43, value[:-1], value + "A", "", "=", "é", value[:32], "x" * 10_000):
        assert sessions.token(wrong) is None
    assert sessions.token(value) == "the-secret-token"


def test_sessions_are_bounded_and_those_used_longest_ago_end_first():
    times = ui.Times()
    sessions = Sessions(clock=times, most=5, each=2)
    first, second, third = (sessions.begin("a", "t") for _ in range(3))
    assert [sessions.token(each) for each in (first, second, third)] == [None, "t", "t"]
    others = [sessions.begin(f"u{number}", "t") for number in range(4)]
    assert sessions.token(second) is None
    assert [sessions.token(each) for each in others] == ["t"] * 4
    assert len(sessions) == 5
    times.now += 3600
    assert len(sessions) == 0


# ------------------------------------------------------------------------------------------- what viewers share


async def test_viewers_who_share_a_rendering_are_each_named_and_no_other_is():
    async with by_token(shared()) as login:
        login.reviewer.rights |= {("bob", "queues", "")}
        both = [
            await login.cookie(alice(login)),
            await login.cookie(login.reviewer.user("token-of-bob", "bob", gangs=("team-0",), nodes=True)),
        ]
        for path in ("/", "/gangs", "/queues", "/time", "/gangs/team-0/wait-00000"):
            for _ in range(2):
                texts = [(await login.get(path, cookie))[2] for cookie in both]
                assert ["alice" in text for text in texts] == [True, False]
                assert ["bob" in text for text in texts] == [False, True]
        login.reviewer.rights.discard(("bob", "queues", ""))
        text = (await login.get("/gangs?format=json", both[0]))[2]
        assert "alice" not in text


@pytest.mark.parametrize("path", ["/", "/gangs", "/queues", "/gangs/team-0/wait-00000", "/gangs/team-1/run-1"])
async def test_a_stream_needs_a_login_and_names_nothing_of_another_tenant(path):
    async with by_token(shared()) as login:
        cookie = await login.cookie(alice(login))
        address = f"{login.address}/live?{urlencode({'page': path, 'from': 'unknown'})}"
        async with login.session.get(address, headers={"Host": HOST}) as answer:
            assert answer.status == 401
        named = {"Host": HOST, "Cookie": f"{COOKIE}={cookie}", "Accept-Encoding": "identity"}
        async with login.session.get(address, headers=named) as answer:
            assert answer.status == 200
            assert answer.headers["Cache-Control"] == "no-store"
            found = b""
            while b"hx-partial" not in found:
                found += await answer.content.readany()
        text = re.sub(r"no gang is called [-\w]+ in namespace [-\w]+", "", found.decode())
        assert not OTHERS.findall(text.replace(path, ""))
        assert "alice" not in text


async def test_rights_are_asked_for_namespaces_of_the_past_too_and_a_ledger_that_is_away_holds_nobody_up():
    answers: list[Any] = [UnavailableError("the database does not answer"), {"team-9", "team-0"}]

    async def past() -> Collection[str]:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return set(found)

    times = VirtualTime(0.0)
    known = KnownNamespaces(ui.source(ui.Apiserver(ui.a_cluster(2, waiting=2))), past)
    assert await known() == {"team-0", "team-1"}
    task = asyncio.create_task(known.run(times.sleep))
    await times.advance(1.0)
    assert await known() == {"team-0", "team-1"}
    await times.advance(AGAIN_S)
    assert await known() == {"team-0", "team-1", "team-9"}
    task.cancel()


async def test_the_namespaces_of_a_ledger_are_those_of_its_claims(tmp_path):
    with contextlib.closing(open_writer(str(tmp_path), writer="test")) as writer:
        held = [
            interval(gpu, "used", at(0), at(24), claim=allocation("a", namespace=namespace))
            for gpu, namespace in enumerate(("red", "blue", "red"))
        ]
        writer.commit(Batch(as_of_us=at(24), intervals=tuple(enumerate(held, 1))))
        assert await of_ledger(str(tmp_path))() == {"red", "blue"}
