"""traceparent as W3C Trace Context defines it, and the identity of a gang's trace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names, trace_context
from fairlead.api.trace_context import TraceContext, TraceContextError

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"
LATER = f"cc-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (VALID, True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),  # flags that have no meaning yet are ignored
        (f"00-{TRACE}-{SPAN}-fe", False),
        (LATER, True),
        (f"{LATER}-what-the-future-will-be-like", True),
        (f"{LATER}-", True),
    ],
)
def test_a_traceparent_is_read(text, sampled):
    assert trace_context.parse(text) == TraceContext(int(TRACE, 16), int(SPAN, 16), sampled)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "write 00-"),
        ("00", "write 00-"),
        (VALID.upper(), "lower case"),
        (VALID.replace("-", "_"), "write 00-"),
        (f" {VALID}", "write 00-"),
        (f"{VALID} ", "version 00 ends after its flags"),
        (f"{VALID}\n", "version 00 ends after its flags"),
        (f"{VALID}-00", "version 00 ends after its flags"),
        (f"{LATER}.x", "version cc ends after its flags"),
        (f"{LATER}x", "version cc ends after its flags"),
        (f"ff-{TRACE}-{SPAN}-01", "there is no version ff"),
        (f"00-{'0' * 32}-{SPAN}-01", "may not be 0"),
        (f"00-{TRACE}-{'0' * 16}-01", "may not be 0"),
        (f"00-{TRACE}-{SPAN}-1", "write 00-"),
        (f"00-{TRACE[1:]}-{SPAN}-01", "write 00-"),
        (f"00-{TRACE[1:]}٠-{SPAN}-01", "write 00-"),
        ("x" * 250_000, "x…' is no traceparent"),
    ],
)
def test_what_is_no_traceparent_is_refused_with_the_reason(text, why):
    with pytest.raises(TraceContextError) as raised:
        trace_context.parse(text)
    assert why in str(raised.value)
    assert len(str(raised.value)) < 300
    assert trace_context.of({names.TRACEPARENT: text}) is None


@given(st.lists(st.text()), st.floats(0, 1))
def test_what_begins_here_is_valid_the_same_each_time_and_known_as_such(of, ratio):
    begun = trace_context.begin(*of, ratio=ratio)
    assert begun == trace_context.begin(*of, ratio=ratio)
    assert trace_context.parse(str(begun)) == begun
    assert begun.begun_here
    assert not begun.span("x").begun_here
    assert begun.span("x") == begun.span("x") != begun.span("y")


def test_the_ratio_is_that_of_many_traces_and_a_larger_one_holds_those_of_a_smaller():
    def sampled(ratio):
        return {number for number in range(2_000) if trace_context.begin("ns", str(number), ratio=ratio).sampled}

    assert sampled(0) == set()
    assert len(sampled(1)) == 2_000
    assert 400 < len(sampled(0.25)) < 600
    assert sampled(0.25) < sampled(0.5)
