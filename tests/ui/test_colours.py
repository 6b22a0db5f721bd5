"""Colours of queues: by name, whatever else there is; apart from one another and from those of states; text on them is readable."""

import itertools
import math
import re

import pytest

from fairlead.ui.pages import render
from fairlead.ui.pages.colours import COLOURS, NONE, palette

CSS = render.file("style.css")
STATES = ("used", "idle", "starting", "lost", "free", "away", "empty", "qn")
QUEUES = tuple(f"q{at}" for at in range(COLOURS))
APART, READABLE, SEEN = 0.09, 4.5, 3.0  # in OKLab, where 0.02 is just seen; contrasts of WCAG 1.4.3 and 1.4.11


def queues(*names, parent=None):
    """In the order of their creation."""
    return [
        {
            "metadata": {"name": name, "creationTimestamp": f"2027-01-01T00:00:{at:02}Z"},
            "spec": {"parent": parent} if parent else {},
        }
        for at, name in enumerate(names)
    ]


NAMES = ("vision", "language", "speech", "robotics", "search", "ads", "maps", "health")


def test_a_queue_has_the_colour_of_its_name_whatever_is_held_and_in_whichever_order_queues_come():
    every = palette(queues(*NAMES))
    assert every == palette(reversed(queues(*NAMES)), held=("language", "", "vision"))
    assert len({every[name] for name in NAMES}) == len(NAMES)
    assert (every[""], set(every.values()) <= {*QUEUES, NONE}) == (NONE, True)


def test_no_queue_changes_its_colour_when_others_are_created():
    for count in range(1, len(NAMES)):
        before, now = palette(queues(*NAMES[:count])), palette(queues(*NAMES))
        assert before.items() <= now.items()


def test_only_a_younger_queue_that_stood_back_changes_when_one_is_deleted():
    before = palette(queues(*NAMES))
    for gone in NAMES:
        left = [each for each in queues(*NAMES) if each["metadata"]["name"] != gone]
        now = palette(left)
        changed = {name for name in NAMES if name != gone and now[name] != before[name]}
        assert all(NAMES.index(name) > NAMES.index(gone) for name in changed)


def test_more_queues_than_colours_share_them_evenly_and_parents_take_none():
    many = tuple(f"team-{at}" for at in range(2 * COLOURS))
    every = palette([*queues("company"), *queues(*many, parent="company")])
    used = [every[name] for name in many]
    assert {colour: used.count(colour) for colour in QUEUES} == dict.fromkeys(QUEUES, 2)
    assert {name: every[name] for name in many} == {
        name: colour for name, colour in palette(queues(*many)).items() if name
    }


def test_a_queue_that_holds_devices_and_cannot_be_read_has_a_colour_too():
    assert palette([], held=("secret", "")).keys() == {"secret", ""}


def colour(name, dark):
    """Red, green and blue of 0 to 1, of a variable of the style sheet."""
    (value,) = re.findall(rf"--{name}: (light-dark\([^)]*\)|#[0-9a-f]+)", CSS)
    return rgb(re.findall(r"#[0-9a-f]+", value)[-1 if dark else 0])


def rgb(text):
    digits = text[1:] if len(text) == 7 else "".join(2 * digit for digit in text[1:])
    return tuple(int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))


def linear(value):
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def contrast(one, other):
    light, dark = sorted(
        (sum(share * linear(part) for share, part in zip((0.2126, 0.7152, 0.0722), each, strict=True)) for each in (one, other)),
        reverse=True,
    )  # fmt: skip
    return (light + 0.05) / (dark + 0.05)


def oklab(given):
    """https://bottosson.github.io/posts/oklab"""
    red, green, blue = map(linear, given)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colours_of_queues_are_apart_from_one_another_and_from_those_of_states(dark):
    near = {
        (one, other): distance
        for one, other in itertools.combinations((*QUEUES, *STATES), 2)
        if one in QUEUES and (distance := math.dist(oklab(colour(one, dark)), oklab(colour(other, dark)))) < APART
    }
    assert not near


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", [*QUEUES, "qn"])
def test_a_queue_is_seen_on_the_page_and_text_on_it_is_readable(name, dark):
    own = colour(name, dark)
    assert contrast(own, colour("paper", dark)) >= SEEN
    (rule,) = re.findall(rf"\.{name}, \.{name} ~ svg {{[^}}]*--on: ([^;]+);", CSS)
    inks = re.findall(r"var\(--(bright|black)\)", rule)
    assert contrast(own, colour(inks[-1 if dark else 0], dark)) >= READABLE
