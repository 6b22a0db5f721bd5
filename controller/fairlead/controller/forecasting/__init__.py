"""Forecasts of starts, beside the loop: a forked process simulates, the loop only takes a snapshot and reads the result.

`Forecaster.run` is the one entrance. It never delays a decision: it forks between two of them, and the child computes at the lowest
priority. History of run times and of the forecasts' errors is kept in one ConfigMap.
"""
