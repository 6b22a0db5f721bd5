"""A reader of pages for tests: is the markup well formed, are ids unique, what can be reached and by which name."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br"}
SCRIPTS = ("/vendor/", "/page.js?v=")
CLOSED = {"rect", "path", "circle", "use"}  # of SVG, written with a slash
REACHED = {"a", "button", "input", "select", "textarea"}


@dataclasses.dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""
    hidden: bool = False  # within what is aria-hidden


class Page(HTMLParser):
    """Raises AssertionError for what a browser would have to mend."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        assert text.startswith("<!DOCTYPE html>\n")
        self.open: list[Element] = []
        self.elements: list[Element] = []
        self.feed(text)
        self.close()
        assert [each.tag for each in self.open] == []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        element = Element(tag, {name: value or "" for name, value in attrs})
        element.hidden = element.attributes.get("aria-hidden") == "true" or any(each.hidden for each in self.open)
        self.elements.append(element)
        if tag not in VOID:
            assert tag not in CLOSED, f"<{tag}> is not closed"
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        assert tag in CLOSED, f"<{tag} /> is no void element"
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open[-1].tag == tag, (self.open[-1].tag, tag)
        self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element.text += data

    def every(self, *tags: str) -> list[Element]:
        return [each for each in self.elements if each.tag in tags]

    @property
    def text(self) -> str:
        return self.every("body")[0].text

    @property
    def links(self) -> list[str]:
        return [each.attributes["href"] for each in self.every("a")]


def check(text: str) -> Page:
    """The page, once it is found well formed, without scripts of its own and inline styles, and each control with a name."""
    page = Page(text)
    ids = [each.attributes["id"] for each in page.elements if "id" in each.attributes]
    assert len(ids) == len(set(ids)), ids
    for each in page.elements:
        if each.tag == "script":
            assert each.attributes["src"].startswith(SCRIPTS), each
            assert not each.text.strip(), each
        assert each.tag not in {"style", "iframe", "object", "embed", "base"}, each
        assert not [name for name in each.attributes if name == "style" or name.startswith("on")], each
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(each.attributes.get(name, "").split()) <= set(ids), each
        if (
            each.tag == "svg" and each.attributes.get("aria-hidden") != "true"
        ):  # a picture without words has a table beside it
            assert each.attributes["role"] == "img", each
            assert each.attributes["aria-label"], each
    hidden = [each for each in page.elements if each.hidden]
    for each in hidden:
        if each.tag == "a":
            assert each.attributes.get("tabindex") == "-1", "the keyboard does not go where nothing is read"
    labels = "".join(each.text for each in page.every("label"))
    for each in page.every(*REACHED):
        assert each.attributes.get("tabindex", "0") == "0" or each in hidden, each
        if each.tag == "a":
            assert each.attributes["href"].startswith(("/", "#")), each
            assert not each.attributes["href"].startswith("//"), each
        if each.tag in {"a", "button"}:
            assert each.text.strip(), each
        else:
            assert labels, each
    for address in page.links:
        if address.startswith("#"):
            assert address[1:] in ids, address
    assert [each.text for each in page.every("h1")] != []
    assert page.every("html")[0].attributes["lang"] == "en"
    return page
