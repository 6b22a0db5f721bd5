"""`fairlead cost`: reads prices and the ledger, makes the bill, prints it."""

from __future__ import annotations

import sys

from fairlead.cli.cost import reading, table
from fairlead.cli.cost.commands import Cost
from fairlead.cli.printer import say
from fairlead.cli.views import printing
from fairlead.history.cost import bill, focus, window, written
from fairlead.history.cost.window import CostError
from fairlead.history.prices import PriceBook


def run(question: Cost) -> int:
    """The exit code."""
    try:
        if question.output == "focus" and question.by:
            raise CostError(
                "--by: means nothing with -o focus, which has a row per claim, device and day: leave it out"
            )
        asked = bill.Asked(
            by=window.parse_by(question.by or ("queue",)),
            where=window.parse_where(question.where),
            basis=question.basis,
            idle=question.idle,
        )
        span = window.parse(question.window, reading.now_s())
        with reading.opened(question.ledger) as reader:
            known = window.known_part(span, reader.known())
            code, settings = reading.settings(question.flavors, question.kubeconfig, question.context)
            if settings is None:
                return code
            book = PriceBook.of(settings.flavors)
            if known.missing:
                say(known.missing, file=sys.stderr)
            if question.output == "focus":
                units = focus.pricing_units(settings.flavors)
                for line in focus.lines(reader, book, asked, known, account=question.billing_account, units=units):
                    say(line, end="")
                return 0
            made = bill.make(reader, book, asked, known)
    except CostError as error:
        say(error, file=sys.stderr)
        return 2
    if question.output == "json":
        printing.structured(written.bill_json(made), question.output)
    elif question.output == "csv":
        say(written.bill_csv(made), end="")
    else:
        table.show(made)
    return 0
