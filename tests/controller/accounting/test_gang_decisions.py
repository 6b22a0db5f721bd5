"""What events say of gangs, as the ledger is told: once for the same in a row, bounded."""

from fairlead.controller.accounting import feed
from fairlead.controller.accounting.feed import GangDecisions

GANG, OTHER = ("vision", "train"), ("vision", "other")


def said(noted: GangDecisions) -> list[tuple[str, str, int]]:
    return [(each.gang, each.text, each.at_us) for each in noted.take()]


def test_the_same_in_a_row_is_one_and_each_is_taken_once():
    times = iter(range(100, 200))
    noted = GangDecisions(lambda: float(next(times)))
    for gang, text in (
        (GANG, "8 wanted"),
        (OTHER, "8 wanted"),
        (GANG, "8 wanted"),
        (GANG, "4 wanted"),
        (GANG, "8 wanted"),
    ):
        noted.note(gang, "NoDevices", text, warning=False)
    assert said(noted) == [
        ("train", "8 wanted", 100_000_000),
        ("other", "8 wanted", 101_000_000),
        ("train", "4 wanted", 102_000_000),
        ("train", "8 wanted", 103_000_000),
    ]
    assert said(noted) == []


def test_a_forecast_is_no_decision_and_a_text_is_cut():
    noted = GangDecisions(lambda: 1.0)
    noted.note(GANG, "Forecast", "starts in an hour", warning=False)
    noted.note(GANG, "Evicting", "x" * 5000, warning=True)
    (found,) = noted.take()
    assert (found.what, found.warning, len(found.text)) == ("Evicting", True, feed.TEXT_MAX)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(feed, "GANGS_MAX", 3)
    noted = GangDecisions(lambda: 1.0)
    for number in range(feed.WAITING_MAX + 5):
        noted.note(("vision", f"gang-{number}"), "NoDevices", "x", warning=False)
    taken = noted.take()
    assert len(taken) == feed.WAITING_MAX
    assert taken[0].gang == "gang-5", "the oldest are lost"
    noted.note(("vision", "gang-5"), "NoDevices", "x", warning=False)
    assert len(noted.take()) == 1, "it is not remembered that it was said"
