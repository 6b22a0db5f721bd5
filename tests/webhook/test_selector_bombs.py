"""A tenant's selectors hold the webhook's loop for less than 50 ms, and leave less than 5 MiB behind, whatever they hold."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from fairlead import cel
from fairlead.api import names
from fairlead.cel.devices.selector import (
    OBJECT_BYTES_MAX,
    PROGRAMS_BYTES_MAX,
    TOKENS_MAX,
    compile_selector,
    load_fault,
    programs,
)
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.facts import Template
from fairlead.webhook.review.verdict import Verdict
from fairlead.webhook.serve.limits import BURST, RATE, CompileTokens
from tests.support import cpu
from tests.support.webhook import facts, review
from tests.webhook.test_claims import Json, claim, request

pytestmark = pytest.mark.slow

BOUND_S = 0.05


def late(levels: int) -> str:
    """Types that are known late and grow in each other."""
    text = "true"
    for level in range(levels, 0, -1):
        text = f"cel.bind(m{level}, {{}}, (m{level - 1} == {{m{level}: m{level}}}) || {text})"
    return f"cel.bind(m0, {{}}, {text})"


BOMBS: dict[str, Callable[[int], str]] = {
    "comparisons": lambda n: "||".join(f"{j % 10}<{n % 97 + j % 7}" for j in range(1500)),
    "names": lambda n: "&&".join(f'device.driver!="{n}{j}"' for j in range(400)),
    "list": lambda n: f"[{n}" + ",1" * 4800 + "]==[]",
    "loops": lambda n: "&&".join(f"[{n}].all(x,x>{j})" for j in range(450)),
    "sums": lambda n: f"{n}==0||" + "+".join(["[1][0]"] * 240) + "==0",
    "undeclared": lambda n: "&&".join(f"devic{n}x{j}.y" for j in range(700)),
    "unicode classes": lambda n: f"device.driver.matches('(?i){n}" + "\\\\pL" * 240 + "')",
    "wide pattern": lambda n: "&&".join(f"device.driver.matches('[\\\\pL]{{{j + 1}}}{n}')" for j in range(150)),
    "escaped pattern": lambda n: f"device.driver.matches('(?i){n}" + "\\x5cpL" * 1000 + "')",
    "brackets": lambda n: "!!" * 4900 + f"({n}==1)",
    "maps": lambda n: f"{n}=={n}||" + "optional.of(1)" + ".optMap(x,x)" * 200 + ".hasValue()",
    "late types": lambda n: f"{n}==1||" + late(70),
}


@pytest.mark.parametrize(
    "text",
    ["||".join(f"{j % 10}<{j % 7}" for j in range(370)), "1==1||" + "+".join(["[1][0]"] * 200) + "==3", "&&".join(f"[{j}].all(x,x>0)" for j in range(110))],
)  # fmt: skip
def test_the_largest_object_that_is_accepted_is_cheap(text: str) -> None:
    reviewed, known = review(claim(request(names.GPU_CLASS, text))), facts()
    programs.clear()
    assert dispatch.validate(reviewed, known).allowed
    programs.clear()
    with cpu.at_most(BOUND_S * 2):
        dispatch.validate(reviewed, known)
    assert programs.bytes < 5 * 2**20


def test_what_is_too_large_is_refused_with_field_value_limit_and_next_step() -> None:
    texts = [f"device.driver == 'x{n}' || [1,2,3,4,5,6,7,8,9,10,11,12] == [{n}]" for n in range(64)]
    body = claim(request(names.GPU_CLASS, *texts[:32]), request(names.GPU_CLASS, *texts[32:], name="other"))
    message = dispatch.validate(review(body), facts()).message
    assert "ml/c" in message
    assert f"spec.devices.requests: the distinct selectors have more than {TOKENS_MAX} tokens together" in message
    assert "write shorter or fewer selectors" in message
    large = [f"device.driver == '{n}{'x' * 9000}'" for n in range(8)]
    assert f"more than {OBJECT_BYTES_MAX} bytes" in str(load_fault(large))


def test_a_pod_that_names_a_stored_bomb_is_refused_without_compiling_it() -> None:
    from fairlead.kube import nulls
    from fairlead.kube.resource import ResourceClaimSpec

    texts = [BOMBS["comparisons"](n) for n in range(128)]
    requests = [request(names.GPU_CLASS, *texts[index : index + 32], name=f"r{index}") for index in range(0, 128, 32)]
    spec = nulls.convert(claim(*requests)["spec"], ResourceClaimSpec)
    pod: Json = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": [], "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]},
    }
    known = facts(templates={("ml", "t"): Template("u1", spec)})
    begin = len(programs)
    verdict: Verdict = dispatch.mutate(review(pod), known)
    assert not verdict.allowed
    assert "tokens" in verdict.message and "ml/t" in verdict.message
    assert len(programs) == begin


def test_the_cache_is_bounded_in_bytes_and_evicts_the_largest_owner_first() -> None:
    programs.clear()
    with cel.allowance("quiet"):
        compile_selector("device.driver == 'quiet'")
    filler = "||".join(["1<2"] * 250)
    for n in range(PROGRAMS_BYTES_MAX // (640 * 1000) + 40):
        with cel.allowance("greedy"):
            compile_selector(f"{n}<3||{filler}")
    assert programs.bytes <= PROGRAMS_BYTES_MAX
    assert programs.get("device.driver == 'quiet'") is not None
    programs.clear()


def test_the_estimate_of_a_program_is_no_less_than_what_it_takes() -> None:
    for text in (
        "||".join(f"{j % 10}<{j % 7}" for j in range(370)),
        "1==1||" + "+".join(["[1][0]"] * 200) + "==3",
        "true",
    ):
        programs.clear()
        gc.collect()
        tracemalloc.start()
        compile_selector(text).reads  # noqa: B018
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < programs.bytes * 1.1 + 64 * 1024


def test_a_namespace_compiles_so_much_at_once_and_a_second() -> None:
    now = [0.0]
    tokens = CompileTokens(lambda: now[0])
    tokens.spent("greedy", BURST)
    assert tokens.allowed("greedy") == 0
    assert tokens.allowed("quiet") == BURST
    now[0] += 1
    assert tokens.allowed("greedy") == RATE
    now[0] += 1000
    assert tokens.allowed("greedy") == BURST


def test_a_review_without_allowance_is_refused_and_nothing_of_it_is_remembered() -> None:
    text = "device.driver == 'never compiled before'"
    reviewed = review(claim(request(names.GPU_CLASS, text)))
    with cel.allowance("ml", tokens=2):
        verdict = dispatch.validate(reviewed, facts())
    assert (verdict.allowed, verdict.code, verdict.cause) == (False, 429, "allowance")
    assert "try again in some seconds" in verdict.message
    assert dispatch.validate(reviewed, facts()).allowed


def test_one_evaluation_is_bounded_by_steps_not_by_the_apis_million() -> None:
    from fairlead.cel.device import FREE

    text = "[1,2,3,4,5,6,7,8,9,10]"
    body = f"{text}.all(a,{text}.all(b,{text}.all(c,{text}.all(d,a+b+c+d>0))))"
    with cpu.at_most(1.0), pytest.raises(cel.EvaluationError, match="cost limit"):
        compile_selector(body).evaluate(FREE)
