"""Changes of bytes and of texts: flips, cuts, splices, repetitions, and words that a parser knows, or stumbles over."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.fuzz.target import Mutate

NUMBERS = (
    b"0", b"-0", b"-1", b"1", b"2", b"255", b"256", b"65536", b"2147483647", b"2147483648", b"-2147483649", b"4294967296",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"0.1", b"1e3",
    b"1E400", b"1e-400", b"1e999999999", b"9" * 40, b"9" * 400, b"9" * 5000, b"0x1f", b"1_000", b"+1", b"01", b"NaN",
    b"Infinity", b"-Infinity", b".5", b"5.", "\u00b2".encode(), "\u0663".encode(), "\uff11".encode(),
)  # fmt: skip
"""Digits of other scripts, too: `isdigit` takes those that `int` does not."""
ODD = (
    b"", b" ", b"\x00", b"\n", b"\r\n", b"\t", b"\\", b'"', b"'", b"/", b"..", b"../../../etc/passwd", b"%00", b"%s", b"{}",
    b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xef\xbb\xbf", "é".encode(), "\u2028".encode(), "\u202e".encode(),
    "\u0130".encode(), "\U0001d7d8".encode(), b"a" * 300, b"null", b"true", b"false", b"[]", b"~", b"-", b"\x1b[31m",
)  # fmt: skip


def byte_mutations(words: Sequence[bytes] = (), *, most: int = 4) -> Mutate:
    """Up to `most` changes at once; `words` are of the parser's language."""
    vocabulary = (*words, *words, *words, *NUMBERS, *ODD)

    def mutate(random: Random, known: bytes, other: bytes) -> bytes:
        made = bytearray(known)
        for _ in range(1 + random.randrange(most)):
            _change(random, made, other, vocabulary)
        return bytes(made)

    return mutate


def _change(random: Random, made: bytearray, other: bytes, vocabulary: Sequence[bytes]) -> None:
    at = random.randrange(len(made) + 1)
    end = min(len(made), at + random.choice((1, 1, 2, 4, 8, 32, 200)))
    match random.randrange(10):
        case 0 if made:
            made[at % len(made)] ^= 1 << random.randrange(8)
        case 1 if made:
            made[at % len(made)] = random.randrange(256)
        case 2:
            del made[at:end]
        case 3:
            made[at:at] = made[at:end] * random.choice((1, 1, 2, 3, 16, 300))
        case 4 if other:
            start = random.randrange(len(other))
            made[at:at] = other[start : start + random.choice((1, 4, 16, 64, 256))]
        case 5 if other:
            del made[at:]
            made += other[random.randrange(len(other)) :]
        case 6:
            made[at:end] = random.choice(vocabulary)
        case 7 if made:
            del made[at:]
        case _:
            made[at:at] = random.choice(vocabulary)


def mixed(*parts: tuple[int, Mutate]) -> Mutate:
    """One of several ways, each as often as its weight."""
    ways = [way for weight, way in parts for _ in range(weight)]

    def mutate(random: Random, known: bytes, other: bytes) -> bytes:
        return random.choice(ways)(random, known, other)

    return mutate
