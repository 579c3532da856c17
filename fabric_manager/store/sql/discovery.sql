-- What was read from hardware, brought into the database. Hardware facts only; names, pools and labels are ours.

-- arg: id, fabric_id, epoch, switch {name, serial, hdm_decoders, boot_count, ports, vcs}, ids (enough fresh ones), ctx.
CREATE OR REPLACE FUNCTION discover_switch(arg jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  facts jsonb := arg->'switch';
  w switch;
  was_new boolean;
BEGIN
  PERFORM guard_epoch((arg->>'fabric_id')::uuid, (arg->>'epoch')::bigint);
  INSERT INTO switch (id, fabric_id, name, serial, hdm_decoders, boot_count)
  VALUES ((arg->>'id')::uuid, (arg->>'fabric_id')::uuid, facts->>'name', facts->>'serial',
          (facts->>'hdm_decoders')::integer, (facts->>'boot_count')::bigint)
  ON CONFLICT (serial) DO UPDATE SET fabric_id = excluded.fabric_id, name = excluded.name,
    hdm_decoders = excluded.hdm_decoders, boot_count = excluded.boot_count,
    generation = switch.generation + ((switch.fabric_id, switch.name, switch.boot_count)
      IS DISTINCT FROM (excluded.fabric_id, excluded.name, excluded.boot_count))::integer, updated_at = now()
  RETURNING * INTO w;
  was_new := w.id = (arg->>'id')::uuid;
  IF was_new THEN
    PERFORM record_event('switch.discovered', 'switch', w.id::text, arg->'ctx', NULL,
      jsonb_build_object('name', w.name, 'serial', w.serial));
  END IF;
  INSERT INTO port (id, switch_id, number, role, device_serial, link_width, link_width_max, link_speed_gt, link_speed_gt_max)
  SELECT (arg#>>ARRAY['ids', (row_number() OVER () - 1)::text])::uuid, w.id, (p->>'number')::smallint, p->>'role',
         p->>'device_serial', (p->>'link_width')::smallint, (p->>'link_width_max')::smallint,
         (p->>'link_speed_gt')::smallint, (p->>'link_speed_gt_max')::smallint
  FROM jsonb_array_elements(facts->'ports') p
  ON CONFLICT (switch_id, number) DO UPDATE SET role = excluded.role, device_serial = excluded.device_serial,
    link_width = excluded.link_width, link_width_max = excluded.link_width_max,
    link_speed_gt = excluded.link_speed_gt, link_speed_gt_max = excluded.link_speed_gt_max,
    generation = port.generation + 1, updated_at = now()
  WHERE (port.role, port.device_serial, port.link_width, port.link_speed_gt)
    IS DISTINCT FROM (excluded.role, excluded.device_serial, excluded.link_width, excluded.link_speed_gt);
  INSERT INTO vcs (id, switch_id, number, upstream_port)
  SELECT (arg#>>ARRAY['ids', (jsonb_array_length(facts->'ports') + row_number() OVER () - 1)::text])::uuid, w.id,
         (v->>'number')::smallint, (v->>'upstream_port')::smallint
  FROM jsonb_array_elements(facts->'vcs') v
  ON CONFLICT (switch_id, number) DO UPDATE SET upstream_port = excluded.upstream_port,
    generation = vcs.generation + 1, updated_at = now()
  WHERE vcs.upstream_port <> excluded.upstream_port;
  INSERT INTO vppb (switch_id, vcs_number, number, state, port_number, ld_id)
  SELECT w.id, (v->>'number')::smallint, (p->>'number')::smallint, p->>'state', (p->>'port')::smallint, (p->>'ld_id')::smallint
  FROM jsonb_array_elements(facts->'vcs') v, jsonb_array_elements(v->'vppbs') p
  ON CONFLICT (switch_id, vcs_number, number) DO UPDATE SET state = excluded.state, port_number = excluded.port_number,
    ld_id = excluded.ld_id, updated_at = now()
  WHERE (vppb.state, vppb.port_number, vppb.ld_id) IS DISTINCT FROM (excluded.state, excluded.port_number, excluded.ld_id);
END $$;

-- arg: id, fabric_id, epoch, device (hardware's facts), ids (one per LD), ctx. LDs keep what is held or dirty in them.
CREATE OR REPLACE FUNCTION discover_device(arg jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  facts jsonb := arg->'device';
  d device;
  before device;
  carved bigint;
  held_lds integer;
BEGIN
  PERFORM guard_epoch((arg->>'fabric_id')::uuid, (arg->>'epoch')::bigint);
  SELECT * INTO before FROM device WHERE serial = facts->>'serial' FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    INSERT INTO device (id, name, fabric_id, serial, kind)
    VALUES ((arg->>'id')::uuid, facts->>'serial', (arg->>'fabric_id')::uuid, facts->>'serial', facts->>'kind')
    RETURNING * INTO before;
  ELSIF before.admin_state = 'retired' THEN
    RETURN;  -- until it is declared anew, nobody is to see it
  END IF;
  IF facts->>'kind' <> 'dcd' THEN
    -- an SLD is one logical device
    INSERT INTO logical_device (device_no, ld_id, id, size_bytes, share_n, limit_n)
    SELECT before.number, (l->>'ld_id')::smallint, (arg#>>ARRAY['ids', (row_number() OVER () - 1)::text])::uuid,
           (l->>'size_bytes')::bigint, (l->>'share_n')::smallint, (l->>'limit_n')::smallint
    FROM jsonb_array_elements(CASE WHEN facts->>'kind' = 'mld' THEN facts->'lds' ELSE jsonb_build_array(
      jsonb_build_object('ld_id', 0, 'size_bytes', facts->'capacity_bytes', 'share_n', 0, 'limit_n', 0)) END) l
    ON CONFLICT (device_no, ld_id) DO UPDATE SET size_bytes = excluded.size_bytes, share_n = excluded.share_n,
      limit_n = excluded.limit_n
    WHERE (logical_device.size_bytes, logical_device.share_n, logical_device.limit_n)
      IS DISTINCT FROM (excluded.size_bytes, excluded.share_n, excluded.limit_n);
    UPDATE logical_device SET size_bytes = 0
    WHERE device_no = before.number AND facts->>'kind' = 'mld' AND size_bytes > 0
      AND NOT EXISTS (SELECT FROM jsonb_array_elements(facts->'lds') l WHERE (l->>'ld_id')::smallint = ld_id);
  END IF;
  SELECT coalesce(bit_or(1 << ld_id), 0) INTO held_lds FROM segment
  WHERE device_no = before.number AND ld_id IS NOT NULL AND bucket(phase) <> 'free';
  -- what can be handed out at all: the LDs, or all of a DCD
  SELECT CASE WHEN facts->>'kind' = 'dcd' THEN (facts->>'capacity_bytes')::bigint ELSE coalesce(sum(size_bytes), 0) END
  INTO carved FROM logical_device WHERE device_no = before.number;
  IF carved < before.allocated_bytes + before.sanitizing_bytes + before.quarantined_bytes THEN
    -- It has less than is in use: what is in use stays as it is, and nothing new is put there.
    UPDATE device SET health = 'failed', generation = generation + 1, updated_at = now()
    WHERE number = before.number AND health <> 'failed';
    IF FOUND THEN
      PERFORM record_event('device.shrunk', 'device', before.id::text, arg->'ctx',
        jsonb_build_object('capacity_bytes', before.capacity_bytes),
        jsonb_build_object('capacity_bytes', facts->'capacity_bytes', 'can_hand_out_bytes', carved),
        jsonb_build_object('device', before.name));
    END IF;
    RETURN;
  END IF;
  UPDATE device SET
    -- declared for another kind of device: it is taken out of that pool
    kind = facts->>'kind', pool_id = CASE WHEN kind = facts->>'kind' THEN pool_id END,
    switch_id = (SELECT id FROM switch WHERE name = facts->>'switch'), port_number = (facts->>'port')::smallint,
    capacity_bytes = (facts->>'capacity_bytes')::bigint,
    free_bytes = carved - allocated_bytes - sanitizing_bytes - quarantined_bytes,
    withdrawn_bytes = (facts->>'capacity_bytes')::bigint - carved,
    granule_bytes = (facts->>'granule_bytes')::bigint,
    allocation_step_bytes = coalesce((facts#>>'{dc_regions,0,block_bytes}')::bigint, (facts->>'granule_bytes')::bigint),
    lds_max = (facts->>'lds_max')::smallint,
    free_lds = CASE WHEN facts->>'kind' <> 'dcd' THEN (
      SELECT coalesce(bit_or(1 << ld_id), 0) FROM logical_device
      WHERE device_no = before.number AND size_bytes > 0 AND NOT dirty) & ~held_lds ELSE 0 END,
    dc_regions = facts->'dc_regions',
    capabilities = ARRAY(SELECT c FROM jsonb_array_elements_text(facts->'capabilities') c ORDER BY c),
    health = facts->>'health', firmware = facts->>'firmware', boot_count = (facts->>'boot_count')::bigint
  WHERE number = before.number RETURNING * INTO d;
  -- Before and after are compared as a whole, so that a scan that finds nothing new changes no generation.
  IF to_jsonb(d) - 'boot_count' IS DISTINCT FROM to_jsonb(before) - 'boot_count' THEN
    UPDATE device SET generation = generation + 1, updated_at = now() WHERE number = d.number;
    PERFORM record_event(CASE WHEN before.health = 'unknown' THEN 'device.discovered' ELSE 'device.changed' END,
      'device', d.id::text, arg->'ctx',
      jsonb_build_object('health', before.health, 'capacity_bytes', before.capacity_bytes),
      jsonb_build_object('health', d.health, 'capacity_bytes', d.capacity_bytes, 'serial', d.serial),
      jsonb_build_object('device', d.name));
  END IF;
END $$;

-- arg: fabric_id, epoch, serials, ctx. Devices that hardware no longer shows get nothing new. Answers which of the
-- serials are to be written anew: back after an absence, or declared again after they were retired.
CREATE OR REPLACE FUNCTION devices_absent(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  d device;
BEGIN
  PERFORM guard_epoch((arg->>'fabric_id')::uuid, (arg->>'epoch')::bigint);
  FOR d IN
    UPDATE device SET health = 'unknown', generation = generation + 1, updated_at = now()
    WHERE fabric_id = (arg->>'fabric_id')::uuid AND health <> 'unknown'
      AND serial <> ALL (ARRAY(SELECT jsonb_array_elements_text(arg->'serials')))
    RETURNING *
  LOOP
    PERFORM record_event('device.absent', 'device', d.id::text, arg->'ctx', NULL,
      jsonb_build_object('serial', d.serial), jsonb_build_object('device', d.name));
  END LOOP;
  RETURN (SELECT coalesce(jsonb_agg(serial), '[]') FROM device
          WHERE fabric_id = (arg->>'fabric_id')::uuid AND health = 'unknown' AND admin_state <> 'retired'
            AND serial = ANY (ARRAY(SELECT jsonb_array_elements_text(arg->'serials'))));
END $$;

-- arg: fabric_id. Every segment that hardware should show, or may show again.
CREATE OR REPLACE FUNCTION scan_work(arg jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT coalesce(jsonb_agg(segment_work(s) || jsonb_build_object('allocation_id', s.allocation_id) ORDER BY s.id), '[]')
  FROM segment s JOIN device d ON d.number = s.device_no
  WHERE d.fabric_id = (arg->>'fabric_id')::uuid AND s.phase IN ('bound', 'online', 'lost')
$$;

-- arg: fabric_id, epoch, state, reason, ctx. One event per change.
CREATE OR REPLACE FUNCTION set_fabric_state(arg jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  f fabric;
BEGIN
  PERFORM guard_epoch((arg->>'fabric_id')::uuid, (arg->>'epoch')::bigint);
  SELECT * INTO f FROM fabric WHERE id = (arg->>'fabric_id')::uuid FOR NO KEY UPDATE;
  IF arg->>'state' = 'up' THEN
    UPDATE fabric SET scanned_at = now() WHERE id = f.id;
  END IF;
  IF f.state = arg->>'state' AND f.state_reason IS NOT DISTINCT FROM arg->>'reason' THEN
    RETURN;
  END IF;
  UPDATE fabric SET state = arg->>'state', state_reason = arg->>'reason', generation = generation + 1, updated_at = now()
  WHERE id = f.id;
  IF f.state <> arg->>'state' THEN
    PERFORM record_event('fabric.' || (arg->>'state'), 'fabric', f.id::text, arg->'ctx',
      jsonb_build_object('state', f.state), jsonb_build_object('state', arg->>'state', 'reason', arg->>'reason'));
  END IF;
END $$;

-- Take the fabric over: arg fabric_id, owner, ttl_s, command_s. Answers the new epoch, or null while another owns it.
-- An owner is `installation/process`: whoever holds the installation's lock knows that its other processes are gone.
CREATE OR REPLACE FUNCTION acquire_fabric(arg jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  f fabric;
BEGIN
  -- Waits for the old owner's last guarded transaction; those that come later find the new epoch.
  PERFORM pg_advisory_xact_lock(epoch_lock((arg->>'fabric_id')::uuid));
  SELECT * INTO f FROM fabric WHERE id = (arg->>'fabric_id')::uuid FOR NO KEY UPDATE;
  IF NOT FOUND OR (f.owner IS NOT NULL AND split_part(f.owner, '/', 1) <> split_part(arg->>'owner', '/', 1)
                   AND f.owned_until + make_interval(secs => (arg->>'command_s')::double precision) > clock_timestamp()) THEN
    RETURN NULL;
  END IF;
  UPDATE fabric SET owner = arg->>'owner', epoch = epoch + 1, generation = generation + 1,
    owned_until = clock_timestamp() + make_interval(secs => (arg->>'ttl_s')::double precision)
  WHERE id = f.id;
  RETURN f.epoch + 1;
END $$;

-- arg: fabric_id, epoch, ttl_s. False when somebody else took it.
CREATE OR REPLACE FUNCTION renew_fabric(arg jsonb) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE fabric SET owned_until = clock_timestamp() + make_interval(secs => (arg->>'ttl_s')::double precision)
  WHERE id = (arg->>'fabric_id')::uuid AND epoch = (arg->>'epoch')::bigint;
  RETURN FOUND;
END $$;

-- arg: fabric_id, epoch. A clean stop lets the next owner in at once.
CREATE OR REPLACE FUNCTION yield_fabric(arg jsonb) RETURNS void
LANGUAGE sql AS $$
  UPDATE fabric SET owner = NULL, owned_until = NULL, generation = generation + 1
  WHERE id = (arg->>'fabric_id')::uuid AND epoch = (arg->>'epoch')::bigint
$$;

-- Every fabric: arg is not looked at.
CREATE OR REPLACE FUNCTION known_fabrics(arg jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'name', name, 'driver', driver, 'endpoint', endpoint,
                                               'admin_state', admin_state) ORDER BY name), '[]') FROM fabric
$$;
