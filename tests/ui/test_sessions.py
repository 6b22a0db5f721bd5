"""How sessions of a login begin, are kept, and end: with the token, without use, by a logout, and while the apiserver is away."""

from fairlead.ui.access.reviews import AWAY_S, YES_S
from fairlead.ui.access.sessions import Sessions
from tests.support import ui
from tests.support.ui_login import OWN_PAGE, alice, by_token, made

from .markup import check
from .test_scope import shared


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
