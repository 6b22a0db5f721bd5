"""Which release admits which functions, in new expressions and in stored ones."""

import pytest

from fairlead.cel import ADMISSION, DEVICE, RULE, CompileError, compile, environments  # noqa: A004
from fairlead.cel.kubernetes import NEW_DEVICE, known_to_new
from fairlead.kube.releases import NEWEST_TRIED, TRIED

LISTS = (
    "[[1]].flatten() == [1]",
    "[[1]].flatten(1) == [1]",
    "[2, 1].sort() == [1, 2]",
    "[2, 1].sortBy(x, -x) == [2, 1]",
    "[1, 1].distinct() == [1]",
    "[1, 2].reverse() == [2, 1]",
    "[1, 2].slice(0, 1) == [1]",
    "lists.range(2) == [0, 1]",
)
OLDER = (
    "[1].all(i, v, v > 0)",
    "{1: 2}.transformMap(k, v, v)[1] == 2",
    "semver('v1.0', true).major() == 1",
    "quantity('1Gi').isInteger()",
    "format.named('uuid').hasValue()",
    "'a,b'.split(',').join('-') == 'a-b'",
    "'%s'.format(['a']) == 'a'",
    "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.0.0.1')",
    "sets.contains([1, 2], [1])",
    "optional.of(1).orValue(2) == 1",
    "[1, 2].sum() == 3 && [1, 2].isSorted()",
    "'a'.matches('a') && 'abc'.find('b') == 'b'",
)
SHARED = "device.allowMultipleAllocations"
INCLUDES = "device.attributes['a.example'].x.includes('y')"


@pytest.mark.parametrize("text", LISTS)
def test_the_list_library_is_for_stored_expressions_in_1_34_and_for_new_ones_after_it(text: str) -> None:
    of_134, of_135 = environments((1, 34)), environments((1, 35))
    for environment in (of_134.new_admission, of_134.new_rule, of_134.new_device):
        with pytest.raises(CompileError, match="undeclared reference to"):
            compile(text, environment)
    for environment in (of_134.admission, of_134.rule, of_134.device, of_135.new_admission, of_135.new_rule):
        assert compile(text, environment).evaluate({}) is True


def test_the_refusal_of_1_34_names_the_function_as_the_real_apiserver_does() -> None:
    with pytest.raises(CompileError, match=r"undeclared reference to 'flatten' \(in container ''\)"):
        compile("[[1]].flatten()", environments((1, 34)).new_admission)


@pytest.mark.parametrize("text", OLDER)
@pytest.mark.parametrize("release", TRIED)
def test_what_1_33_had_every_release_admits(release: tuple[int, int], text: str) -> None:
    of = environments(release)
    for environment in (of.new_admission, of.new_rule, of.new_device, of.admission, of.rule, of.device):
        assert compile(text, environment).evaluate({}) is True


def test_new_selectors_read_allow_multiple_allocations_once_its_gate_is_on() -> None:
    for release in ((1, 34), (1, 35)):
        with pytest.raises(CompileError, match="undefined field 'allowMultipleAllocations'"):
            compile(SHARED, environments(release).new_device)
        assert compile(SHARED, environments(release).device)
    assert compile(SHARED, environments((1, 36)).new_device)


def test_includes_is_of_1_36_and_for_stored_selectors() -> None:
    for environment in (*(environments(release).new_device for release in TRIED), environments((1, 35)).device):
        with pytest.raises(CompileError, match="undeclared reference to 'includes'"):
            compile(INCLUDES, environment)
    assert compile(INCLUDES, environments((1, 36)).device)


def test_the_constants_are_those_of_the_newest_release() -> None:
    newest = environments(NEWEST_TRIED)
    assert (newest.admission, newest.rule, newest.device, newest.new_device) == (ADMISSION, RULE, DEVICE, NEW_DEVICE)


def test_new_expressions_know_one_release_less() -> None:
    assert known_to_new((1, 34)) == (1, 33)
