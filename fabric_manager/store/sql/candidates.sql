-- Which devices could hold a request, and why the others could not. Reads only; claim checks again under lock.

-- Has the host a port on the device's switch?
CREATE OR REPLACE FUNCTION host_reaches(host_id uuid, d device) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT EXISTS (
      SELECT FROM host_port hp JOIN switch w ON w.name = hp.switch_name
      JOIN vcs v ON v.switch_id = w.id AND v.upstream_port = hp.port_number
      WHERE hp.host_id = host_reaches.host_id AND w.id = d.switch_id)
  );
END $$;

-- Has it a way to attach: a free vPPB, or on a DCD the standing attachment?
CREATE OR REPLACE FUNCTION host_can_attach(host_id uuid, d device) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT EXISTS (
      SELECT FROM attachment t
      WHERE d.kind = 'dcd' AND t.live AND t.host_id = host_can_attach.host_id AND t.device_no = d.number
    ) OR NOT choose_vppb((SELECT h FROM host h WHERE h.id = host_can_attach.host_id), d) ? 'refusal'
  );
END $$;

-- Can it be driven and erased? Bytes are handed on only erased, and spans are chosen only where hardware lets us.
CREATE OR REPLACE FUNCTION can_serve(d device) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE d.kind
    WHEN 'mld' THEN 'sanitize_ld' = ANY (d.capabilities)
    WHEN 'dcd' THEN d.capabilities @> ARRAY['dc_prescriptive', 'sanitize_on_release']
    ELSE 'sanitize_device' = ANY (d.capabilities) END
$$;

-- Is it kept for others?
CREATE OR REPLACE FUNCTION may_use(d device, request jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT d.reserved_for = '{}' OR d.reserved_for && ARRAY[
    'tenant:' || (request->>'tenant'), 'cluster:' || (request#>>'{consumer,cluster}')]
$$;

-- The bytes the device would grant for `size`, or NULL when it has no room.
CREATE OR REPLACE FUNCTION grant_of(d device, size bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT CASE WHEN d.kind <> 'dcd' THEN (
      SELECT min(l.size_bytes) FROM logical_device l
      WHERE l.device_no = d.number AND d.free_lds & (1 << l.ld_id) <> 0 AND l.size_bytes >= size
    ) ELSE (
      SELECT g FROM (SELECT (size + d.allocation_step_bytes - 1) / d.allocation_step_bytes * d.allocation_step_bytes g) r
      WHERE g <= d.free_bytes
    ) END
  );
END $$;

-- The most the device could grant to one request now; with `soon`, once what is on its way back has been erased.
CREATE OR REPLACE FUNCTION largest_grant(d device, soon boolean) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT coalesce(CASE WHEN d.kind <> 'dcd' THEN (
      SELECT max(l.size_bytes) FROM logical_device l
      WHERE l.device_no = d.number AND (d.free_lds & (1 << l.ld_id) <> 0 OR soon AND EXISTS (
        SELECT FROM segment s WHERE s.device_no = l.device_no AND s.ld_id = l.ld_id
          AND s.phase IN ('releasing', 'sanitizing') AND s.goal IN ('release', 'undo')))
    ) ELSE d.free_bytes + CASE WHEN soon THEN coalesce((
      SELECT sum(s.size_bytes) FROM segment s WHERE s.device_no = d.number
        AND s.phase IN ('releasing', 'sanitizing') AND s.goal IN ('release', 'undo')), 0) ELSE 0 END
    END, 0)
  );
END $$;

CREATE OR REPLACE FUNCTION kinds_for(attachment text) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE attachment WHEN 'logical-device' THEN ARRAY['mld', 'sld'] WHEN 'dynamic-capacity' THEN ARRAY['dcd']
              ELSE ARRAY['mld', 'sld', 'dcd'] END
$$;

-- arg: request, tried (device numbers already refused), window_max. Answers {tenant_id, candidates}.
CREATE OR REPLACE FUNCTION claim_candidates(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
  request jsonb := arg->'request';
  size bigint := (request->>'size_bytes')::bigint;
  h uuid := (SELECT id FROM host WHERE name = request->>'host');
  binds boolean := (request->>'bind')::boolean;
  tried integer[] := ARRAY(SELECT n::integer FROM jsonb_array_elements_text(arg->'tried') n);
BEGIN
  RETURN jsonb_build_object(
    'tenant_id', (SELECT id FROM tenant WHERE name = request->>'tenant'),
    'candidates', (
      SELECT coalesce(jsonb_agg(jsonb_build_object(
        'number', d.number, 'granted_bytes', d.granted, 'free_bytes', d.free_bytes, 'latency_ns', d.latency_ns)), '[]')
      FROM pool p CROSS JOIN LATERAL (
        SELECT x.*, grant_of(x, size) AS granted FROM device x
        WHERE x.pool_id = p.id AND x.free_bytes >= size AND x.free_bytes > 0
          AND x.health = 'ok' AND x.admin_state = 'enabled' AND can_serve(x) AND may_use(x, request)
          AND (request->>'device' IS NULL OR x.name = request->>'device')
          AND x.number <> ALL (tried)
          AND (request->>'host' IS NULL OR host_reaches(h, x) AND (NOT binds OR host_can_attach(h, x)))
          AND grant_of(x, size) IS NOT NULL
        ORDER BY x.free_bytes, x.number LIMIT (arg->>'window_max')::integer) d
      WHERE p.kind = ANY (kinds_for(request->>'attachment')) AND (request->>'pool' IS NULL OR p.name = request->>'pool')));
END $$;

-- How many devices each filter left, in the order of the filters, and what the survivors could still give.
CREATE OR REPLACE FUNCTION claim_funnel(arg jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  WITH asked AS (
    SELECT arg->'request' AS r, (arg#>>'{request,size_bytes}')::bigint AS size,
           (SELECT id FROM host WHERE name = arg#>>'{request,host}') AS host_id
  ), judged AS (
    SELECT d.free_bytes, d AS whole,
      d.health = 'unknown' AS unread,
      d.health = 'ok' AS healthy,
      d.admin_state = 'enabled' AS enabled,
      r->>'host' IS NULL OR host_reaches(host_id, d) AS reachable,
      r->>'host' IS NULL OR NOT (r->>'bind')::boolean OR host_can_attach(host_id, d) AS attachable,
      d.pool_id IS NOT NULL AND d.kind = ANY (kinds_for(r->>'attachment')) AND may_use(d, r)
        AND (r->>'device' IS NULL OR d.name = r->>'device')
        AND (r->>'pool' IS NULL OR d.pool_id = (SELECT id FROM pool WHERE name = r->>'pool')) AS pooled,
      can_serve(d) AS capable,
      grant_of(d, size) IS NOT NULL AS roomy
    FROM device d, asked WHERE d.admin_state <> 'retired'
  ), passed AS (
    -- a device passes a filter when it passes that one and all before it
    SELECT *, healthy AS to_enabled, healthy AND enabled AS to_reachable, healthy AND enabled AND reachable AS to_attachable,
      healthy AND enabled AND reachable AND attachable AS to_pool,
      healthy AND enabled AND reachable AND attachable AND pooled AS to_capable,
      healthy AND enabled AND reachable AND attachable AND pooled AND capable AS to_space
    FROM judged
  ), survivors AS (
    SELECT * FROM passed WHERE to_space
  )
  SELECT jsonb_build_object(
    'steps', (SELECT jsonb_build_array(
      jsonb_build_object('filter', 'known', 'left', count(*)),
      jsonb_build_object('filter', 'healthy', 'left', count(*) FILTER (WHERE to_enabled)),
      jsonb_build_object('filter', 'enabled', 'left', count(*) FILTER (WHERE to_reachable)),
      jsonb_build_object('filter', 'reachable', 'left', count(*) FILTER (WHERE to_attachable)),
      jsonb_build_object('filter', 'attachable', 'left', count(*) FILTER (WHERE to_pool)),
      jsonb_build_object('filter', 'pool', 'left', count(*) FILTER (WHERE to_capable)),
      jsonb_build_object('filter', 'capable', 'left', count(*) FILTER (WHERE to_space)),
      jsonb_build_object('filter', 'space', 'left', count(*) FILTER (WHERE to_space AND roomy))
    ) FROM passed),
    'undiscovered', (SELECT count(*) FROM judged WHERE unread AND pooled),
    'free_bytes', (SELECT coalesce(sum(free_bytes), 0) FROM survivors),
    'largest_fit_bytes', (SELECT coalesce(max(largest_grant(whole, false)), 0) FROM survivors),
    'largest_fit_soon_bytes', (SELECT coalesce(max(largest_grant(whole, true)), 0) FROM survivors))
$$;

-- What a claim would meet, in one snapshot: candidates with names, funnel, the tenant's quota, the host's fence.
-- arg: request, window_max.
CREATE OR REPLACE FUNCTION claim_preview(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN jsonb_build_object(
    'candidates', (
      SELECT coalesce(jsonb_agg(c || jsonb_build_object('device', d.name, 'pool', p.name)), '[]')
      FROM jsonb_array_elements(claim_candidates(arg || '{"tried": []}')->'candidates') c
      JOIN device d ON d.number = (c->>'number')::integer JOIN pool p ON p.id = d.pool_id),
    'funnel', claim_funnel(arg),
    'quota', (
      SELECT jsonb_build_object('quota_bytes', t.quota_bytes, 'used_bytes', t.used_bytes,
        'quota_allocations', t.quota_allocations, 'used_allocations', t.used_allocations)
      FROM tenant t WHERE t.name = arg#>>'{request,tenant}'),
    'fence', (
      SELECT jsonb_build_object('host', h.name, 'reason', h.fence_reason)
      FROM host h WHERE h.name = arg#>>'{request,host}' AND h.fenced_at IS NOT NULL
        AND (arg#>>'{request,bind}')::boolean));
END $$;

-- Kept so that a key that was only refused has a story; the same refusal of a key at most once in ten seconds.
CREATE OR REPLACE FUNCTION record_refusal(arg jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  request jsonb := arg->'request';
  recent timestamptz := now() - interval '10 seconds';
BEGIN
  PERFORM count_one('refusals', arg#>>'{refusal,code}');
  IF EXISTS (SELECT FROM event e WHERE e.key = arg->>'key' AND e.type = 'allocation.refused' AND e.at > recent
               AND e.after->>'code' = arg#>>'{refusal,code}')
     OR EXISTS (SELECT FROM event_outbox e WHERE e.key = arg->>'key' AND e.type = 'allocation.refused' AND e.at > recent
               AND e.after->>'code' = arg#>>'{refusal,code}') THEN
    RETURN;
  END IF;
  PERFORM record_event('allocation.refused', 'allocation', arg->>'key', arg->'ctx', NULL, arg->'refusal',
    jsonb_build_object('key', arg->>'key', 'claim_uid', request#>>'{consumer,uid}', 'tenant', request->>'tenant',
      'cluster', request#>>'{consumer,cluster}', 'host', request->>'host', 'pool', request->>'pool',
      'device', request->>'device'));
END $$;

-- arg: name, id, ctx. The tenant's id; made when it was not there.
CREATE OR REPLACE FUNCTION ensure_tenant(arg jsonb) RETURNS uuid
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tenant (id, name) VALUES ((arg->>'id')::uuid, arg->>'name') ON CONFLICT DO NOTHING;
  IF FOUND THEN
    PERFORM record_event('tenant.created', 'tenant', arg->>'id', arg->'ctx', NULL,
      jsonb_build_object('name', arg->>'name'), jsonb_build_object('tenant', arg->>'name'));
  END IF;
  RETURN (SELECT id FROM tenant WHERE name = arg->>'name');
END $$;
