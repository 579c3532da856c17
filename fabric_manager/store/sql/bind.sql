-- Choose where a segment hangs on the switch, and on a DCD which spans it gets. Hardware is asked later.

-- A free vPPB of this host towards the device, or why there is none.
CREATE OR REPLACE FUNCTION choose_vppb(h host, d device) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  found jsonb;
  reachable boolean;
BEGIN
  SELECT jsonb_build_object('switch_id', p.switch_id, 'vcs', p.vcs_number, 'vppb', p.number) INTO found
  FROM host_port hp
  JOIN switch w ON w.name = hp.switch_name AND w.id = d.switch_id
  JOIN vcs v ON v.switch_id = w.id AND v.upstream_port = hp.port_number
  JOIN vppb p ON p.switch_id = v.switch_id AND p.vcs_number = v.number
  WHERE hp.host_id = h.id AND p.state = 'free' AND NOT EXISTS (
    SELECT FROM attachment t WHERE t.live AND t.switch_id = p.switch_id AND t.vcs_number = p.vcs_number
      AND t.vppb_number = p.number)
  ORDER BY p.vcs_number, p.number LIMIT 1;
  IF found IS NOT NULL AND (h.vppbs_max IS NULL OR h.vppbs_max > (
    SELECT count(*) FROM attachment t WHERE t.live AND t.host_id = h.id)) THEN
    RETURN found;
  END IF;
  SELECT EXISTS (
    SELECT FROM host_port hp JOIN switch w ON w.name = hp.switch_name
    JOIN vcs v ON v.switch_id = w.id AND v.upstream_port = hp.port_number
    WHERE hp.host_id = h.id AND w.id = d.switch_id) INTO reachable;
  RETURN jsonb_build_object('refusal', jsonb_build_object(
    'code', CASE WHEN reachable THEN 'host_limit_reached' ELSE 'not_reachable_from_host' END,
    'host', h.name, 'device', d.name));
END $$;

-- The lowest free runs of the host's DPA space that add up to `size`; fewer bytes than asked when it has no more.
CREATE OR REPLACE FUNCTION choose_spans(d device, space smallint, size bigint) RETURNS SETOF int8range
LANGUAGE plpgsql AS $$
DECLARE
  spans_max CONSTANT integer := 16;
  region jsonb := d.dc_regions->0;
  base bigint := (region->>'base_bytes')::bigint;
  region_end bigint := base + (region->>'size_bytes')::bigint;
  cursor_at bigint := base;
  remaining bigint := size;
  taken record;
  chosen integer := 0;
BEGIN
  FOR taken IN
    SELECT lower(e.span) AS starts, upper(e.span) AS ends FROM extent e
    WHERE e.device_no = d.number AND e.dpa_space = space
    UNION ALL SELECT region_end, region_end
    ORDER BY starts
  LOOP
    IF taken.starts > cursor_at THEN
      RETURN NEXT int8range(cursor_at, least(taken.starts, cursor_at + remaining));
      remaining := remaining - least(taken.starts - cursor_at, remaining);
      chosen := chosen + 1;
      EXIT WHEN remaining = 0 OR chosen = spans_max;
    END IF;
    cursor_at := greatest(cursor_at, taken.ends);
  END LOOP;
END $$;

-- The host's standing attachment to a DCD, made on first use. Answers {attachment_id, ld_id} or {refusal}.
CREATE OR REPLACE FUNCTION attach_dcd(h host, d device, new_id uuid) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  t attachment;
  place jsonb;
  interface smallint;
BEGIN
  SELECT * INTO t FROM attachment WHERE host_id = h.id AND device_no = d.number AND live AND kind = 'dcd';
  IF FOUND THEN
    RETURN jsonb_build_object('attachment_id', t.id, 'ld_id', t.ld_id);
  END IF;
  -- The host's port may still hang on the device from before one of the two was deleted: that place is taken up again,
  -- and an interface that hangs on another port is left alone.
  SELECT jsonb_build_object('switch_id', p.switch_id, 'vcs', p.vcs_number, 'vppb', p.number, 'ld_id', p.ld_id) INTO place
  FROM host_port hp JOIN switch w ON w.name = hp.switch_name AND w.id = d.switch_id
  JOIN vcs v ON v.switch_id = w.id AND v.upstream_port = hp.port_number
  JOIN vppb p ON p.switch_id = v.switch_id AND p.vcs_number = v.number
  WHERE hp.host_id = h.id AND p.state = 'bound_ld' AND p.port_number = d.port_number AND NOT EXISTS (
    SELECT FROM attachment o WHERE o.live AND ((o.switch_id, o.vcs_number, o.vppb_number)
      = (p.switch_id, p.vcs_number, p.number) OR (o.device_no, o.ld_id) = (d.number, p.ld_id)))
  LIMIT 1;
  interface := (place->>'ld_id')::smallint;
  IF interface IS NULL THEN
    place := choose_vppb(h, d);
    IF place ? 'refusal' THEN
      RETURN place;
    END IF;
    SELECT n INTO interface FROM generate_series(0, d.lds_max - 1) n
    WHERE NOT EXISTS (SELECT FROM attachment x WHERE x.device_no = d.number AND x.live AND x.ld_id = n)
      AND NOT EXISTS (SELECT FROM vppb p WHERE p.switch_id = d.switch_id AND p.state = 'bound_ld'
                      AND p.port_number = d.port_number AND p.ld_id = n)
    ORDER BY n LIMIT 1;
  END IF;
  IF interface IS NULL THEN
    RETURN jsonb_build_object('refusal', jsonb_build_object(
      'code', 'host_limit_reached', 'host', h.name, 'device', d.name, 'host_interfaces', d.lds_max));
  END IF;
  INSERT INTO attachment (id, host_id, device_no, kind, switch_id, vcs_number, vppb_number, port_number, ld_id)
  VALUES (new_id, h.id, d.number, 'dcd', (place->>'switch_id')::uuid, (place->>'vcs')::smallint,
          (place->>'vppb')::smallint, d.port_number, interface);
  RETURN jsonb_build_object('attachment_id', new_id, 'ld_id', interface);
END $$;

-- Plans where `s` goes; answers the refusal, or NULL when it is planned. The device and the host are locked.
CREATE OR REPLACE FUNCTION place_segment(s segment, h host, new_attachment uuid) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  d device;
  place jsonb;
  block bigint;
BEGIN
  SELECT * INTO d FROM device WHERE number = s.device_no;
  IF d.kind = 'dcd' THEN
    place := attach_dcd(h, d, new_attachment);
    IF place ? 'refusal' THEN
      RETURN place->'refusal';
    END IF;
    UPDATE segment SET attachment_id = (place->>'attachment_id')::uuid, dpa_space = (place->>'ld_id')::smallint
    WHERE id = s.id;
    block := (d.dc_regions#>>'{0,block_bytes}')::bigint;
    INSERT INTO extent (segment_id, number, device_no, dpa_space, span, block_bytes)
    SELECT s.id, row_number() OVER (), d.number, (place->>'ld_id')::smallint, span, block
    FROM choose_spans(d, (place->>'ld_id')::smallint, s.size_bytes) span;
    IF (SELECT coalesce(sum(upper(span) - lower(span)), 0) FROM extent WHERE segment_id = s.id) < s.size_bytes THEN
      RETURN jsonb_build_object('code', 'host_limit_reached', 'host', h.name, 'device', d.name,
                                'reason', 'the host''s address space on this device is full or in too many pieces');
    END IF;
    RETURN NULL;
  END IF;
  place := choose_vppb(h, d);
  IF place ? 'refusal' THEN
    RETURN place->'refusal';
  END IF;
  INSERT INTO attachment (id, host_id, device_no, kind, switch_id, vcs_number, vppb_number, port_number, ld_id)
  VALUES (new_attachment, h.id, d.number, d.kind, (place->>'switch_id')::uuid, (place->>'vcs')::smallint,
          (place->>'vppb')::smallint, d.port_number, s.ld_id);
  UPDATE segment SET attachment_id = new_attachment WHERE id = s.id;
  RETURN NULL;
END $$;

-- Sets an allocation whose segments are reserved or lost on its way to `h`. Answers a refusal or NULL.
CREATE OR REPLACE FUNCTION bind_segments(a allocation, h host, arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  s segment;
  refusal jsonb;
  deadline timestamptz := now() + make_interval(secs => (arg#>>'{request,deadline_s}')::integer);
BEGIN
  IF h.fenced_at IS NOT NULL THEN
    RETURN jsonb_build_object('code', 'fenced', 'host', h.name, 'reason', h.fence_reason);
  END IF;
  FOR s IN SELECT * FROM segment WHERE allocation_id = a.id ORDER BY device_no LOOP
    IF s.attachment_id IS NULL THEN
      refusal := place_segment(s, h, (arg->>'attachment_id')::uuid);
      IF refusal IS NOT NULL THEN
        RETURN refusal;
      END IF;
    END IF;
    UPDATE segment SET phase = next_phase(s.phase, 'bind-wanted'), goal = 'bind', updated_at = now() WHERE id = s.id;
  END LOOP;
  UPDATE allocation SET host_id = h.id, goal = 'bind', deadline_at = deadline, reservation_expires_at = NULL,
                        failure = NULL
  WHERE id = a.id RETURNING * INTO a;
  PERFORM open_operation(a, (arg->>'operation_id')::uuid, 'bind', arg->'ctx', deadline);
  PERFORM refresh_allocation(a.id, arg->'ctx', jsonb_build_object('host', h.name));
  RETURN NULL;
END $$;

-- arg: key, host, request.deadline_s, attachment_id, operation_id, ctx.
-- Answers outcome binding, bound (already so), absent, released, refused (with code and facts).
CREATE OR REPLACE FUNCTION bind(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  a allocation;
  h host;
  refusal jsonb;
BEGIN
  PERFORM FROM allocation_key WHERE key = arg->>'key' FOR UPDATE;
  SELECT * INTO a FROM allocation WHERE key = arg->>'key' AND NOT forgotten;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('outcome', 'absent');
  ELSIF a.phase = 'released' THEN
    RETURN jsonb_build_object('outcome', 'released');
  END IF;
  PERFORM FROM device WHERE number IN (SELECT device_no FROM segment WHERE allocation_id = a.id)
    ORDER BY number FOR NO KEY UPDATE;
  SELECT * INTO h FROM host WHERE name = arg->>'host' FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('outcome', 'refused', 'refusal', jsonb_build_object(
      'code', 'not_reachable_from_host', 'host', arg->>'host', 'reason', 'no such host'));
  END IF;
  IF a.phase IN ('binding', 'bound', 'online') AND a.host_id = h.id THEN
    RETURN jsonb_build_object('outcome', CASE a.phase WHEN 'binding' THEN 'binding' ELSE 'bound' END,
                              'allocation', allocation_document(a));
  END IF;
  IF a.phase NOT IN ('reserved', 'lost') OR (a.phase = 'lost' AND (a.host_id IS DISTINCT FROM h.id OR EXISTS (
      SELECT FROM segment s WHERE s.allocation_id = a.id AND s.node_state <> 'offline'))) THEN
    RETURN jsonb_build_object('outcome', 'refused', 'refusal', jsonb_build_object(
      'code', CASE WHEN a.phase IN ('release_blocked', 'releasing', 'sanitizing') THEN 'releasing'
                   ELSE 'illegal_phase' END,
      'phase', a.phase, 'host', (SELECT name FROM host WHERE id = a.host_id)));
  END IF;
  refusal := bind_segments(a, h, arg);
  IF refusal IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'FM002', MESSAGE = jsonb_build_object('outcome', 'refused', 'refusal', refusal);
  END IF;
  SELECT * INTO a FROM allocation WHERE id = a.id;
  RETURN jsonb_build_object('outcome', 'binding', 'allocation', allocation_document(a));
EXCEPTION WHEN SQLSTATE 'FM002' THEN
  RETURN SQLERRM::jsonb;
END $$;
