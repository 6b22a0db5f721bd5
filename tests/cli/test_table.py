"""Tables at every width: figures stay, names give way, and what has no room is named."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli.printer import Cell, Column, fit, shortened
from fairlead.cli.views import gangs, queues

NAME = Column(title="QUEUE", least=8, most=30)
FIGURE = Column(title="USED", right=True)
EXTRA = Column(title="PAST", right=True, dispensable=1)
WHY = Column(title="WHY", least=10, sentence=True)
COLUMNS = (NAME, FIGURE, EXTRA, WHY)


def text(fitted):
    return ["  ".join(cell.text for cell in line).rstrip() for line in fitted.lines]


def row(*words):
    return [Cell(word) for word in words]


def test_without_a_width_nothing_is_shortened():
    long = "n" * 253
    assert text(fit(COLUMNS, [row(long, "8", "0.1", "because " * 50)], None))[1].startswith(
        f"{long}     8   0.1  because"
    )


def test_a_long_name_gives_way_to_figures_and_keeps_both_ends():
    fitted = fit((NAME, FIGURE), [row("team-" + "x" * 60 + "-blue", "8"), row("b", "16")], 24)
    assert text(fitted) == ["QUEUE               USED", "team-xxxxxxx…-blue     8", "b                     16"]


def test_columns_that_can_be_missed_go_before_figures_do_and_are_named():
    wide, narrow = (fit(COLUMNS, [row("name", "8", "0.1", "because it is so")], width) for width in (80, 24))
    assert wide.missing == ()
    assert narrow.missing == ("PAST",)
    assert text(narrow)[1] == "name      8  because it…"


def test_a_sentence_loses_its_end_and_a_name_its_middle():
    assert shortened("because it is so", 10, sentence=True) == "because i…"
    assert shortened("gang-0001-of-many", 10) == "gang-0…any"
    assert shortened("short", 10) == "short"


@given(
    st.lists(st.tuples(*[st.text("abc ", max_size=300)] * len(gangs.COLUMNS)), max_size=5),
    st.integers(min_value=100, max_value=400),
)
def test_no_line_is_wider_than_the_terminal(words, width):
    for columns in (gangs.COLUMNS, queues.COLUMNS):
        short = [  # what cannot be shortened is a figure or a word of ours
            row(*(word if column.least else word[:7] for column, word in zip(columns, (*each, "1"), strict=False)))
            for each in words
        ]
        assert all(len(line) <= width for line in text(fit(columns, short, width)))
