-- What people declare: fabrics, pools, devices and hosts. A `put_` brings one thing to what it says and writes nothing
-- when nothing differs; it answers {created, changes [{field, have, want}]} or {refused {code, detail, …}}.
-- Every write stands in one line (declaring), so what refers to each other cannot change between look and write.
-- Plans are made once, maybe while a table is small that then grows by thousands: hence no sequential scans.

CREATE OR REPLACE FUNCTION declaring() RETURNS void
LANGUAGE sql AS $$ SELECT pg_advisory_xact_lock(hashtextextended('inventory', 0)) $$;

CREATE OR REPLACE FUNCTION refusal(code text, detail text, facts jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT jsonb_build_object('refused', jsonb_build_object('code', code, 'detail', detail) || facts)
$$;

CREATE OR REPLACE FUNCTION bad_field(field text, detail text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$ SELECT refusal('validation_failed', detail, jsonb_build_object('field', field)) $$;

-- The fields that differ. Absent and null are the same.
CREATE OR REPLACE FUNCTION field_changes(have jsonb, want jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (
    SELECT coalesce(jsonb_agg(jsonb_build_object('field', f, 'have', have->f, 'want', want->f) ORDER BY f), '[]')
  FROM jsonb_object_keys(coalesce(have, '{}') || want) f
  WHERE nullif(have->f, 'null') IS DISTINCT FROM nullif(want->f, 'null')
  );
END $$;

-- One side of the changes, `have` or `want`, as an object.
CREATE OR REPLACE FUNCTION side_of(changes jsonb, side text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (
    SELECT coalesce(jsonb_object_agg(c->>'field', c->side), '{}') FROM jsonb_array_elements(changes) c
  );
END $$;

-- arg: if_match, if_none_match (arrays of tags, "*" is any; absent is no condition). `have` is the generation shown,
-- NULL where there is no such thing. Answers a refusal or NULL.
CREATE OR REPLACE FUNCTION unmet_condition(arg jsonb, have bigint) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (
    SELECT CASE
    WHEN jsonb_typeof(arg->'if_match') = 'array'
      AND (have IS NULL OR NOT arg->'if_match' ?| ARRAY['*', have::text])
    THEN refusal('stale_generation', CASE WHEN have IS NULL THEN 'there is no such object any more'
                                          ELSE 'the object has changed since you read it' END,
                 jsonb_build_object('have_generation', have))
    WHEN have IS NOT NULL AND arg->'if_none_match' ?| ARRAY['*', have::text]
    THEN refusal('stale_generation', 'the object exists already', jsonb_build_object('have_generation', have)) END
  );
END $$;

-- What a pool shows holds its devices' bytes, so its generation counts their changes too.
CREATE OR REPLACE FUNCTION pool_generation(p pool) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT p.generation + coalesce((SELECT sum(d.generation) FROM device d WHERE d.pool_id = p.id), 0)::bigint
  );
END $$;

-- The first of what holds something, and how many there are: facts of a refusal.
CREATE OR REPLACE FUNCTION used_by(noun text, names text[]) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (
    SELECT CASE WHEN cardinality(names) > 0 THEN jsonb_build_array(
    jsonb_build_object('noun', noun, 'count', cardinality(names), 'first', names[1:10])) ELSE '[]' END
  );
END $$;

CREATE OR REPLACE FUNCTION in_use(noun text, name text, holders jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT refusal('illegal_phase', format('%s %s is in use: %s', noun, name, (
    SELECT string_agg(format('%s %s (%s)', u->>'count', u->>'noun', (
      SELECT string_agg(n, ', ') FROM jsonb_array_elements_text(u->'first') n)), '; ')
    FROM jsonb_array_elements(holders) u)), jsonb_build_object('used_by', holders))
$$;

-- Keys of the allocations that have something on the device.
CREATE OR REPLACE FUNCTION live_on(device_wanted integer) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT ARRAY(SELECT DISTINCT a.key FROM segment s JOIN allocation a ON a.id = s.allocation_id
               WHERE s.device_no = device_wanted AND s.phase NOT IN ('failed', 'released') ORDER BY a.key)
  );
END $$;

-- Each thing as it was declared: the form that a `put_` takes and an export writes.

CREATE OR REPLACE FUNCTION declared_fabric(f fabric) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object('name', f.name, 'driver', f.driver, 'endpoint', f.endpoint, 'admin_state', f.admin_state)
  );
END $$;

CREATE OR REPLACE FUNCTION declared_pool(p pool) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object('name', p.name, 'kind', p.kind, 'tier', p.tier, 'labels', p.labels)
  );
END $$;

CREATE OR REPLACE FUNCTION declared_device(d device) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
    'name', d.name, 'serial', d.serial, 'fabric', (SELECT name FROM fabric WHERE id = d.fabric_id),
    'pool', (SELECT name FROM pool WHERE id = d.pool_id), 'tier', d.tier, 'media', d.media,
    'failure_domain', d.failure_domain, 'labels', d.labels, 'bandwidth_bytes_per_s', d.bandwidth_bytes_per_s,
    'latency_ns', d.latency_ns, 'reserved_for', to_jsonb(d.reserved_for))
  );
END $$;

CREATE OR REPLACE FUNCTION declared_host(h host) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
    'name', h.name,
    'ports', (SELECT coalesce(jsonb_agg(jsonb_build_object('switch', p.switch_name, 'port', p.port_number)
                                        ORDER BY p.switch_name, p.port_number), '[]')
              FROM host_port p WHERE p.host_id = h.id),
    'kubernetes', nullif(jsonb_strip_nulls(jsonb_build_object(
      'cluster', h.cluster, 'node', h.node, 'node_uid', h.node_uid)), '{}'),
    'limits', nullif(jsonb_strip_nulls(jsonb_build_object(
      'vppbs', h.vppbs_max, 'decoders', h.decoders_max)), '{}'),
    'labels', h.labels)
  );
END $$;

-- arg: id, ctx, fabric {name, driver, endpoint, admin_state}, conditions. What is left out of the last two is kept.
CREATE OR REPLACE FUNCTION put_fabric(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  wish jsonb := jsonb_strip_nulls(arg->'fabric');
  want jsonb;
  changes jsonb;
  unmet jsonb;
  f fabric;
BEGIN
  PERFORM declaring();
  SELECT * INTO f FROM fabric WHERE name = wish->>'name';
  IF (f.driver, f.endpoint) IS DISTINCT FROM (wish->>'driver', coalesce(wish->>'endpoint', f.endpoint)) THEN
    PERFORM pg_advisory_xact_lock(epoch_lock(f.id));  -- before the row, as a take-over does
  END IF;
  SELECT * INTO f FROM fabric WHERE name = wish->>'name' FOR NO KEY UPDATE;
  unmet := unmet_condition(arg, f.generation);
  IF unmet IS NOT NULL THEN
    RETURN unmet;
  ELSIF f.id IS NULL AND NOT wish ? 'endpoint' THEN
    RETURN bad_field('endpoint', format('fabric %s: a new fabric needs an endpoint', wish->>'name'));
  END IF;
  want := jsonb_build_object('name', wish->'name', 'driver', wish->'driver',
    'endpoint', coalesce(wish->>'endpoint', f.endpoint), 'admin_state', coalesce(wish->>'admin_state', f.admin_state, 'active'));
  changes := field_changes(CASE WHEN f.id IS NOT NULL THEN declared_fabric(f) END, want);
  IF f.id IS NULL THEN
    INSERT INTO fabric (id, name, driver, endpoint, admin_state)
    VALUES ((arg->>'id')::uuid, want->>'name', want->>'driver', want->>'endpoint', want->>'admin_state');
  ELSIF changes <> '[]' THEN
    -- Whoever drives it has another driver open: a new epoch makes it begin anew.
    UPDATE fabric SET driver = want->>'driver', endpoint = want->>'endpoint', admin_state = want->>'admin_state',
      epoch = epoch + ((driver, endpoint) IS DISTINCT FROM (want->>'driver', want->>'endpoint'))::integer,
      generation = generation + 1, updated_at = now()
    WHERE id = f.id;
  END IF;
  IF changes <> '[]' THEN
    PERFORM record_event('fabric.declared', 'fabric', coalesce(f.id::text, arg->>'id'), arg->'ctx',
      CASE WHEN f.id IS NOT NULL THEN side_of(changes, 'have') END, side_of(changes, 'want'));
  END IF;
  RETURN jsonb_build_object('created', f.id IS NULL, 'changes', changes);
END $$;

-- arg: id, ctx, pool {name, kind, tier, labels}, conditions.
CREATE OR REPLACE FUNCTION put_pool(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  wish jsonb := jsonb_strip_nulls(arg->'pool');
  want jsonb := jsonb_build_object('name', wish->'name', 'kind', wish->'kind', 'tier', wish->'tier',
                                   'labels', coalesce(wish->'labels', '{}'));
  changes jsonb;
  unmet jsonb;
  p pool;
BEGIN
  PERFORM declaring();
  SELECT * INTO p FROM pool WHERE name = wish->>'name' FOR NO KEY UPDATE;
  unmet := unmet_condition(arg, CASE WHEN p.id IS NOT NULL THEN pool_generation(p) END);
  IF unmet IS NOT NULL THEN
    RETURN unmet;
  ELSIF p.kind <> wish->>'kind' AND EXISTS (SELECT FROM device WHERE pool_id = p.id) THEN
    RETURN in_use('pool', p.name, used_by('devices', ARRAY(SELECT name FROM device WHERE pool_id = p.id ORDER BY name)));
  END IF;
  changes := field_changes(CASE WHEN p.id IS NOT NULL THEN declared_pool(p) END, want);
  IF p.id IS NULL THEN
    INSERT INTO pool (id, name, kind, tier, labels)
    VALUES ((arg->>'id')::uuid, want->>'name', want->>'kind', want->>'tier', want->'labels');
  ELSIF changes <> '[]' THEN
    UPDATE pool SET kind = want->>'kind', tier = want->>'tier', labels = want->'labels',
      generation = generation + 1, updated_at = now()
    WHERE id = p.id;
  END IF;
  IF changes <> '[]' THEN
    PERFORM record_event('pool.declared', 'pool', coalesce(p.id::text, arg->>'id'), arg->'ctx',
      CASE WHEN p.id IS NOT NULL THEN side_of(changes, 'have') END, side_of(changes, 'want'),
      jsonb_build_object('pool', wish->>'name'));
  END IF;
  RETURN jsonb_build_object('created', p.id IS NULL, 'changes', changes);
END $$;

-- Out of service for good: its name is free again, its row stays for those whose history names it, and what hardware
-- still shows under its serial is not looked at until somebody declares it anew. Nothing on it is live.
CREATE OR REPLACE FUNCTION retire(d device) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE attachment SET live = false, state = 'gone', updated_at = now() WHERE device_no = d.number AND live;
  UPDATE logical_device SET size_bytes = 0 WHERE device_no = d.number AND size_bytes > 0;
  UPDATE device SET name = format('%s~%s', d.name, d.number), admin_state = 'retired', health = 'unknown',
    pool_id = NULL, switch_id = NULL, port_number = NULL, capacity_bytes = 0, free_bytes = 0, withdrawn_bytes = 0,
    free_lds = 0, exclusive_tenant_id = NULL, reserved_for = '{}', generation = generation + 1, updated_at = now()
  WHERE number = d.number;
END $$;

-- Why a device cannot be what `wish` says: a refusal or NULL. `named` has its name now, `bearer` its serial.
CREATE OR REPLACE FUNCTION device_conflict(wish jsonb, named device, bearer device) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
  name text := wish->>'name';
  p pool;
  holders jsonb;
BEGIN
  SELECT * INTO p FROM pool x WHERE x.name = wish->>'pool';
  IF p.id IS NULL THEN
    RETURN bad_field('pool', format('device %s: there is no pool %s', name, wish->>'pool'));
  ELSIF NOT EXISTS (SELECT FROM fabric f WHERE f.name = wish->>'fabric') THEN
    RETURN bad_field('fabric', format('device %s: there is no fabric %s', name, wish->>'fabric'));
  ELSIF bearer.switch_id IS NOT NULL AND bearer.kind <> p.kind THEN
    RETURN bad_field('pool', format('device %s: it is not of kind %s as pool %s is', name, p.kind, p.name));
  ELSIF bearer.switch_id IS NOT NULL AND bearer.fabric_id <> (SELECT id FROM fabric f WHERE f.name = wish->>'fabric') THEN
    RETURN bad_field('fabric', format('device %s: hardware shows it in fabric %s', name,
      (SELECT f.name FROM fabric f WHERE f.id = bearer.fabric_id)));
  END IF;
  IF named.id <> bearer.id AND bearer.pool_id IS NOT NULL THEN
    RETURN bad_field('serial', format('device %s: serial %s is that of device %s', name, bearer.serial, bearer.name));
  ELSIF named.serial <> wish->>'serial' THEN
    holders := used_by('allocations', live_on(named.number));
    IF holders <> '[]' THEN
      RETURN in_use('device', name, holders);
    END IF;
  END IF;
  RETURN NULL;
END $$;

-- arg: id, ctx, device {name, serial, fabric, pool, tier, media, failure_domain, labels, bandwidth_bytes_per_s,
-- latency_ns, reserved_for}, conditions. What hardware tells (kind, capacity, LDs) is left alone; a device not
-- discovered yet has no bytes. Another serial under a known name is a replacement: the old device is retired.
CREATE OR REPLACE FUNCTION put_device(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  wish jsonb := jsonb_strip_nulls(arg->'device');
  want jsonb;
  have jsonb;
  changes jsonb;
  refused jsonb;
  named device;
  bearer device;
  p pool;
BEGIN
  PERFORM declaring();
  PERFORM FROM device WHERE name = wish->>'name' OR serial = wish->>'serial' ORDER BY number FOR NO KEY UPDATE;
  SELECT * INTO named FROM device WHERE name = wish->>'name';
  SELECT * INTO bearer FROM device WHERE serial = wish->>'serial';
  refused := coalesce(unmet_condition(arg, named.generation), device_conflict(wish, named, bearer));
  IF refused IS NOT NULL THEN
    RETURN refused;
  END IF;
  SELECT * INTO p FROM pool WHERE name = wish->>'pool';
  want := jsonb_build_object(
    'name', wish->'name', 'serial', wish->'serial', 'fabric', wish->'fabric', 'pool', p.name,
    'tier', coalesce(wish->>'tier', p.tier), 'media', wish->'media', 'failure_domain', wish->'failure_domain',
    'labels', coalesce(wish->'labels', '{}'), 'bandwidth_bytes_per_s', coalesce(wish->'bandwidth_bytes_per_s', '0'),
    'latency_ns', coalesce(wish->'latency_ns', '0'), 'reserved_for', coalesce(wish->'reserved_for', '[]'));
  IF named.id IS NOT NULL THEN
    have := declared_device(named);
  ELSIF bearer.pool_id IS NOT NULL THEN
    have := declared_device(bearer);  -- it gets another name
  END IF;
  changes := field_changes(have, want);
  IF changes = '[]' THEN
    RETURN jsonb_build_object('created', false, 'changes', changes);
  END IF;
  IF named.serial <> wish->>'serial' THEN
    PERFORM retire(named);
  END IF;
  IF bearer.id IS NULL THEN
    INSERT INTO device (id, name, serial, fabric_id, kind)
    VALUES ((arg->>'id')::uuid, wish->>'name', wish->>'serial', (SELECT id FROM fabric WHERE name = wish->>'fabric'), p.kind)
    RETURNING * INTO bearer;
  END IF;
  UPDATE device SET
    name = wish->>'name', fabric_id = (SELECT id FROM fabric WHERE name = wish->>'fabric'), pool_id = p.id,
    kind = CASE WHEN switch_id IS NULL THEN p.kind ELSE kind END,
    tier = want->>'tier', media = want->>'media', failure_domain = want->>'failure_domain', labels = want->'labels',
    bandwidth_bytes_per_s = (want->>'bandwidth_bytes_per_s')::bigint, latency_ns = (want->>'latency_ns')::integer,
    reserved_for = ARRAY(SELECT jsonb_array_elements_text(want->'reserved_for')),
    -- a replacement stays as cordoned as what it replaces; what was retired is back
    admin_state = CASE WHEN named.serial <> wish->>'serial' THEN named.admin_state
                       WHEN admin_state = 'retired' THEN 'enabled' ELSE admin_state END,
    generation = greatest(generation, named.generation) + 1, updated_at = now()
  WHERE number = bearer.number;
  PERFORM record_event(CASE WHEN named.serial <> wish->>'serial' THEN 'device.replaced' ELSE 'device.declared' END,
    'device', bearer.id::text, arg->'ctx', CASE WHEN have IS NOT NULL THEN side_of(changes, 'have') END,
    side_of(changes, 'want'), jsonb_build_object('device', wish->>'name', 'pool', p.name));
  RETURN jsonb_build_object('created', have IS NULL, 'changes', changes);
END $$;

-- Why a host cannot be what `want` says: a refusal or NULL.
CREATE OR REPLACE FUNCTION host_conflict(want jsonb, h host) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
  own_name text := want->>'name';
  clash record;
  held text[];
BEGIN
  SELECT o.switch_name, o.port_number, x.name AS owner INTO clash
  FROM host_port o JOIN host x ON x.id = o.host_id
  JOIN jsonb_array_elements(want->'ports') p ON p->>'switch' = o.switch_name AND (p->>'port')::smallint = o.port_number
  WHERE x.name <> own_name LIMIT 1;
  IF clash.owner IS NOT NULL THEN
    RETURN bad_field('ports', format('host %s: port %s of %s belongs to %s', own_name, clash.port_number, clash.switch_name, clash.owner));
  END IF;
  SELECT x.name AS owner INTO clash FROM host x
  WHERE x.cluster = want#>>'{kubernetes,cluster}' AND x.node = want#>>'{kubernetes,node}' AND x.name <> own_name;
  IF clash.owner IS NOT NULL THEN
    RETURN bad_field('kubernetes.node', format('host %s: node %s of cluster %s is host %s', own_name,
      want#>>'{kubernetes,node}', want#>>'{kubernetes,cluster}', clash.owner));
  END IF;
  -- a port that memory hangs on stays
  held := ARRAY(
    SELECT DISTINCT a.key FROM attachment t JOIN switch w ON w.id = t.switch_id
    JOIN vcs v ON v.switch_id = t.switch_id AND v.number = t.vcs_number
    JOIN segment s ON s.attachment_id = t.id AND s.phase NOT IN ('failed', 'released')
    JOIN allocation a ON a.id = s.allocation_id
    WHERE t.host_id = h.id AND t.live AND NOT EXISTS (
      SELECT FROM jsonb_array_elements(want->'ports') p
      WHERE p->>'switch' = w.name AND (p->>'port')::smallint = v.upstream_port)
    ORDER BY a.key);
  RETURN CASE WHEN cardinality(held) > 0 THEN in_use('host', own_name, used_by('allocations', held)) END;
END $$;

-- arg: id, ctx, host {name, ports [{switch, port}], kubernetes {cluster, node, node_uid}, limits {vppbs, decoders},
-- labels}, conditions.
CREATE OR REPLACE FUNCTION put_host(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  wish jsonb := jsonb_strip_nulls(arg->'host');
  want jsonb;
  changes jsonb;
  refused jsonb;
  h host;
  declared_id uuid;
BEGIN
  PERFORM declaring();
  SELECT * INTO h FROM host WHERE name = wish->>'name' FOR NO KEY UPDATE;
  want := jsonb_build_object(
    'name', wish->'name',
    'ports', (SELECT coalesce(jsonb_agg(jsonb_build_object('switch', x.switch, 'port', x.port) ORDER BY x.switch, x.port), '[]')
              FROM (SELECT DISTINCT p->>'switch' AS switch, (p->>'port')::smallint AS port
                    FROM jsonb_array_elements(wish->'ports') p) x),
    'kubernetes', nullif(wish->'kubernetes', '{}'), 'limits', nullif(wish->'limits', '{}'),
    'labels', coalesce(wish->'labels', '{}'));
  refused := coalesce(unmet_condition(arg, h.generation), host_conflict(want, h));
  IF refused IS NOT NULL THEN
    RETURN refused;
  END IF;
  changes := field_changes(CASE WHEN h.id IS NOT NULL THEN declared_host(h) END, want);
  IF changes = '[]' THEN
    RETURN jsonb_build_object('created', false, 'changes', changes);
  END IF;
  INSERT INTO host (id, name, cluster, node, node_uid, vppbs_max, decoders_max, labels)
  VALUES ((arg->>'id')::uuid, wish->>'name', want#>>'{kubernetes,cluster}', want#>>'{kubernetes,node}',
          want#>>'{kubernetes,node_uid}', (want#>>'{limits,vppbs}')::smallint, (want#>>'{limits,decoders}')::smallint,
          want->'labels')
  ON CONFLICT (name) DO UPDATE SET cluster = excluded.cluster, node = excluded.node, node_uid = excluded.node_uid,
    vppbs_max = excluded.vppbs_max, decoders_max = excluded.decoders_max, labels = excluded.labels,
    generation = host.generation + 1, updated_at = now()
  RETURNING id INTO declared_id;
  DELETE FROM host_port o WHERE o.host_id = declared_id;
  INSERT INTO host_port (switch_name, port_number, host_id)
  SELECT p->>'switch', (p->>'port')::smallint, declared_id FROM jsonb_array_elements(want->'ports') p;
  PERFORM record_event('host.declared', 'host', declared_id::text, arg->'ctx',
    CASE WHEN h.id IS NOT NULL THEN side_of(changes, 'have') END, side_of(changes, 'want'),
    jsonb_build_object('host', wish->>'name'));
  RETURN jsonb_build_object('created', h.id IS NULL, 'changes', changes);
END $$;

-- Everything at once, or nothing: arg ids (one per thing), ctx, dry_run, inventory {fabrics, pools, devices, hosts},
-- if_match (against inventory_digest).
-- Answers {diff [{noun, name, action, fields}]} of what was done, or with dry_run would be done; or {refused, noun,
-- index, name}, and then nothing was. What is not named is left alone.
CREATE OR REPLACE FUNCTION apply_inventory(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  noun text;
  thing jsonb;
  place bigint;
  ids jsonb := arg->'ids';
  done integer := 0;
  answer jsonb;
  diff jsonb[] := '{}';
  refused jsonb;
BEGIN
  PERFORM declaring();
  IF jsonb_typeof(arg->'if_match') = 'array' AND NOT arg->'if_match' ?| ARRAY['*', inventory_digest()] THEN
    RETURN refusal('stale_generation', 'the inventory has changed since you read it');
  END IF;
  FOREACH noun IN ARRAY ARRAY['fabric', 'pool', 'device', 'host'] LOOP
    FOR thing, place IN
      SELECT t.value, t.ordinality - 1 FROM jsonb_array_elements(arg->'inventory'->(noun || 's')) WITH ORDINALITY t
    LOOP
      EXECUTE format('SELECT put_%s($1)', noun) INTO answer USING jsonb_build_object(
        'id', ids->done, 'ctx', arg->'ctx', noun, thing);
      done := done + 1;
      IF answer ? 'refused' THEN
        refused := answer || jsonb_build_object('noun', noun, 'index', place, 'name', thing->'name');
        RAISE EXCEPTION USING ERRCODE = 'FM002';
      ELSIF answer->'changes' <> '[]' THEN
        diff := diff || jsonb_build_object(
          'noun', noun, 'name', thing->'name', 'fields', answer->'changes',
          'action', CASE WHEN (answer->>'created')::boolean THEN 'create' ELSE 'change' END);
      END IF;
    END LOOP;
  END LOOP;
  IF (arg->>'dry_run')::boolean THEN
    RAISE EXCEPTION USING ERRCODE = 'FM002';
  END IF;
  RETURN jsonb_build_object('diff', to_jsonb(diff));
EXCEPTION WHEN SQLSTATE 'FM002' THEN  -- every row is as it was; variables are not rows
  RETURN coalesce(refused, jsonb_build_object('diff', to_jsonb(diff)));
END $$;

-- What people declared, in the form that apply_inventory takes. arg is not looked at.
CREATE OR REPLACE FUNCTION export_inventory(arg jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object(
    'fabrics', (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(declared_fabric(f)) ORDER BY f.name), '[]') FROM fabric f),
    'pools', (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(declared_pool(p)) ORDER BY p.name), '[]') FROM pool p),
    'devices', (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(declared_device(d)) ORDER BY d.name), '[]')
                FROM device d WHERE d.pool_id IS NOT NULL),
    'hosts', (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(declared_host(h)) ORDER BY h.name), '[]') FROM host h))
$$;

-- Tells one state of all that is declared from another.
CREATE OR REPLACE FUNCTION inventory_digest() RETURNS text
LANGUAGE sql STABLE AS $$ SELECT md5(export_inventory('{}')::text) $$;

-- The four deletions: arg ref (name or id), ctx, if_match. Each answers {refused} or {deleted}. What is over keeps its
-- story in the events; its own row only loses the reference.

CREATE OR REPLACE FUNCTION delete_fabric(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  f fabric;
  d device;
  holders jsonb;
  unmet jsonb;
BEGIN
  PERFORM declaring();
  SELECT * INTO f FROM fabric WHERE arg->>'ref' IN (name, id::text);
  IF f.id IS NULL THEN
    RETURN refusal('not_found', format('there is no fabric ''%s''', arg->>'ref'));
  END IF;
  PERFORM pg_advisory_xact_lock(epoch_lock(f.id));  -- whoever drives it finishes its transaction first, as in a take-over
  SELECT * INTO f FROM fabric WHERE id = f.id FOR UPDATE;
  unmet := unmet_condition(arg, f.generation);
  holders := used_by('devices', ARRAY(SELECT name FROM device WHERE fabric_id = f.id AND pool_id IS NOT NULL ORDER BY name))
    || used_by('allocations', ARRAY(
      SELECT DISTINCT a.key FROM device x JOIN segment s ON s.device_no = x.number AND s.phase NOT IN ('failed', 'released')
      JOIN allocation a ON a.id = s.allocation_id WHERE x.fabric_id = f.id ORDER BY a.key))
    || used_by('operations', ARRAY(
      SELECT id::text FROM operation WHERE fabric_id = f.id AND state IN ('pending', 'running') ORDER BY id));
  IF unmet IS NOT NULL THEN
    RETURN unmet;
  ELSIF holders <> '[]' THEN
    RETURN in_use('fabric', f.name, holders);
  END IF;
  FOR d IN SELECT * FROM device WHERE fabric_id = f.id AND admin_state <> 'retired' ORDER BY number FOR NO KEY UPDATE LOOP
    PERFORM retire(d);
  END LOOP;
  UPDATE device SET fabric_id = NULL WHERE fabric_id = f.id;
  UPDATE operation SET fabric_id = NULL, generation = generation + 1 WHERE fabric_id = f.id;
  UPDATE switch SET fabric_id = NULL, name = format('%s~%s', name, id), generation = generation + 1 WHERE fabric_id = f.id;
  DELETE FROM fabric WHERE id = f.id;
  PERFORM record_event('fabric.deleted', 'fabric', f.id::text, arg->'ctx', declared_fabric(f), NULL);
  RETURN jsonb_build_object('deleted', f.name);
END $$;

CREATE OR REPLACE FUNCTION delete_pool(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  p pool;
  holders jsonb;
  unmet jsonb;
BEGIN
  PERFORM declaring();
  SELECT * INTO p FROM pool WHERE arg->>'ref' IN (name, id::text) FOR UPDATE;
  IF p.id IS NULL THEN
    RETURN refusal('not_found', format('there is no pool ''%s''', arg->>'ref'));
  END IF;
  unmet := unmet_condition(arg, pool_generation(p));
  holders := used_by('devices', ARRAY(SELECT name FROM device WHERE pool_id = p.id ORDER BY name))
    || used_by('allocations', ARRAY(
      SELECT key FROM allocation WHERE pool_id = p.id AND phase NOT IN ('failed', 'released') ORDER BY key));
  IF unmet IS NOT NULL THEN
    RETURN unmet;
  ELSIF holders <> '[]' THEN
    RETURN in_use('pool', p.name, holders);
  END IF;
  UPDATE allocation SET pool_id = NULL, generation = generation + 1 WHERE pool_id = p.id;
  DELETE FROM pool WHERE id = p.id;
  PERFORM record_event('pool.deleted', 'pool', p.id::text, arg->'ctx', declared_pool(p), NULL,
    jsonb_build_object('pool', p.name));
  RETURN jsonb_build_object('deleted', p.name);
END $$;

-- Retire: see retire().
CREATE OR REPLACE FUNCTION delete_device(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  d device;
  pool_name text;
  before jsonb;
  holders jsonb;
  unmet jsonb;
BEGIN
  PERFORM declaring();
  SELECT * INTO d FROM device WHERE arg->>'ref' IN (name, id::text) AND admin_state <> 'retired' FOR NO KEY UPDATE;
  IF d.id IS NULL THEN
    RETURN refusal('not_found', format('there is no device ''%s''', arg->>'ref'));
  END IF;
  before := declared_device(d);
  unmet := unmet_condition(arg, d.generation);
  holders := used_by('allocations', live_on(d.number));
  IF unmet IS NOT NULL THEN
    RETURN unmet;
  ELSIF holders <> '[]' THEN
    RETURN in_use('device', d.name, holders);
  END IF;
  PERFORM retire(d);
  PERFORM record_event('device.retired', 'device', d.id::text, arg->'ctx', before, NULL,
    jsonb_build_object('device', d.name, 'pool', before->>'pool'));
  RETURN jsonb_build_object('deleted', d.name);
END $$;

CREATE OR REPLACE FUNCTION delete_host(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  h host;
  before jsonb;
  holders jsonb;
  unmet jsonb;
BEGIN
  PERFORM declaring();
  SELECT * INTO h FROM host WHERE arg->>'ref' IN (name, id::text) FOR UPDATE;
  IF h.id IS NULL THEN
    RETURN refusal('not_found', format('there is no host ''%s''', arg->>'ref'));
  END IF;
  before := declared_host(h);
  unmet := unmet_condition(arg, h.generation);
  holders := used_by('allocations', ARRAY(
    SELECT key FROM allocation WHERE host_id = h.id AND phase NOT IN ('failed', 'released') ORDER BY key));
  IF unmet IS NOT NULL THEN
    RETURN unmet;
  ELSIF holders <> '[]' THEN
    RETURN in_use('host', h.name, holders);
  END IF;
  UPDATE allocation SET host_id = NULL, generation = generation + 1 WHERE host_id = h.id;
  UPDATE attachment SET host_id = NULL, live = false, state = 'gone', updated_at = now() WHERE host_id = h.id;
  DELETE FROM host_port WHERE host_id = h.id;
  DELETE FROM host WHERE id = h.id;
  PERFORM record_event('host.deleted', 'host', h.id::text, arg->'ctx', before, NULL,
    jsonb_build_object('host', h.name, 'cluster', h.cluster));
  RETURN jsonb_build_object('deleted', h.name);
END $$;

-- Cordon: the device keeps what it has and gets nothing new. arg: ref, cordoned, ctx, if_match. Answers {changed}.
CREATE OR REPLACE FUNCTION cordon_device(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  d device;
  wanted text := CASE WHEN (arg->>'cordoned')::boolean THEN 'cordoned' ELSE 'enabled' END;
  unmet jsonb;
BEGIN
  SELECT * INTO d FROM device WHERE arg->>'ref' IN (name, id::text) AND admin_state <> 'retired' FOR NO KEY UPDATE;
  IF d.id IS NULL THEN
    RETURN refusal('not_found', format('there is no device ''%s''', arg->>'ref'));
  END IF;
  unmet := unmet_condition(arg, d.generation);
  IF unmet IS NOT NULL THEN
    RETURN unmet;
  ELSIF d.admin_state NOT IN ('enabled', 'cordoned') THEN
    RETURN refusal('illegal_phase', format('device %s is %s', d.name, d.admin_state),
      jsonb_build_object('admin_state', d.admin_state));
  ELSIF d.admin_state = wanted THEN
    RETURN jsonb_build_object('changed', false);
  END IF;
  UPDATE device SET admin_state = wanted, generation = generation + 1, updated_at = now() WHERE number = d.number;
  PERFORM record_event(CASE wanted WHEN 'cordoned' THEN 'device.cordoned' ELSE 'device.uncordoned' END, 'device',
    d.id::text, arg->'ctx', jsonb_build_object('admin_state', d.admin_state), jsonb_build_object('admin_state', wanted),
    jsonb_build_object('device', d.name, 'pool', (SELECT name FROM pool WHERE id = d.pool_id)));
  RETURN jsonb_build_object('changed', true);
END $$;
