-- What people declare: fabrics, pools, devices and hosts. Each is an upsert that writes nothing when nothing differs.

-- arg: id, ctx, fabric {name, driver, endpoint}.
CREATE OR REPLACE FUNCTION put_fabric(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  wish jsonb := arg->'fabric';
  f fabric;
BEGIN
  INSERT INTO fabric (id, name, driver, endpoint)
  VALUES ((arg->>'id')::uuid, wish->>'name', wish->>'driver', wish->>'endpoint')
  ON CONFLICT (name) DO UPDATE SET driver = excluded.driver, endpoint = excluded.endpoint,
    generation = fabric.generation + 1, updated_at = now()
  WHERE (fabric.driver, fabric.endpoint) IS DISTINCT FROM (excluded.driver, excluded.endpoint)
  RETURNING * INTO f;
  IF FOUND THEN
    PERFORM record_event('fabric.declared', 'fabric', f.id::text, arg->'ctx', NULL, wish);
  END IF;
  RETURN jsonb_build_object('changed', FOUND);
END $$;

-- arg: id, ctx, pool {name, kind, tier, labels}.
CREATE OR REPLACE FUNCTION put_pool(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  wish jsonb := arg->'pool';
  p pool;
BEGIN
  INSERT INTO pool (id, name, kind, tier, labels)
  VALUES ((arg->>'id')::uuid, wish->>'name', wish->>'kind', wish->>'tier', coalesce(wish->'labels', '{}'))
  ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, tier = excluded.tier, labels = excluded.labels,
    generation = pool.generation + 1, updated_at = now()
  WHERE (pool.kind, pool.tier, pool.labels) IS DISTINCT FROM (excluded.kind, excluded.tier, excluded.labels)
  RETURNING * INTO p;
  IF FOUND THEN
    PERFORM record_event('pool.declared', 'pool', p.id::text, arg->'ctx', NULL, wish, jsonb_build_object('pool', p.name));
  END IF;
  RETURN jsonb_build_object('changed', FOUND);
END $$;

-- arg: id, ctx, device {name, serial, fabric, pool, tier, media, failure_domain, labels, bandwidth_bytes_per_s,
-- latency_ns}. What hardware tells (kind, capacity, LDs) is left alone; a device not discovered yet has no bytes.
CREATE OR REPLACE FUNCTION put_device(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  wish jsonb := arg->'device';
  p pool;
  d device;
BEGIN
  SELECT * INTO p FROM pool WHERE name = wish->>'pool';
  IF NOT FOUND THEN
    RETURN jsonb_build_object('refused', format('device %s: there is no pool %s', wish->>'name', wish->>'pool'));
  ELSIF NOT EXISTS (SELECT FROM fabric WHERE name = wish->>'fabric') THEN
    RETURN jsonb_build_object('refused', format('device %s: there is no fabric %s', wish->>'name', wish->>'fabric'));
  ELSIF EXISTS (SELECT FROM device x WHERE x.name = wish->>'name' AND x.serial <> wish->>'serial') THEN
    RETURN jsonb_build_object('refused', format('device %s: another serial has that name', wish->>'name'));
  ELSIF EXISTS (SELECT FROM device x WHERE x.serial = wish->>'serial' AND x.kind <> p.kind) THEN
    RETURN jsonb_build_object('refused', format('device %s: it is not of kind %s as pool %s is', wish->>'name', p.kind, p.name));
  END IF;
  INSERT INTO device (id, name, serial, fabric_id, kind, pool_id, tier, media, failure_domain, labels,
                      bandwidth_bytes_per_s, latency_ns)
  VALUES ((arg->>'id')::uuid, wish->>'name', wish->>'serial', (SELECT id FROM fabric WHERE name = wish->>'fabric'),
          p.kind, p.id, coalesce(wish->>'tier', p.tier), wish->>'media', wish->>'failure_domain',
          coalesce(wish->'labels', '{}'), coalesce((wish->>'bandwidth_bytes_per_s')::bigint, 0),
          coalesce((wish->>'latency_ns')::integer, 0))
  ON CONFLICT (serial) DO UPDATE SET name = excluded.name, pool_id = excluded.pool_id, tier = excluded.tier,
    media = excluded.media, failure_domain = excluded.failure_domain, labels = excluded.labels,
    bandwidth_bytes_per_s = excluded.bandwidth_bytes_per_s, latency_ns = excluded.latency_ns,
    generation = device.generation + 1, updated_at = now()
  WHERE (device.name, device.pool_id, device.tier, device.media, device.failure_domain, device.labels,
         device.bandwidth_bytes_per_s, device.latency_ns)
    IS DISTINCT FROM (excluded.name, excluded.pool_id, excluded.tier, excluded.media, excluded.failure_domain,
                      excluded.labels, excluded.bandwidth_bytes_per_s, excluded.latency_ns)
  RETURNING * INTO d;
  IF FOUND THEN
    PERFORM record_event('device.declared', 'device', d.id::text, arg->'ctx', NULL, wish,
      jsonb_build_object('device', d.name, 'pool', p.name));
  END IF;
  RETURN jsonb_build_object('changed', FOUND);
END $$;

-- arg: id, ctx, host {name, ports [{switch, port}], kubernetes {cluster, node, node_uid}, limits {vppbs, decoders}, labels}.
CREATE OR REPLACE FUNCTION put_host(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  wish jsonb := arg->'host';
  h host;
  changed boolean;
  clash text;
BEGIN
  SELECT format('host %s: port %s of %s belongs to %s', wish->>'name', o.port_number, o.switch_name, x.name) INTO clash
  FROM host_port o JOIN host x ON x.id = o.host_id
  JOIN jsonb_array_elements(wish->'ports') p ON p->>'switch' = o.switch_name AND (p->>'port')::smallint = o.port_number
  WHERE x.name <> wish->>'name' LIMIT 1;
  IF clash IS NOT NULL THEN
    RETURN jsonb_build_object('refused', clash);
  END IF;
  INSERT INTO host (id, name, cluster, node, node_uid, vppbs_max, decoders_max, labels)
  VALUES ((arg->>'id')::uuid, wish->>'name', wish#>>'{kubernetes,cluster}', wish#>>'{kubernetes,node}',
          wish#>>'{kubernetes,node_uid}', (wish#>>'{limits,vppbs}')::smallint, (wish#>>'{limits,decoders}')::smallint,
          coalesce(wish->'labels', '{}'))
  ON CONFLICT (name) DO UPDATE SET cluster = excluded.cluster, node = excluded.node, node_uid = excluded.node_uid,
    vppbs_max = excluded.vppbs_max, decoders_max = excluded.decoders_max, labels = excluded.labels,
    generation = host.generation + 1, updated_at = now()
  WHERE (host.cluster, host.node, host.node_uid, host.vppbs_max, host.decoders_max, host.labels)
    IS DISTINCT FROM (excluded.cluster, excluded.node, excluded.node_uid, excluded.vppbs_max, excluded.decoders_max,
                      excluded.labels);
  changed := FOUND;
  SELECT * INTO h FROM host WHERE name = wish->>'name' FOR NO KEY UPDATE;
  IF EXISTS (
    (SELECT p->>'switch', (p->>'port')::smallint FROM jsonb_array_elements(wish->'ports') p
     EXCEPT SELECT switch_name, port_number FROM host_port WHERE host_id = h.id)
    UNION ALL
    (SELECT switch_name, port_number FROM host_port WHERE host_id = h.id
     EXCEPT SELECT p->>'switch', (p->>'port')::smallint FROM jsonb_array_elements(wish->'ports') p)
  ) THEN
    DELETE FROM host_port WHERE host_id = h.id;
    INSERT INTO host_port (switch_name, port_number, host_id)
    SELECT p->>'switch', (p->>'port')::smallint, h.id FROM jsonb_array_elements(wish->'ports') p;
    UPDATE host SET generation = generation + 1, updated_at = now() WHERE id = h.id AND NOT changed;
    changed := true;
  END IF;
  IF changed THEN
    PERFORM record_event('host.declared', 'host', h.id::text, arg->'ctx', NULL, wish, jsonb_build_object('host', h.name));
  END IF;
  RETURN jsonb_build_object('changed', changed);
END $$;
