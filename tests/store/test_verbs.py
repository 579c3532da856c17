"""The verbs on one allocation, at every phase, straight on PostgreSQL; the reconciler's part is played by the test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from fabric_manager.domain.allocation import Allocation, AttachmentKind, Consumer
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.lifecycle import LIVE, Event, Goal, Phase
from fabric_manager.domain.units import GiB, MiB
from fabric_manager.store import tables, verbs, work
from fabric_manager.store.database import Database, EpochLostError
from tests.racks import ACTOR, a_fabric
from tests.store.allocations import Life

Identities = Callable[[], UUID]
PHASES = pytest.mark.parametrize("phase", Phase)
POOLS = pytest.mark.parametrize("pool", ["mlds", "dcds"])
P = Phase


@pytest.fixture(scope="module")
async def shared(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[Database]:
    """Emptied between tests, which costs a tenth of a new one."""
    database = Database(await new_database())
    yield database
    await database.close()


@pytest.fixture
async def life(shared: Database, identities: Identities) -> AsyncIterator[Life]:
    """A rack of one MLD and one DCD. Whatever a test does to it, the counters add up in the end."""
    ready = Life(shared, identities, await a_fabric(shared, identities, dcds=1))
    yield ready
    try:
        await ready.sums_are_right()
    finally:
        await emptied(shared)


async def emptied(db: Database) -> None:
    """As the migrations left it; in a replica's part, because history is otherwise append-only."""
    kept = ("lifecycle_transition", "qos_class", "isolation_policy", "event_head")
    async with db.transaction() as tx:
        await tx.exec_driver_sql("SET LOCAL session_replication_role = replica")
        for table in tables.metadata.tables:
            if table not in kept:
                await tx.exec_driver_sql(f"DELETE FROM {table}")
        await tx.exec_driver_sql("UPDATE event_head SET seq = 0")


def code_of(caught: pytest.ExceptionInfo[FabricError]) -> Code:
    return caught.value.code


# Asked twice


@PHASES
@POOLS
async def test_a_request_asked_again_is_the_same_allocation_at_whatever_phase(
    life: Life, phase: Phase, pool: str
) -> None:
    before = await life.in_phase("again", phase, pool=pool)
    order = {field: before.request[field] for field in ("host", "bind", "pool")}
    if phase is P.RELEASED:
        with pytest.raises(FabricError) as refused:
            await life.ask("again", **order)
        assert code_of(refused) is Code.RELEASED
        return
    again = await life.ask("again", **order)
    assert not again.created
    assert (again.allocation.id, again.allocation.phase) == (before.id, phase)
    assert again.allocation.segments == before.segments
    assert again.allocation.generation == before.generation


@PHASES
async def test_another_request_under_the_same_key_says_what_differs_at_whatever_phase(life: Life, phase: Phase) -> None:
    await life.in_phase("mine", phase, pool="mlds")
    with pytest.raises(FabricError) as refused:
        await life.ask("mine", pool="dcds", size_bytes=GiB)
    assert code_of(refused) is Code.KEY_REUSE_MISMATCH
    assert {"size_bytes", "pool"} <= {each["field"] for each in refused.value.facts["differs"]}


async def test_labels_and_deadlines_are_not_part_of_the_request(life: Life) -> None:
    await life.claim("same", labels={"a": "1"}, deadline_s=10, reservation_ttl_s=100)
    again = await life.ask("same", labels={"b": "2"}, deadline_s=20, reservation_ttl_s=200)
    assert not again.created


@PHASES
async def test_a_release_asked_again_changes_nothing_more(life: Life, phase: Phase) -> None:
    await life.in_phase("gone", phase)
    first = await life.release("gone")
    once = await life.get("gone")
    second = await life.release("gone")
    assert (second is None) == (first is None)
    assert await life.get("gone") == once
    assert once.goal is Goal.RELEASE or phase is P.RELEASED


@PHASES
async def test_a_binding_asked_again_changes_nothing_more(life: Life, phase: Phase) -> None:
    await life.in_phase(
        "twice",
        phase,
        **({"host": "node-0"} if phase is P.RESERVED else {}),
        **({"bind": False} if phase is P.RESERVED else {}),
    )
    try:
        await life.bind("twice")
    except FabricError as error:
        expected = {P.RELEASED: Code.RELEASED, P.FAILED: Code.ILLEGAL_PHASE, P.QUARANTINED: Code.ILLEGAL_PHASE}
        assert error.code is expected.get(phase, Code.RELEASING)
        assert (await life.get("twice")).phase is phase
        return
    once = await life.get("twice")
    assert once.phase is (phase if phase in (P.BOUND, P.ONLINE) else P.BINDING)
    await life.bind("twice")
    assert await life.get("twice") == once


# Released before it was asked


@pytest.mark.parametrize(
    ("scope", "tenant", "cluster", "dead"),
    [
        ("any", "analytics", None, True),
        ("tenant:analytics", "analytics", None, True),
        ("tenant:analytics", "billing", None, False),
        ("cluster:prod", "billing", "prod", True),
        ("cluster:prod", "billing", "dev", False),
        ("cluster:prod", "billing", None, False),
    ],
)
async def test_a_tombstone_binds_its_scope_only(
    life: Life, scope: str, tenant: str, cluster: str | None, dead: bool
) -> None:
    assert await life.release("late", scope) is None
    consumer = Consumer(kind="ResourceClaim", cluster=cluster)
    if not dead:
        assert (await life.ask("late", tenant=tenant, consumer=consumer)).created
        return
    with pytest.raises(FabricError) as refused:
        await life.ask("late", tenant=tenant, consumer=consumer)
    assert code_of(refused) is Code.RELEASED


async def test_a_strangers_release_does_not_wake_the_dead(life: Life) -> None:
    await life.release("contested", "tenant:analytics")
    await life.release("contested", "tenant:billing")
    for tenant in ("analytics", "billing"):
        with pytest.raises(FabricError) as refused:
            await life.ask("contested", tenant=tenant)
        assert code_of(refused) is Code.RELEASED
    assert (await life.ask("contested", tenant="research")).created


async def test_a_refused_request_leaves_the_tombstone_and_takes_back_its_key(life: Life) -> None:
    await life.release("late", "tenant:analytics")
    for key in ("late", "new"):
        with pytest.raises(FabricError):
            await life.ask(key, tenant="billing", size_bytes=1 << 50)
    assert await life.column("SELECT key FROM allocation_key") == ["late"]
    with pytest.raises(FabricError) as refused:
        await life.ask("late")
    assert code_of(refused) is Code.RELEASED


async def test_a_tombstone_lasts_a_day(life: Life) -> None:
    await life.release("late")
    (expires_at,) = await life.column("SELECT expires_at FROM allocation_key")
    assert expires_at - datetime.now(UTC) > timedelta(hours=23)
    await life.run("UPDATE allocation_key SET expires_at = now() - interval '1 s'")
    assert (await life.ask("late")).created
    assert await life.column("SELECT expires_at FROM allocation_key") == [None]


async def test_request_and_release_at_once_never_leave_an_orphan(life: Life) -> None:
    async def ask(key: str) -> None:
        try:
            await life.ask(key, size_bytes=GiB, pool="dcds")
        except FabricError as error:
            assert error.code is Code.RELEASED

    for key in ("a", "b", "c", "d"):
        await asyncio.gather(ask(key), life.release(key), ask(key))
        await life.release(key)
    assert await life.column("SELECT count(*) FROM allocation WHERE phase <> 'released'") == [0]


# What the node says


@POOLS
async def test_memory_that_a_host_uses_stays_with_it_until_it_says_otherwise(life: Life, pool: str) -> None:
    held = await life.online("used", pool=pool)
    asked = await life.release("used")
    assert asked is not None
    assert (asked.phase, asked.goal) == (P.RELEASE_BLOCKED, Goal.RELEASE)
    await life.sums_are_right()
    assert await life.column("SELECT allocated_bytes FROM device WHERE name = :name", name=held.segments[0].device) == [
        64 * GiB
    ]
    assert (await life.report("used", "offline_failed")).phase is P.RELEASE_BLOCKED
    assert (await life.report("used", "offline")).phase is P.RELEASING
    await life.sums_are_right()
    await life.erased("used")
    assert (await life.get("used")).phase is P.RELEASED


@PHASES
async def test_online_is_accepted_only_where_the_memory_was_given(life: Life, phase: Phase) -> None:
    await life.in_phase("up", phase)
    if phase in (P.BOUND, P.ONLINE):
        assert (await life.report("up", "online", numa_node=2, dax_device="dax0.0")).phase is P.ONLINE
        (segment,) = (await life.get("up")).segments
        assert (segment.node_state, segment.numa_node, segment.dax_device) == ("online", 2, "dax0.0")
        return
    before = await life.get("up")
    with pytest.raises(FabricError) as refused:
        await life.report("up", "online")
    releasing = (P.RELEASE_BLOCKED, P.RELEASING, P.SANITIZING)
    expected = Code.RELEASED if phase is P.RELEASED else Code.RELEASING if phase in releasing else Code.ILLEGAL_PHASE
    assert code_of(refused) is expected
    assert await life.get("up") == before


@pytest.mark.parametrize("phase", sorted(LIVE - {P.RESERVED}))
@pytest.mark.parametrize("said", ["offline", "offline_failed"])
async def test_a_report_of_going_offline_is_always_heard(life: Life, phase: Phase, said: str) -> None:
    await life.in_phase("down", phase)
    after = (await life.report("down", said)).phase
    moves = {P.ONLINE: P.BOUND, P.RELEASE_BLOCKED: P.RELEASING} if said == "offline" else {}
    assert after is moves.get(phase, phase)
    await life.report("down", "offline")  # whatever was said before


async def test_a_report_of_a_segment_that_is_not_there_takes_nothing(life: Life) -> None:
    bound = await life.bound("one")
    reports = [{"id": bound.segments[0].id, "phase": "online"}, {"id": uuid4(), "phase": "online"}]
    await life.report("one", "offline")  # registers the boot id
    answer = await verbs.report_node_state(
        life.db, key="one", boot_id="boot-1", epoch=None, reports=reports, actor=ACTOR
    )
    assert answer["refusal"]["code"] == "not_found"
    assert (await life.get("one")).phase is P.BOUND


async def test_a_host_that_started_anew_has_nothing_online(life: Life) -> None:
    for key in ("kept", "leaving"):
        await life.online(key)
    await life.release("leaving")
    await life.claim("other", host="node-1")
    epoch = await verbs.register_boot(life.db, host="node-0", boot_id="boot-2", actor=ACTOR)
    assert epoch == 2
    assert await verbs.register_boot(life.db, host="node-0", boot_id="boot-2", actor=ACTOR) == 2
    assert (await life.get("kept")).phase is P.BOUND
    assert (await life.get("leaving")).phase is P.RELEASING
    assert (await life.get("other")).phase is P.BINDING
    assert (await life.report("kept", "online", boot_id="boot-2", epoch=2)).phase is P.ONLINE
    with pytest.raises(FabricError) as refused:
        await life.report("kept", "online", boot_id="boot-2", epoch=1)
    assert code_of(refused) is Code.STALE_GENERATION
    assert refused.value.facts["have_epoch"] == 2


async def test_a_report_from_before_the_last_start_is_refused(life: Life) -> None:
    await life.online("held", pool="mlds")
    await life.report("held", "online", boot_id="boot-2")
    with pytest.raises(FabricError) as refused:
        await life.report("held", "offline", boot_id="boot-1")
    assert code_of(refused) is Code.STALE_GENERATION
    assert await verbs.register_boot(life.db, host="node-0", boot_id="boot-1", actor=ACTOR) == 2
    assert (await life.get("held")).phase is P.ONLINE


async def test_boot_ids_are_remembered_within_a_bound(life: Life) -> None:
    for number in range(40):
        await verbs.register_boot(life.db, host="node-0", boot_id=f"boot-{number}", actor=ACTOR)
    (past,) = await life.column("SELECT boot_ids_past FROM host WHERE name = 'node-0'")
    assert past == [f"boot-{number}" for number in range(7, 39)]


@pytest.mark.parametrize("said", ["online", "offline_failed"])
async def test_lost_memory_is_bound_again_only_when_the_host_does_not_use_it(life: Life, said: str) -> None:
    await life.online("lost")
    await life.report("lost", said)
    await life.settle("lost", Event.GONE)
    with pytest.raises(FabricError) as refused:
        await life.bind("lost")
    assert code_of(refused) is Code.ILLEGAL_PHASE
    await verbs.register_boot(life.db, host="node-0", boot_id="boot-2", actor=ACTOR)
    assert (await life.bind("lost")).phase is P.BINDING
    with pytest.raises(FabricError):
        await life.bind("lost", "node-1")  # it hangs at its own host


async def test_lost_memory_that_hardware_shows_again_is_not_taken_from_the_host_that_uses_it(life: Life) -> None:
    held = await life.online("back")
    await life.settle("back", Event.GONE)
    await work.mark_reappeared(life.db, life.owned, allocation_id=held.id, shown=True, actor=ACTOR)
    await life.release("back")
    assert (await life.get("back")).phase is P.RELEASE_BLOCKED


async def test_lost_memory_that_stays_away_is_released_without_the_host(life: Life) -> None:
    await life.online("away")
    await life.settle("away", Event.GONE)
    await life.release("away")
    assert (await life.get("away")).phase is P.RELEASING


# Time


async def expire(life: Life) -> list[bool]:
    return [await verbs.expire_one(life.db, actor=ACTOR) for _ in range(2)]


async def test_a_reservation_ends_with_its_time_and_asking_again_renews_it(life: Life) -> None:
    first = await life.claim("short", reservation_ttl_s=60)
    await life.run("UPDATE allocation SET reservation_expires_at = now() + interval '1 s'")
    renewed = (await life.ask("short", reservation_ttl_s=60)).allocation
    assert first.reservation_expires_at is not None
    assert renewed.reservation_expires_at is not None
    assert renewed.reservation_expires_at > first.reservation_expires_at
    assert await expire(life) == [False, False]
    await life.run("UPDATE allocation SET reservation_expires_at = now() - interval '1 s'")
    assert await expire(life) == [True, False]
    assert (await life.get("short")).phase is P.RELEASED
    with pytest.raises(FabricError) as refused:
        await life.ask("short", reservation_ttl_s=60)
    assert code_of(refused) is Code.RELEASED


async def test_no_timer_takes_what_is_bound(life: Life) -> None:
    for phase in sorted(LIVE - {P.RESERVED}):
        await life.in_phase(phase, phase, pool="dcds", size_bytes=GiB, reservation_ttl_s=60)
    assert await life.column("SELECT count(*) FROM allocation WHERE reservation_expires_at IS NOT NULL") == [0]
    await life.run("UPDATE allocation SET created_at = now() - interval '1 year', reservation_expires_at = now()")
    assert await expire(life) == [False, False]


async def test_the_time_of_a_reservation_starts_anew_when_it_is_unbound(life: Life) -> None:
    await life.bound("kept", reservation_ttl_s=60)
    await life.unbind("kept")
    await life.erased("kept")
    assert (await life.get("kept")).reservation_expires_at is not None


async def test_a_failed_one_keeps_its_key_for_a_day(life: Life) -> None:
    await life.in_phase("failed", P.FAILED)
    assert await expire(life) == [False, False]
    await life.run("UPDATE allocation SET finished_at = now() - interval '25 hours'")
    assert await expire(life) == [True, False]
    assert (await life.get("failed")).phase is P.RELEASED


# Refusals


async def test_a_quota_refuses_with_its_facts(life: Life) -> None:
    await life.claim("first", size_bytes=GiB, pool="dcds")
    await life.run("UPDATE tenant SET quota_bytes = :quota", quota=3 * GiB)
    with pytest.raises(FabricError) as refused:
        await life.claim("second", size_bytes=2 * GiB + 1, pool="dcds")
    assert code_of(refused) is Code.QUOTA_EXCEEDED
    facts = refused.value.facts
    assert (facts["tenant"], facts["quota_bytes"], facts["used_bytes"]) == ("analytics", 3 * GiB, GiB)
    assert facts["asked_bytes"] == 2 * GiB + 2 * MiB  # what it would have been charged
    await life.claim("second", size_bytes=2 * GiB, pool="dcds")
    await life.run("UPDATE tenant SET quota_bytes = NULL, quota_allocations = 2")
    with pytest.raises(FabricError) as refused:
        await life.claim("third", size_bytes=GiB)
    assert refused.value.facts["quota_allocations"] == 2
    await life.release("first")
    assert (await life.ask("third", size_bytes=GiB)).created


async def test_a_quota_holds_against_a_crowd(life: Life) -> None:
    await life.claim("first", size_bytes=GiB, pool="dcds")
    await life.run("UPDATE tenant SET quota_allocations = 5")

    async def one(n: int) -> bool:
        try:
            return (await life.ask(f"crowd-{n}", size_bytes=GiB, pool="dcds")).created
        except FabricError as error:
            assert error.code is Code.QUOTA_EXCEEDED
            return False

    assert sum(await asyncio.gather(*(one(n) for n in range(20)))) == 4


async def test_a_tenant_is_made_by_use_only_where_that_is_allowed(life: Life) -> None:
    await life.ask("new", tenant="newcomer")
    assert await life.column("SELECT name FROM tenant") == ["newcomer"]


async def test_a_host_takes_no_more_than_its_vppbs(db: Database, identities: Identities) -> None:
    life = Life(db, identities, await a_fabric(db, identities, vppbs=2))
    for key in ("a", "b"):
        await life.bound(key)
    reserved = await life.claim("c", bind=False)
    with pytest.raises(FabricError) as refused:
        await life.bind("c")
    assert code_of(refused) is Code.HOST_LIMIT_REACHED
    assert (await life.get("c")) == reserved
    with pytest.raises(FabricError) as refused:
        await life.claim("d", host="node-0")
    assert code_of(refused) is Code.HOST_LIMIT_REACHED
    assert (await life.bind("c", "node-1")).phase is P.BINDING
    await life.release("a")
    await life.erased("a")
    assert (await life.claim("d", host="node-0")).phase is P.BINDING
    await life.sums_are_right()


async def test_a_host_takes_no_more_than_its_own_limit(life: Life) -> None:
    await life.run("UPDATE host SET vppbs_max = 1 WHERE name = 'node-0'")
    await life.bound("a")
    with pytest.raises(FabricError) as refused:
        await life.claim("b", host="node-0")
    assert code_of(refused) is Code.HOST_LIMIT_REACHED


async def test_a_dcd_takes_no_more_hosts_than_it_has_interfaces(db: Database, identities: Identities) -> None:
    life = Life(db, identities, await a_fabric(db, identities, mlds=0, dcds=1))
    await life.run("UPDATE device SET lds_max = 1")
    await life.claim("a", host="node-0")
    await life.claim("b", bind=False)
    with pytest.raises(FabricError) as refused:
        await life.bind("b", "node-1")
    assert code_of(refused) is Code.HOST_LIMIT_REACHED
    assert refused.value.facts["host_interfaces"] == 1


@pytest.mark.parametrize("host", ["node-0", "nobody"])
async def test_a_host_without_a_port_on_the_switch_is_not_reached(life: Life, host: str) -> None:
    await life.run("DELETE FROM host_port WHERE host_id = (SELECT id FROM host WHERE name = 'node-0')")
    await life.claim("far", bind=False)
    with pytest.raises(FabricError) as refused:
        await life.bind("far", host)
    assert code_of(refused) is Code.NOT_REACHABLE_FROM_HOST
    assert refused.value.terminal_for == "host"
    with pytest.raises(FabricError) as refused:
        await life.claim("farther", host=host)
    assert code_of(refused) is Code.NOT_REACHABLE_FROM_HOST
    assert (await life.get("far")).phase is P.RESERVED


@POOLS
async def test_a_fenced_host_gets_nothing(life: Life, pool: str) -> None:
    await life.run("UPDATE host SET fenced_at = now(), fence_reason = 'smoke' WHERE name = 'node-0'")
    await life.claim("kept", bind=False, pool=pool)
    for attempt in (life.bind("kept"), life.claim("new", host="node-0", pool=pool)):
        with pytest.raises(FabricError, match="smoke") as refused:
            await attempt
        assert code_of(refused) is Code.FENCED
    assert await life.column("SELECT key FROM allocation") == ["kept"]
    assert await life.column("SELECT count(*) FROM attachment") == [0]


async def test_a_refusal_is_kept_as_an_event(life: Life) -> None:
    for _ in range(2):
        with pytest.raises(FabricError):
            await life.claim("big", size_bytes=1 << 50)
    await life.sequence()
    query = "SELECT after FROM event WHERE key = 'big' AND type = 'allocation.refused'"
    (kept,) = await life.column(query)  # the same refusal is not told twice in ten seconds
    assert kept["code"] == Code.INSUFFICIENT_CAPACITY
    assert kept["funnel"]


async def test_an_attachment_kind_chooses_the_kind_of_device(life: Life) -> None:
    for kind, device in ((AttachmentKind.LOGICAL_DEVICE, "mld-0"), (AttachmentKind.DYNAMIC_CAPACITY, "dcd-0")):
        assert (await life.claim(kind, attachment=kind)).segments[0].device == device


@pytest.mark.parametrize("state", ["cordoned", "draining", "maintenance"])
async def test_a_device_that_is_not_enabled_takes_nothing_new(life: Life, state: str) -> None:
    await life.bound("old", device="mld-0")
    await life.run("UPDATE device SET admin_state = :state WHERE name = 'mld-0'", state=state)
    with pytest.raises(FabricError) as refused:
        await life.claim("new", device="mld-0")
    assert code_of(refused) is Code.NO_MATCHING_DEVICE
    await life.release("old")
    await life.erased("old")


# Where it hangs


async def test_claims_of_a_host_on_a_dcd_share_one_attachment_and_one_address_space(life: Life) -> None:
    for key in ("a", "b"):
        await life.bound(key, pool="dcds", size_bytes=GiB)
    await life.bound("c", pool="dcds", size_bytes=GiB, host="node-1")
    assert await life.column("SELECT count(*) FROM attachment WHERE live") == [2]
    assert await spans(life, "a") == [(0, GiB)]
    assert await spans(life, "b") == [(GiB, GiB)]
    assert await spans(life, "c") == [(0, GiB)]  # of its own space
    assert await life.column("SELECT DISTINCT dpa_space FROM extent ORDER BY 1") == [0, 1]
    await life.release("a")
    await life.erased("a")
    assert await life.column("SELECT count(*) FROM attachment WHERE live AND state = 'bound'") == [2]  # it stands


async def spans(life: Life, key: str) -> list[tuple[int, int]]:
    (segment,) = (await life.get(key)).segments
    assert segment.extents is not None
    return [(span.start_bytes, span.size_bytes) for span in segment.extents]


async def test_spans_are_the_first_that_fit_over_the_gaps(life: Life) -> None:
    for key in ("a", "b", "c", "d"):
        await life.bound(key, pool="dcds", size_bytes=GiB)
    for key in ("a", "c"):
        await life.release(key)
        await life.erased(key)
    await life.bound("wide", pool="dcds", size_bytes=2 * GiB + 2 * MiB)
    assert await spans(life, "wide") == [(0, GiB), (2 * GiB, GiB), (4 * GiB, 2 * MiB)]
    await life.bound("next", pool="dcds", size_bytes=1)
    assert await spans(life, "next") == [(4 * GiB + 2 * MiB, 2 * MiB)]  # rounded up to a block


async def test_the_spans_of_memory_that_is_not_proven_clean_are_not_given_on(life: Life) -> None:
    await life.in_phase("doubtful", P.SANITIZING, pool="dcds", size_bytes=GiB)
    await life.settle("doubtful", Event.UNPROVABLE)
    await life.bound("next", pool="dcds", size_bytes=GiB)
    assert await spans(life, "next") == [(GiB, GiB)]


async def test_an_address_space_in_too_many_pieces_is_refused(life: Life) -> None:
    for n in range(34):
        await life.bound(f"piece-{n}", pool="dcds", size_bytes=2 * MiB)
    for n in range(0, 34, 2):
        await life.release(f"piece-{n}")
        await life.erased(f"piece-{n}")
    with pytest.raises(FabricError, match="too many pieces") as refused:
        await life.bound("wide", pool="dcds", size_bytes=34 * MiB)
    assert code_of(refused) is Code.HOST_LIMIT_REACHED


async def test_one_lost_extent_leaves_its_neighbors_bound(life: Life) -> None:
    for key in ("gone", "well"):
        await life.bound(key, pool="dcds", size_bytes=GiB)
    await life.settle("gone", Event.GONE)
    assert (await life.get("well")).phase is P.BOUND
    assert await life.column("SELECT state FROM attachment WHERE live") == ["bound"]
    await life.bind("gone")
    await life.settle("gone", Event.BIND_READ_BACK)
    assert (await life.get("gone")).phase is P.BOUND


async def test_a_logical_device_is_free_again_only_after_it_was_erased(life: Life) -> None:
    async def mask_and_dirty() -> tuple[int, bool]:
        (mask,) = await life.column("SELECT free_lds FROM device WHERE name = 'mld-0'")
        (dirty,) = await life.column(
            "SELECT dirty FROM logical_device l JOIN device d ON d.number = l.device_no"
            " WHERE d.name = 'mld-0' AND l.ld_id = 0"
        )
        return mask, dirty

    await life.bound("used", device="mld-0")
    assert await mask_and_dirty() == (0b1110, False)
    await life.release("used")
    assert await mask_and_dirty() == (0b1110, False)
    await life.settle("used", Event.GONE)
    assert await mask_and_dirty() == (0b1110, True)
    with pytest.raises(Exception, match="no evidence of sanitizing"):
        await life.settle("used", Event.SANITIZED_RELEASE)
    await life.prove("used")
    await life.settle("used", Event.SANITIZED_RELEASE)
    assert await mask_and_dirty() == (0b1111, False)


async def test_a_quarantined_logical_device_stays_dirty(life: Life) -> None:
    await life.in_phase("doubtful", P.SANITIZING, device="mld-0")
    await life.settle("doubtful", Event.UNPROVABLE)
    assert await life.column("SELECT dirty FROM logical_device WHERE ld_id = 0") == [True]
    assert await life.column("SELECT quarantined_bytes FROM device WHERE name = 'mld-0'") == [64 * GiB]
    assert await life.release("doubtful") is not None  # recorded; nothing moves until it is cleared
    assert (await life.get("doubtful")).phase is P.QUARANTINED


async def test_evidence_of_an_earlier_life_proves_nothing(life: Life) -> None:
    await life.bound("twice")
    await life.unbind("twice")
    await life.erased("twice")
    await life.bind("twice")
    await life.settle("twice", Event.BIND_READ_BACK)
    await life.release("twice")
    await life.settle("twice", Event.GONE)
    with pytest.raises(Exception, match="no evidence of sanitizing"):
        await life.settle("twice", Event.SANITIZED_RELEASE)


# Off the host, and kept


@POOLS
async def test_unbinding_ends_in_a_clean_reservation_for_any_host(life: Life, pool: str) -> None:
    await life.bound("kept", pool=pool)
    assert (await life.unbind("kept")).phase is P.RELEASING
    assert (await life.unbind("kept")).phase is P.RELEASING
    await life.erased("kept")
    kept = await life.get("kept")
    assert (kept.phase, kept.host, kept.goal, kept.operation) == (P.RESERVED, None, Goal.HOLD, None)
    assert (await life.unbind("kept")).phase is P.RESERVED
    assert (await life.bind("kept", "node-1")).host == "node-1"


async def test_unbinding_waits_for_the_host_like_a_release_and_gives_way_to_one(life: Life) -> None:
    await life.online("used")
    assert (await life.unbind("used")).phase is P.RELEASE_BLOCKED
    await life.release("used")
    await life.report("used", "offline")
    await life.erased("used")
    assert (await life.get("used")).phase is P.RELEASED


@pytest.mark.parametrize(
    ("phase", "code"),
    [
        (P.RELEASE_BLOCKED, Code.RELEASING),
        (P.RELEASING, Code.RELEASING),
        (P.SANITIZING, Code.RELEASING),
        (P.RELEASED, Code.RELEASED),
        (P.FAILED, Code.ILLEGAL_PHASE),
        (P.LOST, Code.ILLEGAL_PHASE),
        (P.QUARANTINED, Code.ILLEGAL_PHASE),
    ],
)
async def test_what_hangs_on_no_host_cannot_be_unbound(life: Life, phase: Phase, code: Code) -> None:
    await life.in_phase("not", phase)
    with pytest.raises(FabricError) as refused:
        await life.unbind("not")
    assert code_of(refused) is code


async def test_unknown_keys_are_unknown_to_every_verb(life: Life) -> None:
    for attempt in (life.bind("none"), life.unbind("none")):
        with pytest.raises(FabricError) as refused:
            await attempt
        assert code_of(refused) is Code.NOT_FOUND
    answer = await verbs.report_node_state(life.db, key="none", boot_id="b", epoch=None, reports=[], actor=ACTOR)
    assert answer == {"outcome": "absent"}


# What the reconciler reads back


async def test_what_was_settled_once_is_not_settled_again(life: Life) -> None:
    await life.claim("once", host="node-0")
    assert await life.settle("once", Event.BIND_READ_BACK, from_phase=P.BINDING)
    bound = await life.get("once")
    assert not await life.settle("once", Event.BIND_READ_BACK, from_phase=P.BINDING)
    assert await life.get("once") == bound
    assert bound.operation is None


async def test_a_release_that_came_meanwhile_wins_over_what_was_read_back(life: Life) -> None:
    await life.claim("raced", host="node-0")
    await life.release("raced")
    assert not await life.settle("raced", Event.BIND_READ_BACK, from_phase=P.BINDING)
    assert (await life.get("raced")).phase is P.RELEASING


async def test_a_partial_binding_is_undone_and_erased_before_it_has_failed(life: Life) -> None:
    await life.claim("half", host="node-0", pool="dcds")
    bind_operation = (await life.get("half")).operation
    await life.settle("half", Event.UNDO, failure={"code": "node_unready", "detail": "half of it"})
    undone = await life.get("half")
    assert (undone.phase, undone.goal) == (P.RELEASING, Goal.UNDO)
    assert undone.operation is not None
    assert bind_operation is not None
    assert undone.operation.goal is Goal.UNDO
    assert await life.column("SELECT state FROM operation ORDER BY id") == ["failed", "pending"]
    await life.erased("half")
    failed = await life.get("half")
    assert (failed.phase, failed.operation) == (P.FAILED, None)
    assert failed.failure is not None
    assert failed.failure.code == "node_unready"
    assert await life.column("SELECT state FROM operation ORDER BY id") == ["failed", "done"]
    assert await life.column("SELECT count(*) FROM extent") == [0]


async def test_the_conditions_follow_the_phase(life: Life) -> None:
    def shown(allocation: Allocation) -> dict[str, str]:
        return {condition.type: condition.status for condition in allocation.conditions}

    assert shown(await life.claim("seen", bind=False)) == {"Bound": "False", "Online": "False"}
    await life.bind("seen")
    await life.settle("seen", Event.BIND_READ_BACK)
    assert shown(await life.get("seen")) == {"Bound": "True", "Online": "False"}
    assert shown(await life.report("seen", "online")) == {"Bound": "True", "Online": "True"}


async def test_only_the_owner_of_the_epoch_may_say_what_hardware_shows(life: Life) -> None:
    claimed = await life.claim("mine", host="node-0")
    assert claimed.operation is not None
    stale = Life(life.db, life.identities, work.Owned(fabric_id=life.owned.fabric_id, epoch=life.owned.epoch - 1))
    operation_id = claimed.operation.id
    for attempt in (
        stale.settle("mine", Event.BIND_READ_BACK),
        stale.prove("mine"),
        work.postpone(life.db, stale.owned, operation_id=operation_id, after_s=1, reason="late"),
        work.end_step(
            life.db, stale.owned, operation_id=operation_id, number=1, outcome="done", observed={}, frames=[],
            evidence=None, attempt=0,
        ),
        work.set_fabric_state(life.db, stale.owned, state="up", reason=None, actor=ACTOR),
        work.discover_switch(life.db, stale.owned, switch={}, new_id=uuid4(), ids=[], actor=ACTOR),
        work.discover_device(life.db, stale.owned, device={}, new_id=uuid4(), ids=[], actor=ACTOR),
    ):  # fmt: skip
        with pytest.raises(EpochLostError):
            await attempt
    assert not await work.renew(life.db, stale.owned, ttl_s=60)
    await work.give_up(life.db, stale.owned)
    assert await work.renew(life.db, life.owned, ttl_s=60)
    assert (await life.get("mine")).phase is P.BINDING


# Who drives a fabric


async def acquire(life: Life, owner: str, command_s: float = 0.2) -> work.Owned | None:
    return await work.acquire(life.db, life.owned.fabric_id, owner=owner, ttl_s=0.2, command_s=command_s)


async def test_a_take_over_waits_for_the_time_and_the_longest_command(life: Life) -> None:
    mine = await acquire(life, "test/2")  # the same installation: at once
    assert mine is not None
    assert await acquire(life, "other/1", command_s=600) is None
    assert await work.renew(life.db, mine, ttl_s=0)
    assert await acquire(life, "other/1", command_s=600) is None
    taken = await acquire(life, "other/1", command_s=0)
    assert taken is not None
    assert taken.epoch == mine.epoch + 1
    assert not await work.renew(life.db, mine, ttl_s=60)
    await work.give_up(life.db, taken)
    assert await acquire(life, "third/1") is not None


async def test_of_two_that_take_over_one_gets_it(life: Life) -> None:
    await work.give_up(life.db, life.owned)
    taken = await asyncio.gather(*(acquire(life, f"host-{n}/1") for n in range(8)))
    assert sum(owned is not None for owned in taken) == 1


async def test_a_take_over_does_not_starve_under_load(life: Life) -> None:
    """Every new operation refers to the fabric; while one is being written the fabric can still be taken over."""
    await work.give_up(life.db, life.owned)
    async with life.db.transaction() as tx:
        await tx.exec_driver_sql("SELECT FROM fabric FOR KEY SHARE")  # as a foreign key's check does
        assert await acquire(life, "other/1") is not None


async def test_a_take_over_waits_for_what_the_old_owner_is_writing(life: Life) -> None:
    guarded = "SELECT guard_epoch(:fabric, :epoch)"
    facts = {"fabric": life.owned.fabric_id, "epoch": life.owned.epoch}
    async with life.db.transaction() as tx:
        await tx.execute(sa.text(guarded), facts)
        taking = asyncio.create_task(acquire(life, "test/2"))
        done, _ = await asyncio.wait({taking}, timeout=0.3)
        assert not done
    assert await taking is not None


# What is to be done


async def test_work_is_due_once_and_again_when_its_time_has_come(life: Life) -> None:
    claimed = await life.claim("due", host="node-0")
    assert claimed.operation is not None
    operation_id = claimed.operation.id

    async def due(*busy: UUID) -> list[str]:
        return [goal["id"] for goal in await work.due(life.db, life.owned, busy=busy, work_max=10)]

    assert await due() == [str(operation_id)]
    assert await due(operation_id) == []
    await work.postpone(life.db, life.owned, operation_id=operation_id, after_s=60, reason="later")
    assert await due() == []
    await life.release("due")
    released = await life.get("due")
    assert released.operation is not None
    assert await due() == [str(released.operation.id)]
    assert await work.reload(life.db, operation_id) is None
    assert (
        await work.begin_step(
            life.db, life.owned, operation_id=operation_id, segment_id=claimed.segments[0].id, step="bind",
            component="sw-0", intent={},
        )
        is None
    )  # fmt: skip


async def test_giving_memory_back_comes_before_handing_it_out(life: Life) -> None:
    await life.claim("first", host="node-0")
    await life.in_phase("leaving", P.RELEASING, pool="dcds", size_bytes=GiB)
    await life.in_phase("erasing", P.SANITIZING, pool="dcds", size_bytes=GiB)
    due = await work.due(life.db, life.owned, busy=[], work_max=10)
    assert [goal["segments"][0]["phase"] for goal in due] == ["releasing", "binding", "sanitizing"]


async def test_a_scan_is_given_what_hardware_should_show(life: Life) -> None:
    expected = set()
    for phase in Phase:
        made = await life.in_phase(phase, phase, pool="dcds", size_bytes=GiB)
        if phase in (P.BOUND, P.ONLINE, P.LOST):
            expected.add(str(made.segments[0].id))
    scanned = await work.to_scan(life.db, life.owned)
    assert {segment["id"] for segment in scanned} == expected
