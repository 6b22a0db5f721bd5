"""Thirty simulated days with restarts, through the store: what `fairlead cost` reads is the exact integral."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from fairlead.history.ledger.account import Account
from fairlead.history.ledger.entries import HELD, WHOLE_PPM, Observation
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.ledger.store.writer import Writer, open_writer
from fairlead.kube.timestamps import DAY_US

from .test_account import T0, Ledger, at, play_month

pytestmark = pytest.mark.slow


class Stored(Ledger):
    """Written by one writer after the other, each of which knows nothing but what is stored."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.writer: Writer | None = None

    def begin(self, now_s: float, *, sole: bool = True, ends: Any = None, **what: object) -> None:
        if self.writer is not None:
            self.writer.close()
        self.writer = open_writer(self.where, writer="leader")
        self.account = Account(self.writer.kept())
        self.account.resume(Observation(now_us=at(now_s), **what), sole=sole)  # type: ignore[arg-type]
        self._write()

    def _write(self) -> None:
        assert self.writer is not None
        self.writer.commit(self.account.take())


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_read_of_a_month_is_the_exact_integral(seed: int, where: str):
    ledger = Stored(where)
    truth_us, hidden = play_month(ledger, seed)
    assert ledger.writer is not None
    ledger.writer.close()
    with closing(open_reader(where)) as reader:
        assert list(reader.broken_days(0, T0 + 100 * DAY_US)) == []
        told_us, sums_us = Counter[str](), Counter[str]()
        for each in reader.held(0, T0 + 100 * DAY_US):
            told_us[each.allocation.claim_uid] += sum(time_us for _, time_us in each.times_us)
        for one in reader.sums(0, T0 + 100 * DAY_US, ("claim",)):
            if one.bucket in HELD:
                sums_us[one.keys[0]] += one.time_us
        whole_us = sum(one.time_us * one.measure.share_ppm for one in reader.sums(0, T0 + 100 * DAY_US, ()))
        known = reader.known()
    assert {uid: told_us[uid] for uid in truth_us} == truth_us
    assert {uid: sums_us[uid] for uid in truth_us} == truth_us
    assert hidden, "some ended while nobody looked"
    assert known is not None
    assert whole_us == 4 * (known[1] - known[0]) * WHOLE_PPM, "four GPUs, each second of each once"
