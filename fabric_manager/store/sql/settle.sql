-- What the reconciler read back becomes a fact. Only the fabric's present owner may say so.

-- What a take-over and the present owner's writes exclude each other by. Not the fabric's row: every new operation
-- refers to it, and under load a take-over would never find it unlocked.
CREATE OR REPLACE FUNCTION epoch_lock(fabric_wanted uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended('fabric epoch ' || fabric_wanted, 0) $$;

-- Fails unless `mine` is the epoch in force; holds off a take-over until the transaction ends.
CREATE OR REPLACE FUNCTION guard_epoch(fabric_wanted uuid, mine bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(epoch_lock(fabric_wanted));
  PERFORM FROM fabric WHERE id = fabric_wanted AND epoch = mine;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'fabric % has another owner than epoch %', fabric_wanted, mine USING ERRCODE = 'FM003';
  END IF;
END $$;

-- What else changes when a segment goes from one phase to another.
CREATE OR REPLACE FUNCTION after_transition(s segment, was text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF s.phase = 'bound' AND was = 'binding' THEN
    UPDATE attachment SET state = 'bound', updated_at = now() WHERE id = s.attachment_id AND state <> 'bound';
  ELSIF s.phase = 'lost' THEN
    -- on a DCD only the extents may be gone: others that hang on the same attachment were read back through it
    UPDATE attachment SET state = 'wanted', updated_at = now()
    WHERE id = s.attachment_id AND NOT EXISTS (
      SELECT FROM segment o WHERE o.attachment_id = s.attachment_id AND o.phase IN ('bound', 'online', 'release_blocked'));
  END IF;
  IF s.phase = 'sanitizing' THEN
    UPDATE logical_device SET dirty = true WHERE device_no = s.device_no AND ld_id = s.ld_id;
  END IF;
  IF s.phase IN ('sanitizing', 'failed') THEN
    -- an MLD's attachment ends with its segment, a DCD's stands on;
    -- and what the last scan saw on its vPPB must not keep the next claim from it
    UPDATE vppb v SET state = 'free', port_number = NULL, ld_id = NULL, updated_at = now() FROM attachment t
    WHERE t.id = s.attachment_id AND t.kind <> 'dcd' AND t.live AND v.state <> 'free'
      AND (v.switch_id, v.vcs_number, v.number) = (t.switch_id, t.vcs_number, t.vppb_number)
      AND (v.state = 'busy' OR (v.port_number, v.ld_id) IS NOT DISTINCT FROM (t.port_number, t.ld_id));
    UPDATE attachment SET live = false, state = 'gone', updated_at = now()
    WHERE id = s.attachment_id AND kind <> 'dcd' AND live;
  END IF;
  IF s.phase <> 'quarantined' AND (was = 'sanitizing' OR s.phase = 'failed') THEN
    UPDATE logical_device SET dirty = false WHERE device_no = s.device_no AND ld_id = s.ld_id;
    DELETE FROM extent WHERE segment_id = s.id;
    UPDATE segment SET attachment_id = NULL, dpa_space = NULL, node_state = NULL, node_boot_id = NULL,
                       verified_at = NULL, numa_node = NULL, dax_device = NULL
    WHERE id = s.id;
  END IF;
END $$;

-- A DCD that forgot memory without erasing it chooses itself whom it gives those blocks to: no counter holds them back,
-- so nothing more is put on it until a person has looked.
CREATE OR REPLACE FUNCTION cordon_forgetful(device_no integer, ctx jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  d device;
BEGIN
  UPDATE device SET admin_state = 'cordoned', generation = generation + 1, updated_at = now()
  WHERE number = device_no AND admin_state = 'enabled' RETURNING * INTO d;
  IF FOUND THEN
    PERFORM record_event('device.cordoned', 'device', d.id::text, ctx, jsonb_build_object('admin_state', 'enabled'),
      jsonb_build_object('admin_state', 'cordoned', 'reason', 'it lost memory in use without erasing it'),
      jsonb_build_object('device', d.name));
  END IF;
END $$;

-- arg: segment_id, from (phase), event, fabric_id, epoch, ctx; optional failure {code, detail, …}, undo_operation_id,
-- facts, forgotten (the device lost the contents' place without erasing them).
-- Answers outcome settled, with the operation that it ended, or moved when the segment is no longer in `from`:
-- somebody else decided meanwhile.
CREATE OR REPLACE FUNCTION settle(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  ctx jsonb := arg->'ctx';
  s segment;
  a allocation;
  ends text;
  o operation;
BEGIN
  PERFORM guard_epoch((arg->>'fabric_id')::uuid, (arg->>'epoch')::bigint);
  PERFORM FROM allocation_key k JOIN allocation x ON x.key = k.key JOIN segment y ON y.allocation_id = x.id
    WHERE y.id = (arg->>'segment_id')::uuid FOR UPDATE OF k;
  SELECT * INTO s FROM segment WHERE id = (arg->>'segment_id')::uuid;
  IF NOT FOUND OR s.phase <> arg->>'from' THEN
    RETURN jsonb_build_object('outcome', 'moved', 'phase', s.phase);
  END IF;
  PERFORM FROM device WHERE number = s.device_no FOR NO KEY UPDATE;
  IF (arg->>'forgotten')::boolean THEN
    PERFORM cordon_forgetful(s.device_no, ctx);
  END IF;
  UPDATE segment SET
    phase = next_phase(s.phase, arg->>'event'),
    goal = CASE WHEN arg->>'event' = 'undo' THEN 'undo' WHEN arg->>'event' = 'sanitized-unbind' THEN 'hold' ELSE goal END,
    verified_at = CASE WHEN arg->>'event' = 'bind-read-back' THEN now() ELSE verified_at END,
    unbound_at = CASE WHEN s.phase = 'releasing' AND arg->>'event' = 'gone' THEN now() ELSE unbound_at END,
    node_state = CASE
      WHEN s.phase = 'release_blocked' AND arg->>'event' IN ('gone', 'fenced') THEN 'offline'
      WHEN arg->>'event' IN ('undo', 'bind-untouched') THEN 'offline' ELSE node_state END,
    updated_at = now()
  WHERE id = s.id;
  PERFORM after_transition(t, s.phase) FROM segment t WHERE t.id = s.id;
  UPDATE allocation SET
    failure = coalesce(arg->'failure', failure),
    goal = CASE WHEN arg->>'event' = 'undo' THEN 'undo' WHEN arg->>'event' = 'sanitized-unbind' THEN 'hold' ELSE goal END,
    host_id = CASE WHEN arg->>'event' = 'sanitized-unbind' THEN NULL ELSE host_id END,
    reservation_expires_at = CASE WHEN arg->>'event' = 'sanitized-unbind'
      THEN now() + make_interval(secs => reservation_ttl_s) ELSE reservation_expires_at END
  WHERE id = s.allocation_id RETURNING * INTO a;
  SELECT * INTO o FROM operation WHERE allocation_id = a.id AND state IN ('pending', 'running');
  SELECT * INTO a FROM refresh_allocation(a.id, ctx, coalesce(arg->'facts', '{}')
    || CASE WHEN arg ? 'failure' THEN jsonb_build_object('failure', arg->'failure') ELSE '{}' END);
  IF arg->>'event' = 'undo' AND o.goal = 'bind' THEN
    ends := 'failed';
    PERFORM finish_operation(a.id, ends, coalesce(arg#>>'{failure,detail}', 'undone'));
    PERFORM open_operation(a, (arg->>'undo_operation_id')::uuid, 'undo', ctx);
  ELSE
    ends := operation_end(o.goal, a.phase);
    IF ends IS NOT NULL THEN
      PERFORM finish_operation(a.id, ends, coalesce(arg#>>'{failure,detail}', a.phase));
    END IF;
  END IF;
  IF a.phase = 'released' THEN
    UPDATE allocation_key SET expires_at = now() + tombstone_hours() WHERE key = a.key;
  END IF;
  RETURN jsonb_build_object('outcome', 'settled', 'phase', a.phase, 'ended', CASE WHEN ends IS NOT NULL
    AND o.id IS NOT NULL THEN jsonb_build_object('goal', o.goal, 'state', ends, 'age_s',
      extract(epoch FROM clock_timestamp() - o.created_at)) END);
END $$;

-- A lost segment that hardware shows again stays lost; its consumer is told.
-- arg: fabric_id, epoch, allocation_id, shown, ctx.
CREATE OR REPLACE FUNCTION mark_reappeared(arg jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  a allocation;
  wanted uuid := arg->>'allocation_id';
  shown boolean := arg->>'shown';
BEGIN
  PERFORM guard_epoch((arg->>'fabric_id')::uuid, (arg->>'epoch')::bigint);
  PERFORM FROM allocation_key k JOIN allocation x ON x.key = k.key WHERE x.id = wanted FOR UPDATE OF k;
  UPDATE allocation SET generation = generation + 1, updated_at = now(),
    conditions = set_condition(conditions, 'Reappeared', shown, CASE WHEN shown THEN 'ReadBack' ELSE 'Gone' END,
      CASE WHEN shown THEN 'hardware shows the lost memory again; ask for the binding anew, or release it'
           ELSE 'hardware does not show the memory' END)
  WHERE id = wanted AND phase = 'lost'
    AND (conditions @> '[{"type": "Reappeared", "status": "True"}]') <> shown RETURNING * INTO a;
  IF FOUND THEN
    PERFORM record_event('allocation.reappeared', 'allocation', a.id::text, arg->'ctx', NULL,
      jsonb_build_object('shown', shown), allocation_dims(a));
  END IF;
END $$;
