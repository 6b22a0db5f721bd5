"""`fairlead cost`: what is printed, and one clear error for each bad question, without a traceback."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from fairlead.cli.cost import reading
from fairlead.history.ledger.entries import Wait
from fairlead.history.ledger.store.place import LedgerError
from fairlead.kube.timestamps import DAY_US
from tests.support.commands import invoke
from tests.support.costs import D1, DAY, at
from tests.support.ledger_in_memory import Ledger, allocation, interval

FLAVORS = """
apiVersion: v1
kind: List
items:
- apiVersion: fairlead.dev/v1alpha1
  kind: Flavor
  metadata: {name: h100}
  spec:
    deviceSelector: "true"
    price:
    - {perHour: "3.00", currency: EUR}
    - {perHour: "4.00", currency: EUR, from: "2026-11-01T12:00:00Z"}
"""
LEDGERS: dict[str, Ledger] = {}


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers by name in place of a store, and a day after the ledger's as now."""

    def open_reader(where: str) -> Ledger:
        if where not in LEDGERS:
            raise LedgerError(f"no ledger is at {where}")
        return LEDGERS[where]

    LEDGERS.clear()
    LEDGERS.update(day=Ledger(DAY), empty=Ledger())
    monkeypatch.setattr(reading, "open_reader", open_reader)
    monkeypatch.setattr(reading, "now_s", lambda: (D1 + 2 * DAY_US) / 1e6)


@pytest.fixture
def cost(tmp_path: Path):
    flavors = tmp_path / "flavors.yaml"
    flavors.write_text(FLAVORS)

    def run(*arguments: str, window: str = "2026-11-01..2026-11-02", ledger: str = "day"):
        own = ["--window", window, "--flavors", str(flavors), "--ledger", ledger]
        found = invoke(["cost", *own, *arguments])
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
        return found

    return run


def test_a_bill_has_a_line_per_queue_what_no_claim_held_and_where_all_time_went(cost) -> None:
    found = cost()
    assert found.exit_code == 0
    words = [line.split() for line in found.stdout.splitlines()]
    lines = {line[0]: " ".join(line[1:]) for line in words if line}
    assert lines["ml"] == "10.0 8.0 2.0 0.0 0.0 0.0 40 % 34.00 EUR 13.00 EUR 34.00 EUR"
    assert lines["web"] == "24.0 23.0 0.0 1.0 0.0 24.0 84.00 EUR 84.00 EUR 84.00 EUR"
    assert lines["(free)"] == "14.0 50.00 EUR 50.00 EUR"
    assert lines["TOTAL"].startswith("48.0") and lines["TOTAL"].endswith("168.00 EUR 97.00 EUR 118.00 EUR 50.00 EUR")
    assert "is 100.0 %: used 64.6, idle 4.2, starting 2.1, free 29.1." in found.stdout


def test_a_line_of_the_bill_is_traced_to_its_claims(cost) -> None:
    found = cost("--by", "gang,claim,day", "--where", "queue=ml", "-o", "json")
    (line,) = json.loads(found.stdout)["lines"]
    assert line["keys"] == {"namespace": "vision", "gang": "train", "claim": "a", "day": "2026-11-01"}
    assert line["cost"] == {
        "EUR": {"allocated": "34", "utilised": "13", "idle": "8", "lost": "0", "charged": "34", "uncharged": "0"}
    }


def test_the_examples_of_the_documentation_are_what_is_printed(cost) -> None:
    text = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()
    examples = re.findall(
        r"^\$ fairlead cost --window 2026-11-01..2026-11-02(.*)\n((?:.|\n)*?)^```$", text, re.MULTILINE
    )
    assert len(examples) == 2
    for arguments, printed in examples:
        assert cost(*arguments.split()).stdout == printed


def test_csv_has_every_line_and_no_cell_that_a_spreadsheet_runs(cost) -> None:
    LEDGERS["day"] = Ledger([interval(0, "used", at(0), at(24), claim=allocation("a", user='=HYPERLINK("x")'))])
    rows = list(csv.DictReader(io.StringIO(cost("--by", "user", "-o", "csv").stdout)))
    assert [(row["user"], row["charged"], row["currency"]) for row in rows] == [('\'=HYPERLINK("x")', "84", "EUR")]


def test_names_cannot_move_the_cursor(cost) -> None:
    LEDGERS["day"] = Ledger([interval(0, "used", at(0), at(24), claim=allocation("a", user="\x1b[2Jx"))])
    assert "\x1b[2J" not in cost("--by", "user").stdout


def test_focus_sums_to_the_json(cost) -> None:
    rows = list(csv.DictReader(io.StringIO(cost("-o", "focus", "--billing-account", "c1").stdout)))
    total = json.loads(cost("-o", "json").stdout)["total"]
    assert (total["charged"], total["uncharged"]) == ({"EUR": "118"}, {"EUR": "50"})
    for billed, to in ((118, {"holder", "queue"}), (50, {"none"})):
        assert sum(float(row["BilledCost"]) for row in rows if row["x_ChargedTo"] in to) == billed
    assert {row["BillingAccountId"] for row in rows} == {"c1"}


def test_a_ledger_that_knows_a_part_of_the_window_says_which(cost) -> None:
    found = cost(window="30d")
    assert found.exit_code == 0
    assert (
        "the ledger covers 2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z; the figures are of that part alone"
        in found.stderr
    )
    assert json.loads(cost("-o", "json", window="30d").stdout)["missing"]


@pytest.mark.parametrize(
    ("arguments", "window", "ledger", "message"),
    [
        ((), "2026-12-01..2026-12-02", "day", "begins in the future"),
        ((), "2026-11-02..2026-11-01", "day", "ends before it begins"),
        ((), "2026-11-01..2026-11-01", "day", "is empty"),
        ((), "0d", "day", "is empty"),
        ((), "lately", "day", "is no window: write 30d"),
        ((), "2026-13-01..2026-11-01", "day", "'2026-13-01' is no date or time"),
        ((), "2026-11-01T00:00:00..2026-11-02", "day", "has no zone"),
        ((), "2026-10-01..2026-10-02", "day", "has nothing of 2026-10-01"),
        ((), "30d", "empty", "holds nothing yet"),
        ((), "30d", "nowhere", "the ledger cannot be read: no ledger is at nowhere"),
        ((), "30d", "", "no ledger is named: write --ledger"),
        (("--by", "teem"), "30d", "day", "no such group"),
        (("--by", "label=team"), "30d", "day", "no claim of the window has that label; its claims have none"),
        (("--where", "label=team=x", "-o", "focus"), "30d", "day", "no claim of the window has that label"),
        (("--where", "queue"), "30d", "day", "write KEY=VALUE"),
        (("-o", "focus", "--by", "queue"), "30d", "day", "means nothing with -o focus"),
        (("-o", "focus", "--idle", "shared"), "30d", "day", "a FOCUS charge is a quantity times a unit price"),
        (("-o", "focus", "--billing-account", ""), "30d", "day", "--billing-account: is empty"),
    ],
)  # fmt: skip
def test_bad_questions_have_one_clear_error_each(cost, arguments, window, ledger, message) -> None:
    found = cost(*arguments, window=window, ledger=ledger)
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr
    assert "Traceback" not in found.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FLAVORS.replace(", currency: EUR}", "}"), "price[0].currency"),
        ("[a, b]", "no Kubernetes object"),
        ("kind: Queue\nmetadata: {name: a}", "holds no Flavor"),
        ("{", "cannot be read as YAML"),
    ],
)
def test_bad_prices_have_one_clear_error_each(cost, tmp_path, text, message) -> None:
    (tmp_path / "flavors.yaml").write_text(text)
    found = cost()
    assert found.exit_code == 2
    assert message in found.stderr
    assert "Traceback" not in found.output


def test_a_ledger_that_fails_while_it_is_read_is_one_clear_error(cost) -> None:
    class Failing(Ledger):
        def unit_days(self, since_us, until_us):
            raise LedgerError("day: the disk is gone")

    LEDGERS["day"] = Failing(DAY)
    found = cost()
    assert (found.exit_code, found.stdout, found.stderr) == (
        2,
        "",
        "the ledger cannot be read: day: the disk is gone\n",
    )


def test_an_inconsistent_ledger_makes_no_bill(cost) -> None:
    LEDGERS["day"] = Ledger([interval(0, "free", at(0), at(20)), interval(0, "free", at(21), at(24))])
    found = cost()
    assert (found.exit_code, found.stdout) == (2, "")
    assert "gpu-0 on 2026-11-01" in found.stderr


@pytest.fixture
def report(tmp_path: Path):
    flavors = tmp_path / "flavors.yaml"
    flavors.write_text(FLAVORS + "- kind: Queue\n  metadata: {name: ml}\n  spec: {waitTarget: 10m}\n")

    def run(*arguments: str, window: str = "2026-11-01..2026-11-02"):
        found = invoke(["report", "--window", window, "--flavors", str(flavors), "--ledger", "day", *arguments])
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
        return found

    return run


def test_a_report_is_text_json_or_a_page(report) -> None:
    wait = Wait(queue="ml", namespace="vision", gang="train", queued_us=at(0), admitted_us=at(1))
    LEDGERS["day"] = Ledger(DAY, waits=[wait])
    text = report().stdout
    assert re.search(r"^Utilisation of the fleet +58\.3 % +65 to 85 % +missed$", text, re.MULTILINE)
    assert [line.split() for line in text.splitlines() if line.startswith("ml ")] == [
        ["ml", "1", "60", "min", "60", "min", "10", "min", "missed"]
    ]
    found = json.loads(report("-o", "json").stdout)
    assert found["waits"] == [
        {"queue": "ml", "gangs": 1, "p50Seconds": 3600.0, "p95Seconds": 3600.0, "targetSeconds": 600.0, "met": False}
    ]
    assert found["deviceTime"]["cost"]["free"] == {"EUR": "50"}
    assert report("-o", "html").stdout.startswith("<!DOCTYPE html>")


def test_a_report_of_a_bad_window_is_one_clear_error(report) -> None:
    found = report(window="2026-11-02..2026-11-01")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "ends before it begins" in found.stderr
