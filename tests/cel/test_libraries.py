"""Strings, lists, sets, time, quantities, versions, networks, URLs and formats, by example."""

from typing import Any

import pytest

from fairlead.cel import CompileError, EvaluationError, compile  # noqa: A004
from fairlead.cel.kubernetes import BASE


def value_of(text: str) -> Any:
    return compile(text, BASE).evaluate({})


@pytest.mark.parametrize(
    "text",
    [
        # strings
        "'tacocat'.charAt(3) == 'o'", "'abc'.charAt(3) == ''", "'tacocat'.indexOf('ac') == 1", "'hello'.indexOf('') == 0",
        "'hello mellow'.indexOf('ello', 2) == 7", "'hello'.indexOf('jello') == -1", "'hello mellow'.lastIndexOf('ello') == 7",
        "'hello mellow'.lastIndexOf('ello', 6) == 1", "['a', 'b'].join('-') == 'a-b'", "['a', 'b'].join() == 'ab'",
        "'TacoCÆt'.lowerAscii() == 'tacocÆt'", "'tacoCæt'.upperAscii() == 'TACOCæT'", "'hello'.replace('l', 'L') == 'heLLo'",
        "'hello'.replace('l', 'L', 1) == 'heLlo'", "'hello'.replace('l', 'L', 0) == 'hello'", "'ab'.replace('', '-') == '-a-b-'",
        "'a b c'.split(' ') == ['a', 'b', 'c']", "'a b c'.split(' ', 2) == ['a', 'b c']", "'abc'.split('') == ['a', 'b', 'c']",
        "'a b'.split(' ', 0) == []", "'abc'.split('', 2) == ['a', 'bc']", "'tacocat'.substring(4) == 'cat'", "'tacocat'.substring(0, 4) == 'taco'",
        "' \\ttrim\\n'.trim() == 'trim'", "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
        "'%s %d %.2f %x %X %o %b %%'.format(['a', 1, 2.345, 255, 255, 8, 5]) == 'a 1 2.35 ff FF 10 101 %'",
        "'%f'.format([1234567.5]) == '1,234,567.500000'", "'%e'.format([1052.032911275]) == '1.052033\\u202f×\\u202f10⁰³'",
        "'%s'.format([[1, 'a', 2.5, null]]) == '[1, \"a\", 2.500000, null]'", "'%s'.format([{'a': 1}]) == '{\"a\":1}'", "'%s'.format([duration('1h')]) == '3600s'",
        "'%s'.format([2.5]) == '2.5'", "'%s'.format([[duration('1h')]]) == '[duration(\"3600s\")]'",
        # regex
        "'abc-123'.find('[0-9]+') == '123'", "'abc'.find('[0-9]+') == ''", "'1 22 3'.findAll('[0-9]+') == ['1', '22', '3']",
        "'1 22 3'.findAll('[0-9]+', 2) == ['1', '22']", "'abc'.matches('^a.c$')", "matches('abc', 'b')", "!'abc'.matches('^b')",
        # lists and sets
        "[1, 2, 2].distinct() == [1, 2]", "lists.range(3) == [0, 1, 2]", "[1, 2].reverse() == [2, 1]", "[1, 2, 3].slice(1, 3) == [2, 3]",
        "[[1], [2, 3]].flatten() == [1, 2, 3]", "[[[1]], [[2]]].flatten(2) == [1, 2]", "['b', 'a'].sort() == ['a', 'b']",
        "[1, 2].isSorted()", "[1, 2].sum() == 3", "[1.5, 2.5].sum() == 4.0", "[duration('1s'), duration('2s')].sum() == duration('3s')",
        "[3, 1].max() == 3", "[1, 2, 1].indexOf(1) == 0", "[1, 2, 1].lastIndexOf(1) == 2", "[1, 2].indexOf(3) == -1",
        "sets.contains([1, 2], [2])", "sets.equivalent([1, 2], [2, 1, 1])", "sets.intersects([1, 2], [2, 3])", "!sets.contains([1], [2])",
        # time
        "timestamp('2026-02-03T04:05:06.789Z').getMilliseconds() == 789", "timestamp('2026-02-03T04:05:06Z').getMonth() == 1",
        "timestamp('2026-02-03T04:05:06Z').getDayOfWeek() == 2", "timestamp('2026-02-03T04:05:06Z').getDayOfYear() == 33",
        "timestamp('2026-02-03T04:05:06Z').getDate() == 3", "timestamp('2026-02-03T04:05:06Z').getDayOfMonth() == 2",
        "timestamp('2026-02-03T23:05:06Z').getHours('+02:00') == 1", "timestamp('2026-07-03T00:00:00Z').getHours('Europe/Berlin') == 2",
        "timestamp('2026-01-01T00:00:00Z') + duration('1h') == timestamp('2026-01-01T01:00:00Z')",
        "timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')", "duration('1h30m').getMinutes() == 90",
        "string(timestamp('2026-01-01T00:00:00.120Z')) == '2026-01-01T00:00:00.12Z'", "string(duration('-1.5s')) == '-1.5s'",
        "duration('1ms') < duration('1s')", "timestamp('2026-01-01T01:00:00+01:00') == timestamp('2026-01-01T00:00:00Z')",
        # quantities and versions
        "quantity('1Gi').isGreaterThan(quantity('1G'))", "quantity('1Gi').compareTo(quantity('1024Mi')) == 0", "quantity('1k').asInteger() == 1000",
        "sign(quantity('-1')) == -1", "quantity('1').add(2).sub(quantity('1')).asInteger() == 2", "quantity('500m').asApproximateFloat() == 0.5",
        "!quantity('1.5Gi').isInteger()", "isQuantity('1Gi') && !isQuantity('1gi')", "quantity('1Gi') == quantity('1073741824')",
        "semver('1.2.3').minor() == 2", "semver('1.2.3-rc.1').isLessThan(semver('1.2.3'))", "isSemver('v1.0', true) && !isSemver('v1.0')",
        # networks and URLs
        "ip('::1').family() == 6", "ip('127.0.0.1').isLoopback()", "ip('169.254.1.1').isLinkLocalUnicast()", "ip('224.0.0.1').isLinkLocalMulticast()",
        "ip('8.8.8.8').isGlobalUnicast()", "ip('0.0.0.0').isUnspecified()", "!isIP('1.2.3')", "!isIP('::ffff:1.2.3.4')", "!isIP('fe80::1%eth0')",
        "ip.isCanonical('::1') && !ip.isCanonical('0::1')", "string(ip('::1')) == '::1'", "ip('1.1.1.1') == ip('1.1.1.1')", "type(ip('1.1.1.1')) == net.IP",
        "cidr('10.0.0.0/8').containsIP(ip('10.1.2.3'))", "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", "!cidr('10.0.0.0/16').containsCIDR('10.0.0.0/8')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')", "cidr('10.1.2.3/8').ip() == ip('10.1.2.3')", "cidr('10.0.0.0/8').prefixLength() == 8",
        "!isCIDR('10.0.0.0/08')", "!isCIDR('10.0.0.0')", "string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
        "url('https://u@example.com:80/a%20b?x=1&x=2#f').getHost() == 'example.com:80'", "url('https://[::1]:80/p').getHostname() == '::1'",
        "url('https://example.com:80/').getPort() == '80'", "url('/path').getEscapedPath() == '/path'", "url('https://e.com/?k=v').getQuery() == {'k': ['v']}",
        "url('https://e.com').getScheme() == 'https'", "!isURL('../relative')", "!isURL('')", "isURL('https://example.com/')",
        # formats
        "!format.dns1123Label().validate('my-name').hasValue()", "format.dns1123Label().validate('-x').hasValue()",
        "format.named('uuid').value().validate('nope').hasValue()", "!format.named('none').hasValue()", "!format.date().validate('2026-02-28').hasValue()",
        "format.date().validate('2026-02-30').hasValue()", "!format.byte().validate('aGVsbG8=').hasValue()", "!format.qualifiedName().validate('a.b/c').hasValue()",
        "!format.labelValue().validate('').hasValue()", "!format.dns1123SubdomainPrefix().validate('a.b-').hasValue()",
        "!format.datetime().validate('2026-01-01T00:00:00Z').hasValue()",
    ],
)  # fmt: skip
def test_it_is_true(text: str) -> None:
    assert value_of(text) is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("'abc'.charAt(-1)", "out of range"), ("'abc'.substring(4)", "out of range"), ("'abc'.substring(2, 1)", "invalid substring range"),
        ("'abc'.lastIndexOf('a', 3)", "out of range"), ("[].min()", "empty list"), ("[1, 2].slice(1, 3)", "length 2"),
        ("lists.range(-1)", "size"), ("quantity('x')", "quantity"), ("semver('1.0')", "major.minor.patch"), ("ip('1.2.3')", "parse error"),
        ("cidr('1.2.3.4')", "parse error"), ("url('nope')", "parse"), ("quantity('1.5').asInteger()", "integer"),
        ("timestamp('2026-01-01T00:00:00Z').getHours('Nowhere/Land')", "time zone"), ("dyn(semver('1.0.0')) == '1.0.0'", "no such overload"),
    ],
)  # fmt: skip
def test_it_fails_when_it_runs(text: str, reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        value_of(text)


@pytest.mark.parametrize(
    "text",
    ["'a'.matches('[')", "'a'.find('(')", "timestamp('yesterday')", "duration('1 hour')", "int('x')", "'%d'.format(['a'])", "'%d'.format([1.5])", "'%f'.format([1])", "'%s'.format([])",
     "'%q'.format([1])", "[1, 'a']", "{'a': 1, 'b': 'c'}", "'abc'.reverse()", "math.abs(1)", "quantity('1') > quantity('2')"],
)  # fmt: skip
def test_it_is_refused_before_it_runs(text: str) -> None:
    with pytest.raises(CompileError):
        compile(text, BASE)
