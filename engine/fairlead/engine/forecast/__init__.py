"""When gangs will start: `decide`, run forward over drawn run times on a private copy of the tables.

`forecast.forecast(...)` gives quantiles of the start of every gang that waits; `what_if.compare(...)` one run before and one
after a change. A forecast is no promise: run times are drawn, and what has not been submitted yet is not in it.
"""
