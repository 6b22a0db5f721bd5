"""Fuzzing of every parser that takes bytes from others: `make fuzz MINUTES=5`, `python -m tests.fuzz --help`.

A target is a function of bytes that may raise only the errors that its parser declares (`targets/`). `run` feeds it mutated inputs
and judges each: no other exception, no second of work, no memory that stays. `mutations` and `json_mutations` make inputs out of
small valid ones, `guide` keeps those that reach new lines. One seed gives one series of inputs.
"""
