"""What use costs: bills, reports and exports, as pure functions of what a ledger holds and of a price book.

Every amount of money is an exact fraction until it is printed; currencies are never added to one another.
"""
