-- Give memory back: the goal changes at once, the bytes when hardware and host have let go.

CREATE OR REPLACE FUNCTION tombstone_hours() RETURNS interval LANGUAGE sql IMMUTABLE AS $$ SELECT interval '24 hours' $$;

-- The lifecycle event that `goal` (release or unbind) means for a segment; NULL when only the goal changes.
CREATE OR REPLACE FUNCTION leaving_event(s segment, a allocation, new_goal text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT CASE
      WHEN s.phase = 'lost' AND new_goal = 'release' AND coalesce(s.node_state, 'offline') <> 'offline'
           AND a.conditions @> '[{"type": "Reappeared", "status": "True"}]' THEN 'release-wanted-present'
      WHEN s.phase IN ('reserved', 'binding', 'bound', 'online', 'lost', 'failed') THEN new_goal || '-wanted' END
  );
END $$;

-- Lets every segment of `a` leave. A lost one that the host may still hold waits for the host's word like an online one.
CREATE OR REPLACE FUNCTION leave(a allocation, new_goal text, arg jsonb) RETURNS allocation
LANGUAGE plpgsql AS $$
DECLARE
  s segment;
  occurs text;
BEGIN
  PERFORM FROM device WHERE number IN (SELECT device_no FROM segment WHERE allocation_id = a.id)
    ORDER BY number FOR NO KEY UPDATE;
  FOR s IN SELECT * FROM segment WHERE allocation_id = a.id AND phase <> 'released' ORDER BY device_no LOOP
    occurs := leaving_event(s, a, new_goal);
    UPDATE segment SET
      phase = CASE WHEN occurs IS NULL THEN phase ELSE next_phase(phase, occurs) END,
      -- hardware no longer shows it, so there is nothing the host could still hold
      node_state = CASE WHEN phase = 'lost' AND occurs = 'release-wanted' THEN 'offline' ELSE node_state END,
      goal = new_goal, updated_at = now()
    WHERE id = s.id;
    IF occurs = 'release-wanted-present' THEN
      UPDATE attachment SET state = 'bound', updated_at = now() WHERE id = s.attachment_id;
    END IF;
  END LOOP;
  UPDATE allocation SET goal = new_goal, reservation_expires_at = NULL, deadline_at = NULL WHERE id = a.id;
  SELECT * INTO a FROM refresh_allocation(a.id, arg->'ctx');
  IF a.phase = 'released' THEN
    PERFORM finish_operation(a.id, 'superseded', 'released');
    UPDATE allocation_key SET expires_at = now() + tombstone_hours() WHERE key = a.key;
  ELSE
    PERFORM open_operation(a, (arg->>'operation_id')::uuid, new_goal, arg->'ctx');
  END IF;
  RETURN a;
END $$;

-- arg: key, operation_id, tombstone_scope, ctx.
-- Answers outcome releasing (work remains), released, or absent: then the key now has a tombstone.
CREATE OR REPLACE FUNCTION release(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  a allocation;
BEGIN
  INSERT INTO allocation_key (key, tombstone_scopes, expires_at)
  VALUES (arg->>'key', ARRAY[arg->>'tombstone_scope'], now() + tombstone_hours())
  ON CONFLICT (key) DO UPDATE SET key = excluded.key;  -- waits for, and locks, whoever has it
  SELECT * INTO a FROM allocation WHERE key = arg->>'key' AND NOT forgotten;
  IF NOT FOUND THEN
    -- beside those of others that still stand: each scope was promised that its own late request stays dead
    UPDATE allocation_key SET expires_at = now() + tombstone_hours(), tombstone_scopes = ARRAY(
      SELECT scope FROM unnest(tombstone_scopes) scope WHERE expires_at > now()
      UNION SELECT arg->>'tombstone_scope' ORDER BY 1)
    WHERE key = arg->>'key';
    RETURN jsonb_build_object('outcome', 'absent');
  END IF;
  IF a.phase = 'released' THEN
    RETURN jsonb_build_object('outcome', 'released');
  END IF;
  IF a.goal = 'release' THEN
    RETURN jsonb_build_object('outcome', 'releasing', 'allocation', allocation_document(a));
  END IF;
  a := leave(a, 'release', arg);
  RETURN jsonb_build_object('outcome', CASE a.phase WHEN 'released' THEN 'released' ELSE 'releasing' END,
                            'allocation', allocation_document(a));
END $$;

-- arg: key, operation_id, ctx. Answers outcome unbinding, reserved (already so), absent, released or refused.
CREATE OR REPLACE FUNCTION unbind(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  a allocation;
BEGIN
  PERFORM FROM allocation_key WHERE key = arg->>'key' FOR UPDATE;
  SELECT * INTO a FROM allocation WHERE key = arg->>'key' AND NOT forgotten;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('outcome', 'absent');
  ELSIF a.phase = 'released' THEN
    RETURN jsonb_build_object('outcome', 'released');
  ELSIF a.phase = 'reserved' OR a.goal = 'unbind' THEN
    RETURN jsonb_build_object('outcome', CASE a.phase WHEN 'reserved' THEN 'reserved' ELSE 'unbinding' END,
                              'allocation', allocation_document(a));
  ELSIF a.phase NOT IN ('binding', 'bound', 'online') THEN
    RETURN jsonb_build_object('outcome', 'refused', 'refusal', jsonb_build_object(
      'code', CASE WHEN a.phase IN ('release_blocked', 'releasing', 'sanitizing') THEN 'releasing'
                   ELSE 'illegal_phase' END, 'phase', a.phase));
  END IF;
  a := leave(a, 'unbind', arg);
  RETURN jsonb_build_object('outcome', 'unbinding', 'allocation', allocation_document(a));
END $$;

-- A reservation that nobody bound in time, and a failed one after its day: arg ctx, batch_max. Answers how many.
CREATE OR REPLACE FUNCTION expire_allocations(arg jsonb) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  k text;
  a allocation;
  expired integer := 0;
BEGIN
  FOR k IN
    SELECT key FROM (
      SELECT key FROM allocation WHERE phase = 'reserved' AND reservation_expires_at < now()
      UNION ALL
      SELECT key FROM allocation WHERE phase = 'failed' AND NOT forgotten AND finished_at < now() - tombstone_hours()
    ) due ORDER BY key LIMIT (arg->>'batch_max')::integer
  LOOP
    PERFORM FROM allocation_key WHERE key = k FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    SELECT * INTO a FROM allocation WHERE key = k AND NOT forgotten;
    IF a.phase = 'reserved' AND a.reservation_expires_at < now()
       OR a.phase = 'failed' AND a.finished_at < now() - tombstone_hours() THEN
      PERFORM FROM device WHERE number IN (SELECT device_no FROM segment WHERE allocation_id = a.id)
        ORDER BY number FOR NO KEY UPDATE;
      UPDATE segment SET phase = next_phase(phase, 'expired'), goal = 'release', updated_at = now()
      WHERE allocation_id = a.id;
      UPDATE allocation SET goal = 'release', reservation_expires_at = NULL WHERE id = a.id;
      PERFORM refresh_allocation(a.id, arg->'ctx', '{"reason": "expired"}');
      UPDATE allocation_key SET expires_at = now() + tombstone_hours() WHERE key = k;
      expired := expired + 1;
    END IF;
  END LOOP;
  RETURN expired;
END $$;
