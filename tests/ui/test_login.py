"""Logins by a token: what a viewer gets, and nothing of another tenant; each refusal says why."""

import asyncio
import contextlib
import json
import re
from collections.abc import Collection
from typing import Any
from urllib.parse import urlencode

import pytest

from fairlead.history.ledger.entries import Batch
from fairlead.history.ledger.store.place import UnavailableError
from fairlead.history.ledger.store.writer import open_writer
from fairlead.ui.access.reviews import AGAIN_S, YES_S, KnownNamespaces, of_ledger
from fairlead.ui.access.tokens import COOKIE
from tests.support import ui
from tests.support.costs import at
from tests.support.kube import VirtualTime
from tests.support.ledger_in_memory import allocation, interval
from tests.support.ui_login import HOST, PATHS, alice, by_token, cookie_of

from .markup import check
from .test_scope import OTHERS, shared


async def test_without_a_login_every_page_is_the_form_and_says_nothing_of_the_cluster():
    async with by_token(shared()) as login:
        for path in PATHS:
            for how in ({}, {"Accept": "application/json"}, {"Cookie": "__Host-fairlead=x"}):
                status, headers, text = await login.get(path, **how)
                assert status == 401
                assert headers["WWW-Authenticate"].startswith("Bearer")
                assert headers["Cache-Control"] == "no-store"
                text = re.sub(r'\?next=[^"]+', "", text).replace(path, "").replace("node-001", "")
                assert not re.search(r"node-00[0-9]\b(?!#)|queue-[0-9]|held", text), path
            page = check((await login.get(path))[2])
            _, form = [each for each in page.every("form") if each.attributes["method"] == "post"]
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
        assert [each.attributes["action"] for each in page.every("form")] == [
            "/theme?next=%2Fgangs",
            "/logout",
            "/gangs",
        ]


@pytest.mark.parametrize("nodes", [True, False])
async def test_nothing_of_another_tenant_is_in_any_answer(nodes):
    async with by_token(shared()) as login:
        cookie = await login.cookie(alice(login, nodes=nodes))
        for path in PATHS:
            for kind in ("text/html", "application/json"):
                status, _, text = await login.get(path, cookie, Accept=kind)
                assert status in {200, 403, 404}
                said = re.sub(r'no gang is called [-\w]+ in namespace [-\w]+|\?next=[^"]+', "", text)
                assert not OTHERS.findall(said), (path, kind)
        assert (await login.get("/map", cookie))[0] == (200 if nodes else 403)


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


async def test_viewers_who_share_a_rendering_are_each_named_and_no_other_is():
    async with by_token(shared()) as login:
        login.reviewer.rights |= {("bob", "queues", "")}
        both = [
            await login.cookie(alice(login)),
            await login.cookie(login.reviewer.user("token-of-bob", "bob", gangs=("team-0",), nodes=True)),
        ]
        for path in ("/", "/map", "/gangs", "/queues", "/time", "/gangs/team-0/wait-00000"):
            for _ in range(2):
                texts = [(await login.get(path, cookie))[2] for cookie in both]
                assert ["alice" in text for text in texts] == [True, False]
                assert ["bob" in text for text in texts] == [False, True]
        login.reviewer.rights.discard(("bob", "queues", ""))
        text = (await login.get("/gangs?format=json", both[0]))[2]
        assert "alice" not in text


@pytest.mark.parametrize("path", ["/", "/map", "/gangs", "/gangs/team-1/run-1"])
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
