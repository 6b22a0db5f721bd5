"""Steps of searches: what one search may use, and what the searches of one namespace may use in a decision.

A search that has to try every way can take a minute, and while it does nothing starts. So each search has a `StepBudget`, and all
searches made for gangs of one namespace draw on its `StepAccount`: what one namespace asks for delays the others by its share
at most, whatever it asks for. Counted, never measured in time: the same decision ends its searches at the same step everywhere.
A step is one device tried; what else costs as much is charged in steps, too. Devices that are found cost none.
Keeps: an account's part of the `StepPool` is left to it when others have emptied that.

Example: 100,000 steps a decision, 50,000 of them for one namespace, 2,000 in any case: two namespaces at their worst use all of
them, and a third one still has 2,000.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ATTEMPT_MIN = 2_000  # steps of one of several attempts, of those that the gang has
PART_MIN = 2_000  # steps that a namespace has when the others have used up the decision's


@dataclass(slots=True)
class StepPool:
    left: int


@dataclass(slots=True)
class StepAccount:
    """Steps of one namespace in one decision; without limits where none are given."""

    most: int | None = None
    pool: StepPool | None = None
    used: int = 0
    peak: int = 0  # the most that was ever used: devices that are found give their steps back

    def spend(self, steps: int) -> None:
        """A negative number undoes what was spent before."""
        self.used += steps
        self.peak = max(self.peak, self.used)
        if self.pool is not None:
            self.pool.left -= steps

    def exhausted(self) -> bool:
        if self.most is None or self.used <= min(PART_MIN, self.most):
            return False
        return self.used > self.most or (self.pool is not None and self.pool.left < 0)


@dataclass(slots=True)
class StepBudget:
    """Steps left, shared by all searches for one gang. `ended`: a search stopped for lack of them, and so proved nothing.

    `counts`: whether counting may prove what a long search would; not where somebody else is to follow that search.
    """

    steps: int
    ended: bool = False
    account: StepAccount = field(default_factory=StepAccount)
    counts: bool = True

    def spend(self, steps: int) -> bool:
        """Whether there were as many left."""
        account = self.account
        self.steps -= steps
        account.spend(steps)
        return self.steps >= 0 and not account.exhausted()

    def give_back(self, steps: int) -> None:
        """What was spent on a search that is made again."""
        self.steps += steps
        self.account.spend(-steps)

    @property
    def out(self) -> bool:
        return self.steps < 0 or self.account.exhausted()

    @property
    def starved(self) -> bool:
        """Whether it was the account that ended it: the same search for a gang of another namespace may end otherwise."""
        return self.ended and self.account.exhausted()

    def attempt(self) -> StepBudget:
        """The budget of one of several attempts: a long one must not use up the steps of the next."""
        return self.part(max(self.steps // 4, min(self.steps, ATTEMPT_MIN)))

    def part(self, steps: int) -> StepBudget:
        """The budget of a search that has a limit of its own, on the same account."""
        return StepBudget(steps, account=self.account, counts=self.counts)


class StepAccounts:
    """The steps that the searches of one decision may take. `payer` is the account of the namespace whose gang is being decided on; at first it has no limits."""

    def __init__(self, *, each: int, together: int | None) -> None:
        """`each`: steps of a namespace. `together`: of all; None: no such limit."""
        self._each = each
        self._pool = None if together is None else StepPool(together)
        self._accounts: dict[str, StepAccount] = {}
        self.payer = StepAccount()

    def of(self, namespace: str) -> StepAccount:
        known = self._accounts.get(namespace)
        if known is None:
            known = self._accounts[namespace] = StepAccount(self._each, self._pool)
        return known

    def charge(self, namespace: str) -> StepAccount:
        """What is searched for from now on is for this namespace."""
        self.payer = self.of(namespace)
        return self.payer

    def budget(self, steps: int) -> StepBudget:
        return StepBudget(steps, account=self.payer)
