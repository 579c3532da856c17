-- Reserve capacity, and bind it where a host is named: one round trip, one commit.

-- One device, looked at under its lock, where everything that two claims could break is checked once more.
-- Runs in a block of its own so that a device that turns out not to fit is unlocked again.
CREATE OR REPLACE FUNCTION try_device(arg jsonb, wanted_number integer, wait boolean) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  ctx jsonb := arg->'ctx';
  request jsonb := arg->'request';
  size bigint := (request->>'size_bytes')::bigint;
  ttl integer := (request->>'reservation_ttl_s')::integer;
  d device;
  h host;
  t tenant;
  a allocation;
  ld logical_device;
  granted bigint;
  refusal jsonb;
BEGIN
  IF wait THEN
    SELECT * INTO d FROM device WHERE number = wanted_number FOR NO KEY UPDATE;
  ELSE
    SELECT * INTO d FROM device WHERE number = wanted_number FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      RETURN jsonb_build_object('outcome', 'locked');
    END IF;
  END IF;
  IF d.health <> 'ok' OR d.admin_state <> 'enabled' OR d.pool_id IS NULL OR NOT can_serve(d)
     OR NOT may_use(d, request) THEN
    RAISE EXCEPTION USING ERRCODE = 'FM002', MESSAGE = '{"outcome": "full"}';
  END IF;
  IF d.kind <> 'dcd' THEN
    SELECT * INTO ld FROM logical_device l
    WHERE l.device_no = d.number AND d.free_lds & (1 << l.ld_id) <> 0 AND l.size_bytes >= size
    ORDER BY l.size_bytes, l.ld_id LIMIT 1;
    granted := ld.size_bytes;
  ELSE
    granted := (size + d.allocation_step_bytes - 1) / d.allocation_step_bytes * d.allocation_step_bytes;
  END IF;
  IF granted IS NULL OR granted > d.free_bytes THEN
    RAISE EXCEPTION USING ERRCODE = 'FM002', MESSAGE = '{"outcome": "full"}';
  END IF;

  IF request->>'host' IS NOT NULL THEN
    SELECT * INTO h FROM host WHERE name = request->>'host' FOR NO KEY UPDATE;
  END IF;
  SELECT * INTO t FROM tenant WHERE id = (arg->>'tenant_id')::uuid FOR NO KEY UPDATE;
  IF t.used_bytes + granted > t.quota_bytes OR t.used_allocations + 1 > t.quota_allocations THEN
    RAISE EXCEPTION USING ERRCODE = 'FM002', MESSAGE = jsonb_build_object('outcome', 'refused', 'refusal',
      jsonb_build_object('code', 'quota_exceeded', 'tenant', t.name, 'asked_bytes', granted,
        'quota_bytes', t.quota_bytes, 'used_bytes', t.used_bytes,
        'quota_allocations', t.quota_allocations, 'used_allocations', t.used_allocations));
  END IF;

  INSERT INTO allocation (id, key, tenant_id, consumer_kind, cluster, namespace, consumer_name, claim_uid, request,
                          size_bytes, granted_bytes, pool_id, host_id, qos_class, isolation, phase, labels,
                          reservation_ttl_s, reservation_expires_at, conditions)
  VALUES ((arg->>'allocation_id')::uuid, arg->>'key', t.id, request#>>'{consumer,kind}', request#>>'{consumer,cluster}',
          request#>>'{consumer,namespace}', request#>>'{consumer,name}', request#>>'{consumer,uid}', request,
          size, granted, d.pool_id, h.id, 'standard', 'shared', 'reserved', request->'labels',
          ttl, now() + make_interval(secs => ttl), conditions_of('reserved', '[]'))
  RETURNING * INTO a;
  INSERT INTO segment (id, allocation_id, device_no, ld_id, size_bytes, phase)
  VALUES ((arg->>'segment_id')::uuid, a.id, d.number, ld.ld_id, granted, 'reserved');
  PERFORM record_event('allocation.reserved', 'allocation', a.id::text, ctx, NULL,
    jsonb_build_object('phase', 'reserved', 'granted_bytes', granted, 'device', d.name, 'logical_device', ld.ld_id),
    allocation_dims(a));

  IF h.id IS NOT NULL AND (request->>'bind')::boolean THEN
    refusal := bind_segments(a, h, arg);
    IF refusal IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = 'FM002',
        MESSAGE = jsonb_build_object('outcome', 'refused', 'refusal', refusal);
    END IF;
  END IF;
  RETURN jsonb_build_object('outcome', 'granted');
EXCEPTION WHEN SQLSTATE 'FM002' THEN
  RETURN SQLERRM::jsonb;
END $$;

CREATE OR REPLACE FUNCTION request_differences(have jsonb, got jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT jsonb_agg(jsonb_build_object('field', f, 'have', have->f, 'got', got->f) ORDER BY f)
  FROM jsonb_object_keys(have || got) f
  WHERE have->f IS DISTINCT FROM got->f AND f NOT IN ('labels', 'deadline_s', 'reservation_ttl_s')
$$;

-- What a second PUT of a key gets. A reservation's time-to-live starts anew.
CREATE OR REPLACE FUNCTION replay(a allocation, arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  differs jsonb := request_differences(a.request, arg->'request');
BEGIN
  IF differs IS NOT NULL THEN
    RETURN jsonb_build_object('outcome', 'mismatch', 'differs', differs);
  END IF;
  IF a.phase = 'released' THEN
    RETURN jsonb_build_object('outcome', 'released');
  END IF;
  IF a.phase = 'reserved' AND a.reservation_ttl_s IS NOT NULL THEN
    UPDATE allocation SET generation = generation + 1,
      reservation_expires_at = now() + make_interval(secs => reservation_ttl_s)
    WHERE id = a.id RETURNING * INTO a;
  END IF;
  RETURN jsonb_build_object('outcome', 'replayed', 'allocation', allocation_document(a));
END $$;

-- arg: key, allocation_id, segment_id, attachment_id, operation_id, tenant_id, request (defaults filled in),
-- candidates (device numbers, best first), ctx. Answers outcome granted, replayed, mismatch, released, full, refused or
-- no_tenant; the last three leave nothing behind, not even the key.
CREATE OR REPLACE FUNCTION claim(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  k allocation_key;
  a allocation;
  candidate integer;
  locked integer[] := '{}';
  answer jsonb;
  refused jsonb;
BEGIN
  LOOP
    INSERT INTO allocation_key (key) VALUES (arg->>'key') ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
    SELECT * INTO k FROM allocation_key WHERE key = arg->>'key' FOR UPDATE;
    CONTINUE WHEN NOT FOUND;  -- its owner was refused and took it back
    UPDATE allocation SET forgotten = true WHERE key = k.key AND NOT forgotten AND k.expires_at <= now();
    SELECT * INTO a FROM allocation WHERE key = k.key AND NOT forgotten;
    IF FOUND THEN
      RETURN replay(a, arg);
    END IF;
    IF k.expires_at > now() AND k.tombstone_scopes && ARRAY[
      'any', 'tenant:' || (arg#>>'{request,tenant}'), 'cluster:' || (arg#>>'{request,consumer,cluster}'),
      'host:' || (arg#>>'{request,host}')
    ] THEN
      RETURN jsonb_build_object('outcome', 'released');
    END IF;
    UPDATE allocation_key SET tombstone_scopes = '{}', expires_at = NULL WHERE key = k.key;
    EXIT;
  END LOOP;

  IF arg->>'tenant_id' IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'FM002', MESSAGE = '{"outcome": "no_tenant"}';
  END IF;
  FOR candidate IN SELECT n::integer FROM jsonb_array_elements_text(arg->'candidates') n LOOP
    answer := try_device(arg, candidate, wait => false);
    IF answer->>'outcome' = 'granted' THEN
      EXIT;
    ELSIF answer->>'outcome' = 'locked' THEN
      locked := locked || candidate;
    ELSIF answer->>'outcome' = 'refused' THEN
      refused := answer->'refusal';
    END IF;
  END LOOP;
  IF answer->>'outcome' IS DISTINCT FROM 'granted' THEN
    -- They fitted a moment ago and somebody holds them: say no only after having seen them.
    FOREACH candidate IN ARRAY locked LOOP
      answer := try_device(arg, candidate, wait => true);
      EXIT WHEN answer->>'outcome' = 'granted';
      IF answer->>'outcome' = 'refused' THEN
        refused := answer->'refusal';
      END IF;
    END LOOP;
  END IF;
  IF answer->>'outcome' IS DISTINCT FROM 'granted' THEN
    RAISE EXCEPTION USING ERRCODE = 'FM002', MESSAGE = CASE
      WHEN refused IS NULL THEN jsonb_build_object('outcome', 'full')
      ELSE jsonb_build_object('outcome', 'refused', 'refusal', refused) END;
  END IF;
  SELECT * INTO a FROM allocation WHERE id = (arg->>'allocation_id')::uuid;
  RETURN jsonb_build_object('outcome', 'granted', 'allocation', allocation_document(a));
EXCEPTION WHEN SQLSTATE 'FM002' THEN
  RETURN SQLERRM::jsonb;
END $$;
