"""The head of every page: where one is, which cluster it is, the theme, and times that a browser can show as the reader's own."""

import pytest

from fairlead.cli.reading import OfCluster
from fairlead.ui.pages import render
from fairlead.ui.reading.live import LiveSource
from tests.support import ui
from tests.support.ui_login import by_token
from tests.ui.test_scope import shared

from .markup import Page, check

PAGES = {"/": "Overview", "/map": "Map", "/queues": "Queues", "/gangs": "Gangs", "/time": "Time"}


async def chosen(reader, theme, path="/gangs?text=x", **headers):
    """The status and headers of what the form of that page answers."""
    at = reader.address.rstrip("/")
    own = {"Origin": at, **headers}
    async with reader.session.post(
        f"{at}/theme", params={"next": path}, data={"theme": theme}, headers=own, allow_redirects=False
    ) as answer:
        return answer.status, answer.headers, await answer.text()


def theme_of(text):
    return Page(text).every("html")[0].attributes.get("data-theme")


async def test_every_page_says_which_of_all_it_is_and_leads_to_the_others():
    async with ui.pages() as reader:
        for path, name in PAGES.items():
            page = check((await reader.get(path))[2])
            nav = page.every("a")[1:8]
            assert set(PAGES) | {"/cost", "/what-if"} == {each.attributes["href"] for each in nav}
            assert [each.text for each in nav if each.attributes.get("aria-current") == "page"] == [name]
            assert page.every("title")[0].text.startswith(f"{name} · Fairlead")


@pytest.mark.parametrize("theme", render.THEMES)
async def test_a_theme_is_chosen_kept_by_the_browser_and_left_again_without_a_script(theme):
    async with ui.pages() as reader:
        assert theme_of((await reader.get("/"))[2]) is None
        status, headers, _ = await chosen(reader, theme)
        assert (status, headers["Location"]) == (303, "/gangs?text=x")
        assert "HttpOnly" in headers["Set-Cookie"]
        assert "SameSite=Lax" in headers["Set-Cookie"]
        cookie = headers["Set-Cookie"].partition(";")[0]
        page = (await reader.get("/gangs", Cookie=cookie))[2]
        assert theme_of(page) == theme
        pressed = [each.text for each in check(page).every("button") if each.attributes.get("aria-pressed") == "true"]
        assert pressed == [theme]
        status, headers, _ = await chosen(reader, "auto", Cookie=cookie)
        assert (status, "Max-Age=0" in headers["Set-Cookie"]) == (303, True)


async def test_what_is_no_theme_is_refused_and_a_theme_leads_to_no_other_site():
    async with ui.pages() as reader:
        status, headers, text = await chosen(reader, "pink")
        assert (status, "Set-Cookie" in headers) == (400, False)
        assert "theme: 'pink': there is auto, light, dark" in check(text).text
        _, headers, _ = await chosen(reader, "dark", "//evil.example/")
        assert headers["Location"] == "/"
        status, headers, _ = await chosen(reader, "dark", Origin="https://evil.example")
        assert (status, "Set-Cookie" in headers) == (403, False)
        assert theme_of((await reader.get("/", Cookie='fairlead-theme="><script>'))[2]) is None


async def test_whoever_logs_in_keeps_the_theme_over_tls_alone():
    async with by_token(shared()) as login:
        own = {"Host": "gpus.example", "Origin": "https://gpus.example"}
        async with login.session.post(
            f"{login.address}/theme", data={"theme": "dark"}, headers=own, allow_redirects=False
        ) as answer:
            assert answer.status == 303
            assert "Secure" in answer.headers["Set-Cookie"]


async def test_a_page_names_its_cluster_as_the_kubeconfig_does(tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_text(
        '{"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "gpus-eu", "user": "u"}}]}'
    )
    name = OfCluster(kubeconfig=file).cluster_name
    source = LiveSource(ui.Apiserver(ui.a_cluster()), name=name)  # type: ignore[arg-type]
    async with ui.reader(source) as reader:
        page = check((await reader.get("/gangs"))[2])
        assert page.every("header")[0].text.split()[:2] == ["Fairlead", "gpus-eu"]
        assert page.every("title")[0].text == "Gangs · Fairlead · gpus-eu"
    assert OfCluster(kubeconfig=tmp_path / "none").cluster_name == ""


async def test_times_are_what_a_browser_can_read_and_a_reader_without_scripts():
    async with ui.pages() as reader:
        page = check((await reader.get("/"))[2])
        times = {each.attributes["datetime"]: each.text for each in page.every("time")}
        assert times["2027-01-15T08:00:00Z"] == "2027-01-15 08:00:00 UTC"
        assert times["2027-01-15T08:10:00Z"] == "2027-01-15 08:10:00 UTC", "the forecast of a start"
