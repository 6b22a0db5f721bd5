"""Certificates that gangs cannot start: those of random clusters verify, false ones do not, and each kind says what it should."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead.api import certificate as form
from fairlead.api import names
from fairlead.engine.prove.prover import Prover
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.evidence.document import Facts
from fairlead.evidence.snapshot_file import read
from fairlead.history.facts.snapshot_file import dump
from fairlead.verify.check import RefusedError, check
from fairlead.verify.search import UnprovenError
from tests.support.decisions_clusters import KINDS, Life
from tests.support.engine.evidence import facts_of_world
from tests.support.engine.examples import examples
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.proofs import certificates, random_certificates
from tests.support.engine.tampering import tampered
from tests.support.engine.world import World, h100_world

CASES_SLOW = int(os.environ.get("CERTIFICATES", "150"))
"""`make proofs` tries 10,000."""
TAMPERED_EACH = 2
ISLAND = "gpu.fairlead.dev/nvlinkDomain"
ANY = (FlavorSpec(name="any", device_selector="true"),)


def verdict(certificate: form.Certificate, facts: Facts) -> str:
    try:
        check(certificate, facts)
    except UnprovenError:
        return "unproven"
    return "verified"


def is_refused(false: Any, facts: Facts) -> bool:
    try:
        check(msgspec.convert(false, form.Certificate), facts)
    except (RefusedError, msgspec.ValidationError):
        return True
    return False


def try_random(seeds: range, most: int, each: int) -> Counter[str]:
    """Check certificates of these clusters, up to `most`, and `each` false versions of every one that proves something."""
    found: Counter[str] = Counter()
    for seed in seeds:
        random = Random(seed)
        for certificate, facts, reason in random_certificates(seed):
            where = f"seed {seed}, {certificate.gang}: {reason.code}"
            try:
                found[verdict(certificate, facts)] += 1
            except RefusedError as error:
                raise AssertionError(f"{where}: {error}") from None
            if isinstance(certificate.because, form.NotProven):
                found[f"not proven: {reason.code}"] += 1
                continue
            plain = msgspec.json.decode(msgspec.json.encode(certificate))
            for change, false in tampered(plain, facts, random, each):
                assert is_refused(false, facts), f"{where}: accepted with {change}"
                found["tampered"] += 1
            if found["verified"] + found["unproven"] >= most:
                return found
    return found


def test_certificates_of_random_clusters_verify_and_false_ones_are_refused():
    found = try_random(range(examples(9, least=9)), 100_000, 1)
    assert found["verified"] > 300
    assert found["tampered"] > 300
    assert found["verified"] > 0.9 * (found["verified"] + found["unproven"]), found


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_certificates_verify_and_false_ones_are_refused(capsys: pytest.CaptureFixture[str]):
    found = try_random(range(1000, 2000), CASES_SLOW, TAMPERED_EACH)
    assert found["verified"] + found["unproven"] >= CASES_SLOW
    assert found["verified"] > 0.95 * CASES_SLOW, found
    with capsys.disabled():
        print(dict(found))


def test_no_certificate_of_before_verifies_when_the_gang_can_start():
    """What is proven once must not be proven of a cluster in which a decision admits the gang."""
    tried = 0
    for seed in range(45):
        life = Life(KINDS[seed % len(KINDS)], Random(f"later {seed}"))
        for _ in range(6):
            life.step()
            life.step()
            life.waiting = [life.current(entry) for entry in life.waiting]
            prover = Prover(life.world.snapshot(*life.waiting), life.world.now)
            known = {each.id: prover.certificate(each.id, "") for each in prover.plan.waiting}
            for gang_id in list(life.world.running):
                life.world.end(gang_id)
            snapshot = life.world.snapshot(*life.waiting)
            facts = facts_of_world(life.world, snapshot)
            admitted = {admission.id for admission in Prover(snapshot, life.world.now).plan.admissions}
            for gang_id in admitted & known.keys():
                with pytest.raises((RefusedError, UnprovenError)):
                    check(known[gang_id], facts)
                tried += 1
    assert tried > 30


def test_the_file_of_a_snapshot_is_as_good_as_the_objects():
    for seed in range(9):
        life = Life(KINDS[seed], Random(f"file {seed}"))
        for _ in range(5):
            life.step()
            life.waiting = [life.current(entry) for entry in life.waiting]
        snapshot = life.world.snapshot(*life.waiting)
        facts, digest = read(dump(snapshot, life.world.now))
        prover = Prover(snapshot, life.world.now)
        for waiting in prover.plan.waiting:
            certificate = prover.certificate(waiting.id, digest)
            assert verdict(certificate, facts) == verdict(certificate, facts_of_world(life.world, snapshot))


# -- each kind, by hand ----------------------------------------------------------------------------------------------


def proof_of(world: World, name: str, *gangs: GangRequest) -> form.Certificate:
    """The certificate of one that waits, checked."""
    every = {certificate.gang: (certificate, facts) for certificate, facts, _ in certificates(world, gangs)}
    certificate, facts = every[f"ml/{name}"]
    assert verdict(certificate, facts) == "verified"
    return certificate


def run(world: World, *gangs: GangRequest) -> None:
    """Start them."""
    assert not world.carry_out(world.decide(*gangs), gangs)


def place_of(certificate: form.Certificate) -> form.Place:
    assert isinstance(certificate.because, form.Place)
    return certificate.because


def test_devices_that_others_hold_are_named_with_their_claims():
    world = h100_world(2)
    run(world, gang("held", 3, claim_spec(device_request(4))))
    proof = place_of(proof_of(world, "waits", gang("waits", 2, claim_spec(device_request(4)))))
    assert proof.units == (2,)
    assert sorted(node.most for node in proof.nodes) == [(0,), (1,)]
    full = next(node for node in proof.nodes if node.most == (0,))
    (devices,) = full.because
    assert isinstance(devices, form.Devices)
    assert not devices.free
    assert {each.claim for each in devices.ruled_out if isinstance(each, form.Held)} <= {
        "ml/held-0-gpu",
        "ml/held-1-gpu",
        "ml/held-2-gpu",
    }


def test_a_node_that_takes_no_pod_needs_no_list_of_devices():
    world = World()
    world.add_node("cordoned", [gpu(0)], unschedulable=True)
    world.add_node("tainted", [gpu(0)], taints=[{"key": "dedicated", "effect": "NoSchedule"}])
    world.add_node("small", [gpu(0)], allocatable={"cpu": "500m"})
    world.add_node("elsewhere", [gpu(0)], labels={"rack": "b"})
    wanted = gang("waits", 1, claim_spec(device_request()), pod={"nodeSelector": {"rack": "a"}})
    proof = place_of(proof_of(world, "waits", wanted))
    reasons = {node.node: node.because[0] for node in proof.nodes}
    assert reasons["cordoned"] == form.Refused(unit=0, pod=0, by="Unschedulable")
    assert reasons["tainted"] == form.Refused(unit=0, pod=0, by="Taint", what="dedicated")
    assert reasons["elsewhere"] == form.Refused(unit=0, pod=0, by="NodeSelector", what="rack")
    assert all(len(node.because) == 1 for node in proof.nodes)

    proof = place_of(proof_of(world, "cpu", gang("cpu", 2, claim_spec(device_request()))))
    assert form.Room(resource="cpu", left=500, wants=(1000,)) in {n.node: n.because for n in proof.nodes}["small"]


def test_partitions_are_ruled_out_by_the_counters_of_their_gpu():
    devices, counters = mig_gpu(0)
    world = World()
    world.add_node("a100", devices, counters=[counters])
    profile = 'device.attributes["gpu.fairlead.dev"].profile'
    run(world, gang("half", 1, claim_spec(device_request(device_class=MIG, cel=f'{profile} == "4g.40gb"'))))
    whole = gang("waits", 1, claim_spec(device_request(device_class=MIG, cel=f'{profile} == "7g.80gb"')))
    proof = place_of(proof_of(world, "waits", whole))
    (devices_bound,) = proof.nodes[0].because
    assert isinstance(devices_bound, form.Devices)
    counter = next(each for each in devices_bound.ruled_out if isinstance(each, form.Counter))
    assert counter.device[2] == "gpu-0-mig-7g-80gb-0"
    assert (counter.left, counter.needs) in {("42", "98"), ("0", "1")}


def test_what_only_a_search_refutes_is_searched_again():
    """Four free devices, two on each island: three of one island are not to be had, though more than three are free."""
    world = World()
    world.add_node("islands", [gpu(minor, island=minor // 2) for minor in range(4)])
    spec = claim_spec(device_request(3), constraints=[{"matchAttribute": ISLAND}])
    proof = place_of(proof_of(world, "waits", gang("waits", 1, spec)))
    (devices,) = proof.nodes[0].because
    assert isinstance(devices, form.Devices)
    assert len(devices.free) == 4
    assert proof.nodes[0].most == (0,)


def test_pods_of_two_kinds_are_seen_together():
    """A leader with one GPU and workers with four: each kind fits alone, both do not."""
    world = h100_world(2, gpus=4)
    workers = gang("job", 2, claim_spec(device_request(4)))
    leader = gang("job-leader", 1, claim_spec(device_request(1)))
    both = GangRequest(
        namespace="ml",
        name="job",
        uid="uid-job",
        size=3,
        members=workers.members + leader.members,
        claims=workers.claims + leader.claims,
    )
    proof = place_of(proof_of(world, "job", both))
    assert proof.units == (2, 1)
    assert proof.domains[0].most == (2, 2)


def test_racks_of_the_blocks_are_too_small_where_both_are_required():
    world = World()
    for number in range(8):
        labels = {"block": f"b{number // 4}", "rack": f"r{number // 2 % 2}"}
        world.add_node(f"n{number}", [gpu(minor) for minor in range(8)], labels=labels)
    wanted = gang("waits", 3, claim_spec(device_request(8)), topology="required:block, required:rack, preferred:n")
    proof = place_of(proof_of(world, "waits", wanted))
    racks = ["b0>r0", "b0>r1", "b1>r0", "b1>r1"]
    assert [(domain.domain, domain.most) for domain in proof.domains] == [(rack, (2,)) for rack in racks]


def test_what_subgroups_alone_forbid_has_no_proof():
    """That all of its pods have room says nothing of subgroups: the verifier knows none, and no certificate claims it."""
    world = World()
    for number in range(6):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(8)], labels={"rack": f"r{number // 3}"})
    wanted = gang("waits", 6, claim_spec(device_request(8)))
    members = tuple(replace(member, subgroup=str(n // 2)) for n, member in enumerate(wanted.members))
    split = replace(wanted, members=members, subgroup_topology="required:rack")
    ((certificate, facts, _),) = certificates(world, (split,))
    assert isinstance(certificate.because, form.NotProven)
    assert verdict(certificate, facts) == "unproven"


def test_each_domain_of_a_required_topology_is_too_small():
    world = h100_world(4, racks=2)
    wanted = gang("waits", 3, claim_spec(device_request(8)), topology="required:rack")
    proof = place_of(proof_of(world, "waits", wanted))
    assert [(domain.domain, domain.most) for domain in proof.domains] == [("rack-0", (2,)), ("rack-1", (2,))]


def test_devices_that_many_nodes_reach_are_counted_once():
    world = World()
    for name in ("a", "b", "c"):
        world.add_node(name)
    pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.fairlead.dev", "allNodes": True, "pool": pool, "devices": [gpu(0), gpu(1)]}
    world.add_slices([{"metadata": {"name": "net"}, "spec": spec}])
    proof = place_of(proof_of(world, "waits", gang("waits", 3, claim_spec(device_request()))))
    (domain,) = proof.domains
    assert domain.most == (6,)
    assert domain.because is not None
    assert len(domain.because.free) == 2


def test_a_limit_is_an_inequality_of_used_charge_and_limit():
    world = h100_world(1)
    world.flavors = ANY
    world.queues = (QueueSpec(name="team", quotas=(FlavorQuota(flavor="any", limit=3),)),)
    run(world, gang("held", 1, claim_spec(device_request(2)), queue="team"))
    proof = proof_of(world, "waits", gang("waits", 2, claim_spec(device_request()), queue="team"))
    assert proof.because == form.Limit(queue="team", flavor="any", used="2", charge="2", limit="3", bound="limit")


def test_limits_in_shares_of_a_gpu_are_proven_where_counters_tell_the_share():
    devices, counters = mig_gpu(0)
    static = [{key: value for key, value in device.items() if key != "consumesCounters"} for device in devices[1:]]
    profile = 'device.attributes["gpu.fairlead.dev"].profile'
    wanted = claim_spec(device_request(device_class=MIG, cel=f'{profile} == "4g.40gb"'))
    found = []
    for published, sets in ((devices, [counters]), (static, [])):
        world = World()
        world.add_node("a100", published, counters=sets)
        world.flavors = (FlavorSpec(name="gpus", device_selector="true", measure="Share"),)
        world.queues = (QueueSpec(name="team", quotas=(FlavorQuota(flavor="gpus", limit=Fraction(1, 2)),)),)
        ((certificate, facts, reason),) = certificates(world, (gang("waits", 1, wanted, queue="team"),))
        assert reason.code == "OverQueueLimit"
        found.append((certificate, facts))
    (certificate, facts), (without, _) = found
    limit = form.Limit(queue="team", flavor="gpus", used="0", charge="4/7", limit="1/2", bound="limit")
    assert certificate.because == limit
    assert verdict(certificate, facts) == "verified"
    assert without.because == form.NotProven(code="OverQueueLimit")


def test_behind_the_head_of_a_strict_queue_is_why_the_head_cannot_start():
    world = h100_world(1)
    world.queues = (QueueSpec(name="team", ordering="StrictFIFO"),)
    head = gang("head", 2, claim_spec(device_request(8)), queue="team", created=1.0)
    proof = proof_of(world, "waits", head, gang("waits", 1, claim_spec(device_request()), queue="team", created=2.0))
    assert isinstance(proof.because, form.Behind)
    assert proof.because.head == "ml/head"
    assert isinstance(proof.because.because, form.Place)


def test_what_the_same_decision_gives_to_others_is_a_premise():
    world = h100_world(1)
    first = gang("first", 1, claim_spec(device_request(8)), created=1.0)
    second = gang("second", 1, claim_spec(device_request(8)), created=2.0)
    proof = proof_of(world, "second", first, second)
    (given,) = proof.given
    assert (given.gang, given.role, len(given.devices)) == ("ml/first", "Admitted", 8)
    (devices,) = place_of(proof).nodes[0].because
    assert isinstance(devices, form.Devices)
    assert {type(each) for each in devices.ruled_out} == {form.GivenAway}


def test_a_claim_that_is_wrong_or_missing_is_named_with_its_field():
    world = h100_world(1)
    unknown = gang("unknown", 1, claim_spec(device_request(device_class="no-class")))
    many = gang("many", 1, claim_spec({"firstAvailable": [{"name": "s0", **device_request(33)}]}))
    broken = gang("broken", 1, claim_spec(device_request(cel="device.")))
    bare = gang("bare", 1, claim_spec(device_request(), constraints=[{}]))
    astray = gang("astray", 1, claim_spec(device_request()), topology="somewhere")
    lost = replace(gang("lost", 1, claim_spec(device_request())), claims=())
    every = (unknown, many, broken, bare, astray, lost)
    found = {
        name: proof_of(world, name, *every).because for name in ("unknown", "many", "broken", "bare", "astray", "lost")
    }
    assert found == {
        "unknown": form.Invalid(claim="unknown-0-gpu", field="requests[0].deviceClassName"),
        "many": form.Invalid(claim="many-0-gpu", field="requests[0].s0.count"),
        "broken": form.Invalid(claim="broken-0-gpu", field="requests[0].selectors"),
        "bare": form.Invalid(claim="bare-0-gpu", field="constraints[0]"),
        "astray": form.Invalid(claim="", field="topology"),
        "lost": form.Invalid(claim="lost-0-gpu", field="missing"),
    }


def test_premises_that_cannot_be_read_are_refused():
    world = h100_world(1)
    waits = tuple(gang(name, 1, claim_spec(device_request(8)), created=at) for name, at in (("a", 1.0), ("b", 2.0)))
    ((certificate, facts, _),) = certificates(world, waits)
    for amount in ("many", "1/0"):
        false = msgspec.json.decode(msgspec.json.encode(certificate))
        false["given"][0]["devices"][0]["consumes"] = {"memory": amount}
        with pytest.raises(RefusedError, match="given"):
            check(msgspec.convert(false, form.Certificate), facts)


def test_what_keeps_devices_unlent_is_not_proven():
    """That other queues keep what they deserve for themselves rests on what of the cluster is usable: no kind proves it."""
    world = h100_world(1)
    world.flavors = ANY
    world.queues = (
        QueueSpec(name="keeps", quotas=(FlavorQuota(flavor="any", deserved=4, lending_limit=0),)),
        QueueSpec(name="team", quotas=(FlavorQuota(flavor="any", deserved=4),)),
    )
    waits = gang("waits", 1, claim_spec(device_request(5)), queue="team")
    ((certificate, facts, reason),) = certificates(world, (waits,))
    assert certificate.because == form.NotProven(code="OverQueueLimit")
    assert reason.code == "OverQueueLimit"
    with pytest.raises(UnprovenError, match="OverQueueLimit"):
        check(certificate, facts)


def test_that_admin_access_finds_nothing_made_is_not_proven():
    """A ResourceSlice shows each profile that a GPU may be cut into, and no verifier reads from it which of them exist."""
    world = World()
    devices, counters = mig_gpu(0)
    world.add_node("n0", devices, counters=[counters])
    observes = device_request(
        device_class=MIG, cel=f'device.attributes["{names.DRIVER}"].profile == "1g.10gb"', adminAccess=True
    )
    ((certificate, _, _),) = certificates(world, (gang("observes", 1, claim_spec(observes)),))
    assert isinstance(certificate.because, form.NotProven)
