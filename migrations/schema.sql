-- What the migrations make, dumped by PostgreSQL 18. Written by `make schema`; a test compares.

CREATE FUNCTION public.acquire_fabric(arg jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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

CREATE TABLE public.segment (
    id uuid NOT NULL,
    allocation_id uuid NOT NULL,
    device_no integer NOT NULL,
    ld_id smallint,
    dpa_space smallint,
    size_bytes bigint NOT NULL,
    min_bandwidth bigint DEFAULT '0'::bigint NOT NULL,
    share_n smallint DEFAULT '0'::smallint NOT NULL,
    phase text NOT NULL,
    goal text DEFAULT 'hold'::text NOT NULL,
    attachment_id uuid,
    verified_at timestamp with time zone,
    unbound_at timestamp with time zone,
    node_state text,
    node_boot_id text,
    numa_node integer,
    dax_device text,
    forgotten boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT segment_bound_was_read_back CHECK (((phase <> ALL (ARRAY['bound'::text, 'online'::text, 'release_blocked'::text])) OR ((verified_at IS NOT NULL) AND (attachment_id IS NOT NULL)))),
    CONSTRAINT segment_goal_known CHECK ((goal = ANY (ARRAY['hold'::text, 'bind'::text, 'unbind'::text, 'release'::text, 'undo'::text]))),
    CONSTRAINT segment_ld_or_extents CHECK (((ld_id IS NULL) OR (dpa_space IS NULL))),
    CONSTRAINT segment_node_state_known CHECK ((node_state = ANY (ARRAY['online'::text, 'offline'::text, 'offline_failed'::text]))),
    CONSTRAINT segment_online_was_reported CHECK (((phase <> ALL (ARRAY['online'::text, 'release_blocked'::text])) OR (node_state = ANY (ARRAY['online'::text, 'offline_failed'::text])))),
    CONSTRAINT segment_phase_known CHECK ((phase = ANY (ARRAY['reserved'::text, 'binding'::text, 'bound'::text, 'online'::text, 'release_blocked'::text, 'releasing'::text, 'sanitizing'::text, 'released'::text, 'failed'::text, 'lost'::text, 'quarantined'::text]))),
    CONSTRAINT segment_size_positive CHECK ((size_bytes > 0)),
    CONSTRAINT segment_taken_only_when_offline CHECK (((phase <> ALL (ARRAY['releasing'::text, 'sanitizing'::text, 'reserved'::text, 'released'::text, 'failed'::text])) OR (COALESCE(node_state, 'offline'::text) = 'offline'::text)))
);

COMMENT ON COLUMN public.segment.ld_id IS 'the LD held; an SLD is its own LD 0';

COMMENT ON COLUMN public.segment.dpa_space IS 'the host interface its extents live in, on a DCD once bound';

COMMENT ON COLUMN public.segment.forgotten IS 'as its allocation is';

CREATE FUNCTION public.after_transition(s public.segment, was text) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.allocation_counts_for_tenant() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
  was bigint := 0;
  becomes bigint := CASE WHEN bucket(NEW.phase) = 'free' THEN 0 ELSE NEW.granted_bytes END;
  count_change integer := (becomes > 0)::int;
BEGIN
  IF TG_OP = 'UPDATE' THEN
    IF NEW.tenant_id <> OLD.tenant_id THEN
      RAISE EXCEPTION 'an allocation never changes its tenant'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'allocation_keeps_tenant';
    END IF;
    was := CASE WHEN bucket(OLD.phase) = 'free' THEN 0 ELSE OLD.granted_bytes END;
    count_change := (becomes > 0)::int - (was > 0)::int;
  END IF;
  IF was <> becomes THEN
    UPDATE tenant SET used_bytes = used_bytes + becomes - was,
                      used_allocations = used_allocations + count_change,
                      generation = generation + 1
    WHERE id = NEW.tenant_id;
  END IF;
  RETURN NULL;
END $$;

CREATE TABLE public.allocation (
    id uuid NOT NULL,
    key text NOT NULL,
    forgotten boolean DEFAULT false NOT NULL,
    tenant_id uuid NOT NULL,
    consumer_kind text,
    cluster text,
    namespace text,
    consumer_name text,
    claim_uid text,
    request jsonb NOT NULL,
    size_bytes bigint NOT NULL,
    granted_bytes bigint DEFAULT '0'::bigint NOT NULL,
    pool_id uuid,
    host_id uuid,
    qos_class text NOT NULL,
    isolation text NOT NULL,
    phase text NOT NULL,
    goal text DEFAULT 'hold'::text NOT NULL,
    failure jsonb,
    conditions jsonb DEFAULT '[]'::jsonb NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    deadline_at timestamp with time zone,
    reservation_ttl_s integer,
    reservation_expires_at timestamp with time zone,
    finished_at timestamp with time zone,
    state_changed_at timestamp with time zone DEFAULT now() NOT NULL,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT allocation_goal_known CHECK ((goal = ANY (ARRAY['hold'::text, 'bind'::text, 'unbind'::text, 'release'::text, 'undo'::text]))),
    CONSTRAINT allocation_phase_known CHECK ((phase = ANY (ARRAY['reserved'::text, 'binding'::text, 'bound'::text, 'online'::text, 'release_blocked'::text, 'releasing'::text, 'sanitizing'::text, 'released'::text, 'failed'::text, 'lost'::text, 'quarantined'::text]))),
    CONSTRAINT allocation_size_bounded CHECK (((size_bytes >= 1) AND (size_bytes <= '9007199254740991'::bigint)))
);

COMMENT ON COLUMN public.allocation.forgotten IS 'its tombstone is gone';

CREATE FUNCTION public.allocation_dims(a public.allocation) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
      'key', a.key, 'claim_uid', a.claim_uid, 'cluster', a.cluster, 'tenant', t.name,
      'host', (SELECT name FROM host WHERE id = a.host_id), 'pool', (SELECT name FROM pool WHERE id = a.pool_id),
      'device', (SELECT d.name FROM segment s JOIN device d ON d.number = s.device_no
                 WHERE s.allocation_id = a.id ORDER BY s.id LIMIT 1))
    FROM tenant t WHERE t.id = a.tenant_id
  );
END $$;

CREATE FUNCTION public.allocation_document(a public.allocation) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
      'key', a.key, 'id', a.id, 'tenant', t.name, 'phase', a.phase, 'goal', a.goal, 'generation', a.generation,
      'request', a.request, 'size_bytes', a.size_bytes, 'granted_bytes', a.granted_bytes,
      'pool', (SELECT name FROM pool WHERE id = a.pool_id), 'host', (SELECT name FROM host WHERE id = a.host_id),
      'qos_class', a.qos_class, 'isolation', a.isolation,
      'consumer', CASE WHEN a.consumer_kind IS NOT NULL THEN jsonb_build_object(
        'kind', a.consumer_kind, 'cluster', a.cluster, 'namespace', a.namespace, 'name', a.consumer_name,
        'uid', a.claim_uid) END,
      'labels', a.labels, 'conditions', a.conditions, 'failure', a.failure,
      'segments', (SELECT coalesce(jsonb_agg(segment_document(s) ORDER BY s.id), '[]')
                   FROM segment s WHERE s.allocation_id = a.id),
      'operation', (SELECT jsonb_build_object('id', o.id, 'goal', o.goal) FROM operation o
                    WHERE o.allocation_id = a.id AND o.state IN ('pending', 'running')),
      'reservation_expires_at', a.reservation_expires_at, 'created_at', a.created_at, 'updated_at', a.updated_at)
    FROM tenant t WHERE t.id = a.tenant_id
  );
END $$;

CREATE FUNCTION public.apply_inventory(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $_$
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
END $_$;

CREATE TABLE public.device (
    id uuid NOT NULL,
    number integer NOT NULL,
    name text NOT NULL,
    fabric_id uuid,
    switch_id uuid,
    port_number smallint,
    serial text NOT NULL,
    kind text NOT NULL,
    pool_id uuid,
    capacity_bytes bigint DEFAULT '0'::bigint NOT NULL,
    free_bytes bigint DEFAULT '0'::bigint NOT NULL,
    allocated_bytes bigint DEFAULT '0'::bigint NOT NULL,
    sanitizing_bytes bigint DEFAULT '0'::bigint NOT NULL,
    quarantined_bytes bigint DEFAULT '0'::bigint NOT NULL,
    withdrawn_bytes bigint DEFAULT '0'::bigint NOT NULL,
    granule_bytes bigint DEFAULT '1'::bigint NOT NULL,
    allocation_step_bytes bigint DEFAULT '1'::bigint NOT NULL,
    lds_max smallint DEFAULT '0'::smallint NOT NULL,
    free_lds integer DEFAULT 0 NOT NULL,
    share_n smallint DEFAULT '0'::smallint NOT NULL,
    exclusive_tenant_id uuid,
    dc_regions jsonb DEFAULT '[]'::jsonb NOT NULL,
    bandwidth_bytes_per_s bigint DEFAULT '0'::bigint NOT NULL,
    latency_ns integer DEFAULT 0 NOT NULL,
    tier text,
    media text,
    failure_domain text,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    capabilities text[] DEFAULT '{}'::text[] NOT NULL,
    reserved_for text[] DEFAULT '{}'::text[] NOT NULL,
    health text DEFAULT 'unknown'::text NOT NULL,
    firmware text DEFAULT ''::text NOT NULL,
    admin_state text DEFAULT 'enabled'::text NOT NULL,
    boot_count bigint,
    state_changed_at timestamp with time zone DEFAULT now() NOT NULL,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT device_admin_state_known CHECK ((admin_state = ANY (ARRAY['enabled'::text, 'cordoned'::text, 'draining'::text, 'maintenance'::text, 'retired'::text]))),
    CONSTRAINT device_bytes_not_negative CHECK ((LEAST(free_bytes, allocated_bytes, sanitizing_bytes, quarantined_bytes, withdrawn_bytes) >= 0)),
    CONSTRAINT device_bytes_sum_to_capacity CHECK ((capacity_bytes = ((((free_bytes + allocated_bytes) + sanitizing_bytes) + quarantined_bytes) + withdrawn_bytes))),
    CONSTRAINT device_free_lds_bounded CHECK (((free_lds >= 0) AND (free_lds <= 65535))),
    CONSTRAINT device_has_fabric CHECK (((fabric_id IS NOT NULL) OR (admin_state = 'retired'::text))),
    CONSTRAINT device_health_known CHECK ((health = ANY (ARRAY['ok'::text, 'degraded'::text, 'failed'::text, 'unknown'::text]))),
    CONSTRAINT device_kind_known CHECK ((kind = ANY (ARRAY['sld'::text, 'mld'::text, 'dcd'::text]))),
    CONSTRAINT device_retired_holds_nothing CHECK (((admin_state <> 'retired'::text) OR ((pool_id IS NULL) AND (capacity_bytes = 0)))),
    CONSTRAINT device_share_bounded CHECK (((share_n >= 0) AND (share_n <= 256)))
)
WITH (fillfactor='70');

COMMENT ON COLUMN public.device.fabric_id IS 'NULL: retired, and its fabric deleted';

COMMENT ON COLUMN public.device.free_lds IS 'bit n: LD n is carved, clean, unheld';

COMMENT ON COLUMN public.device.share_n IS 'sum of live shares, n/256';

CREATE TABLE public.host (
    id uuid NOT NULL,
    name text NOT NULL,
    cluster text,
    node text,
    node_uid text,
    vppbs_max smallint,
    decoders_max smallint,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    boot_id text,
    boot_ids_past text[] DEFAULT '{}'::text[] NOT NULL,
    epoch bigint DEFAULT '0'::bigint NOT NULL,
    fenced_at timestamp with time zone,
    fence_reason text,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE FUNCTION public.attach_dcd(h public.host, d public.device, new_id uuid) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.bad_field(field text, detail text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT refusal('validation_failed', detail, jsonb_build_object('field', field)) $$;

CREATE FUNCTION public.begin_step(arg jsonb) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
  next_number integer;
BEGIN
  PERFORM guard_epoch((arg->>'fabric_id')::uuid, (arg->>'epoch')::bigint);
  UPDATE operation SET state = 'running', started_at = coalesce(started_at, now()), generation = generation + 1,
                       reason = arg->>'step'
  WHERE id = (arg->>'operation_id')::uuid AND state IN ('pending', 'running');
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT coalesce(max(number), 0) + 1 INTO next_number FROM operation_step WHERE operation_id = (arg->>'operation_id')::uuid;
  INSERT INTO operation_step (operation_id, number, segment_id, step, component, intent, epoch, intended_at)
  VALUES ((arg->>'operation_id')::uuid, next_number, (arg->>'segment_id')::uuid, arg->>'step', arg->>'component',
          arg->'intent', (arg->>'epoch')::bigint, now());
  RETURN next_number;
END $$;

CREATE FUNCTION public.bind(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.bind_segments(a public.allocation, h public.host, arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.bucket(phase text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  SELECT CASE WHEN phase IN ('failed', 'released') THEN 'free'
              WHEN phase IN ('sanitizing', 'quarantined') THEN phase
              ELSE 'allocated' END
$$;

CREATE FUNCTION public.can_serve(d public.device) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT CASE d.kind
    WHEN 'mld' THEN 'sanitize_ld' = ANY (d.capabilities)
    WHEN 'dcd' THEN d.capabilities @> ARRAY['dc_prescriptive', 'sanitize_on_release']
    ELSE 'sanitize_device' = ANY (d.capabilities) END
$$;

CREATE FUNCTION public.choose_spans(d public.device, space smallint, size bigint) RETURNS SETOF int8range
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.choose_vppb(h public.host, d public.device) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.claim(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.claim_candidates(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION public.claim_funnel(arg jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
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

CREATE FUNCTION public.claim_preview(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION public.conditions_of(phase text, conditions jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
BEGIN
  RETURN (
    SELECT set_condition(
      set_condition(conditions, 'Bound', phase IN ('bound', 'online', 'release_blocked'),
        CASE WHEN phase IN ('bound', 'online', 'release_blocked') THEN 'ReadBack'
             ELSE replace(initcap(replace(phase, '_', ' ')), ' ', '') END,
        CASE phase
          WHEN 'reserved' THEN 'capacity is set aside; hardware is untouched'
          WHEN 'binding' THEN 'the switch is being asked'
          WHEN 'bound' THEN 'read back from the switch as wanted'
          WHEN 'online' THEN 'read back from the switch as wanted'
          WHEN 'release_blocked' THEN 'to be released; waits for the node to take the memory offline'
          WHEN 'releasing' THEN 'being taken from the host'
          WHEN 'sanitizing' THEN 'contents are being erased'
          WHEN 'lost' THEN 'hardware no longer gives the memory to the host'
          WHEN 'quarantined' THEN 'a fact could not be proven; an operator has to clear it'
          ELSE 'holds no memory' END),
      'Online', phase IN ('online', 'release_blocked'),
      CASE WHEN phase IN ('online', 'release_blocked') THEN 'NodeReported' ELSE 'NotReported' END,
      CASE WHEN phase IN ('online', 'release_blocked') THEN 'the node uses the memory'
           ELSE 'the node has not said that it uses the memory' END)
  );
END $$;

CREATE FUNCTION public.cordon_device(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.cordon_forgetful(device_no integer, ctx jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.count_change_marks(batch_max integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  WITH taken AS (
    DELETE FROM change_mark WHERE id IN (SELECT id FROM change_mark ORDER BY id LIMIT batch_max) RETURNING kind
  )
  INSERT INTO event_kind_head (kind, changes) SELECT kind, count(*) FROM taken GROUP BY kind
  ON CONFLICT (kind) DO UPDATE SET changes = event_kind_head.changes + excluded.changes;
END $$;

CREATE FUNCTION public.count_one(what text, which text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  shards CONSTANT integer := 8;
BEGIN
  INSERT INTO tally (name, label, shard, value) VALUES (what, which, pg_backend_pid() % shards, 1)
  ON CONFLICT (name, label, shard) DO UPDATE SET value = tally.value + 1;
END $$;

CREATE FUNCTION public.declared_device(d public.device) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
    'name', d.name, 'serial', d.serial, 'fabric', (SELECT name FROM fabric WHERE id = d.fabric_id),
    'pool', (SELECT name FROM pool WHERE id = d.pool_id), 'tier', d.tier, 'media', d.media,
    'failure_domain', d.failure_domain, 'labels', d.labels, 'bandwidth_bytes_per_s', d.bandwidth_bytes_per_s,
    'latency_ns', d.latency_ns, 'reserved_for', to_jsonb(d.reserved_for))
  );
END $$;

CREATE TABLE public.fabric (
    id uuid NOT NULL,
    name text NOT NULL,
    driver text NOT NULL,
    endpoint text NOT NULL,
    credentials_ref text,
    admin_state text DEFAULT 'active'::text NOT NULL,
    state text DEFAULT 'unreachable'::text NOT NULL,
    state_reason text,
    owner text,
    epoch bigint DEFAULT '0'::bigint NOT NULL,
    owned_until timestamp with time zone,
    scanned_at timestamp with time zone,
    state_changed_at timestamp with time zone DEFAULT now() NOT NULL,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT fabric_admin_state_known CHECK ((admin_state = ANY (ARRAY['active'::text, 'paused'::text, 'maintenance'::text]))),
    CONSTRAINT fabric_epoch_not_negative CHECK ((epoch >= 0)),
    CONSTRAINT fabric_state_known CHECK ((state = ANY (ARRAY['up'::text, 'degraded'::text, 'unreachable'::text])))
);

COMMENT ON COLUMN public.fabric.owner IS 'process that drives the hardware now';

CREATE FUNCTION public.declared_fabric(f public.fabric) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object('name', f.name, 'driver', f.driver, 'endpoint', f.endpoint, 'admin_state', f.admin_state)
  );
END $$;

CREATE FUNCTION public.declared_host(h public.host) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE TABLE public.pool (
    id uuid NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    tier text,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT pool_kind_known CHECK ((kind = ANY (ARRAY['sld'::text, 'mld'::text, 'dcd'::text])))
);

CREATE FUNCTION public.declared_pool(p public.pool) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object('name', p.name, 'kind', p.kind, 'tier', p.tier, 'labels', p.labels)
  );
END $$;

CREATE FUNCTION public.declaring() RETURNS void
    LANGUAGE sql
    AS $$ SELECT pg_advisory_xact_lock(hashtextextended('inventory', 0)) $$;

CREATE FUNCTION public.delete_device(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.delete_fabric(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.delete_host(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.delete_pool(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.device_conflict(wish jsonb, named public.device, bearer public.device) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION public.devices_absent(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.discover_device(arg jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.discover_switch(arg jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.due_work(arg jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
  SELECT coalesce(jsonb_agg(operation_work(due.whole) ORDER BY due.rank, due.id), '[]') FROM (
    SELECT o, o.id, CASE WHEN a.phase IN ('releasing', 'release_blocked') THEN 0 WHEN a.phase = 'sanitizing' THEN 2 ELSE 1 END AS rank
    FROM operation o JOIN allocation a ON a.id = o.allocation_id
    WHERE o.fabric_id = (arg->>'fabric_id')::uuid AND o.state IN ('pending', 'running') AND o.next_attempt_at <= now()
      AND o.id <> ALL (ARRAY(SELECT b::uuid FROM jsonb_array_elements_text(arg->'busy') b))
    ORDER BY 3, o.id LIMIT (arg->>'work_max')::integer
  ) due(whole, id, rank)
$$;

CREATE FUNCTION public.end_step(arg jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
  evident jsonb := nullif(arg->'evidence', 'null');
  p operation_step;
BEGIN
  PERFORM guard_epoch((arg->>'fabric_id')::uuid, (arg->>'epoch')::bigint);
  UPDATE operation_step SET outcome = arg->>'outcome', observed = arg->'observed', finished_at = clock_timestamp()
  WHERE operation_id = (arg->>'operation_id')::uuid AND number = (arg->>'number')::integer RETURNING * INTO p;
  UPDATE operation SET attempts = attempts + (arg->>'attempt')::integer, percent = NULL, eta_ms = NULL
  WHERE id = p.operation_id;
  INSERT INTO frame (operation_id, endpoint, component, opcode, command, request, response, request_raw, response_raw,
                     return_code, sent_at, answered_at)
  SELECT p.operation_id, f->>'endpoint', f->>'component', (f->>'opcode')::integer, f->>'command', f->'request',
         f->'response', decode(f->>'request_raw', 'hex'), decode(f->>'response_raw', 'hex'),
         (f->>'return_code')::integer, (f->>'sent_at')::timestamptz, (f->>'answered_at')::timestamptz
  FROM jsonb_array_elements(arg->'frames') f;
  IF evident IS NOT NULL THEN
    INSERT INTO evidence (id, segment_id, device_no, device_serial, operation_id, method, size_bytes,
                          started_at, ended_at, read_back)
    SELECT (evident->>'id')::uuid, s.id, d.number, d.serial, p.operation_id, evident->>'method', s.size_bytes,
           p.intended_at, clock_timestamp(), evident->'read_back'
    FROM segment s JOIN device d ON d.number = s.device_no WHERE s.id = p.segment_id;
  END IF;
  RETURN true;
END $$;

CREATE FUNCTION public.ensure_tenant(arg jsonb) RETURNS uuid
    LANGUAGE plpgsql
    AS $$
BEGIN
  INSERT INTO tenant (id, name) VALUES ((arg->>'id')::uuid, arg->>'name') ON CONFLICT DO NOTHING;
  IF FOUND THEN
    PERFORM record_event('tenant.created', 'tenant', arg->>'id', arg->'ctx', NULL,
      jsonb_build_object('name', arg->>'name'), jsonb_build_object('tenant', arg->>'name'));
  END IF;
  RETURN (SELECT id FROM tenant WHERE name = arg->>'name');
END $$;

CREATE FUNCTION public.epoch_lock(fabric_wanted uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT hashtextextended('fabric epoch ' || fabric_wanted, 0) $$;

CREATE FUNCTION public.expire_allocations(arg jsonb) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.expire_events(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $_$
DECLARE
  grace interval := make_interval(secs => (arg->>'grace_s')::float);
  h event_head;
  oldest_kept bigint;
  partition text;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtext('event retention')) THEN
    RETURN NULL;
  END IF;
  SELECT * INTO h FROM event_head;
  SELECT p.relname INTO partition FROM (
    -- a CASE, because the planner may cast the names of all tables before it looks which are partitions
    SELECT c.relname, CASE WHEN c.relname ~ '^event_[0-9]+$' THEN substr(c.relname, length('event_') + 1)::bigint END AS part
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'event'::regclass
  ) p WHERE (p.part + 1) * h.partition_rows <= h.oldest_seq ORDER BY p.part LIMIT 1;
  IF FOUND AND h.oldest_moved_at < clock_timestamp() - grace THEN
    PERFORM set_config('lock_timeout', '100ms', true);  -- readers queue behind a waiting DROP
    EXECUTE format('DROP TABLE %I', partition);
    RETURN jsonb_build_object('dropped', partition);
  END IF;
  oldest_kept := (h.seq - (arg->>'keep')::bigint) / h.partition_rows * h.partition_rows;
  IF oldest_kept > h.oldest_seq THEN
    UPDATE event_head SET oldest_seq = oldest_kept, oldest_moved_at = clock_timestamp();
    RETURN jsonb_build_object('oldest_seq', oldest_kept);
  END IF;
  RETURN NULL;
END $_$;

CREATE FUNCTION public.export_inventory(arg jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
  SELECT jsonb_build_object(
    'fabrics', (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(declared_fabric(f)) ORDER BY f.name), '[]') FROM fabric f),
    'pools', (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(declared_pool(p)) ORDER BY p.name), '[]') FROM pool p),
    'devices', (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(declared_device(d)) ORDER BY d.name), '[]')
                FROM device d WHERE d.pool_id IS NOT NULL),
    'hosts', (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(declared_host(h)) ORDER BY h.name), '[]') FROM host h))
$$;

CREATE FUNCTION public.field_changes(have jsonb, want jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
  RETURN (
    SELECT coalesce(jsonb_agg(jsonb_build_object('field', f, 'have', have->f, 'want', want->f) ORDER BY f), '[]')
  FROM jsonb_object_keys(coalesce(have, '{}') || want) f
  WHERE nullif(have->f, 'null') IS DISTINCT FROM nullif(want->f, 'null')
  );
END $$;

CREATE FUNCTION public.finish_operation(wanted uuid, ends text, why text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  UPDATE operation SET state = ends, reason = why, finished_at = now(), percent = NULL, eta_ms = NULL,
                       generation = generation + 1
  WHERE allocation_id = wanted AND state IN ('pending', 'running');
END $$;

CREATE FUNCTION public.forget_allocations(arg jsonb) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
  over text[];
BEGIN
  over := ARRAY(SELECT key FROM allocation_key WHERE expires_at < now() ORDER BY expires_at
                LIMIT (arg->>'batch_max')::integer FOR UPDATE SKIP LOCKED);
  UPDATE allocation SET forgotten = true WHERE key = ANY (over) AND NOT forgotten AND phase = 'released';
  UPDATE allocation_key SET expires_at = NULL, tombstone_scopes = '{}' WHERE key = ANY (over);
  RETURN cardinality(over);
END $$;

CREATE FUNCTION public.forget_segments() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  UPDATE segment SET forgotten = true WHERE allocation_id = NEW.id;
  RETURN NULL;
END $$;

CREATE FUNCTION public.grant_of(d public.device, size bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION public.guard_epoch(fabric_wanted uuid, mine bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(epoch_lock(fabric_wanted));
  PERFORM FROM fabric WHERE id = fabric_wanted AND epoch = mine;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'fabric % has another owner than epoch %', fabric_wanted, mine USING ERRCODE = 'FM003';
  END IF;
END $$;

CREATE FUNCTION public.history_is_append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE FUNCTION public.host_can_attach(host_id uuid, d public.device) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT EXISTS (
      SELECT FROM attachment t
      WHERE d.kind = 'dcd' AND t.live AND t.host_id = host_can_attach.host_id AND t.device_no = d.number
    ) OR NOT choose_vppb((SELECT h FROM host h WHERE h.id = host_can_attach.host_id), d) ? 'refusal'
  );
END $$;

CREATE FUNCTION public.host_conflict(want jsonb, h public.host) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION public.host_reaches(host_id uuid, d public.device) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT EXISTS (
      SELECT FROM host_port hp JOIN switch w ON w.name = hp.switch_name
      JOIN vcs v ON v.switch_id = w.id AND v.upstream_port = hp.port_number
      WHERE hp.host_id = host_reaches.host_id AND w.id = d.switch_id)
  );
END $$;

CREATE FUNCTION public.in_use(noun text, name text, holders jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT refusal('illegal_phase', format('%s %s is in use: %s', noun, name, (
    SELECT string_agg(format('%s %s (%s)', u->>'count', u->>'noun', (
      SELECT string_agg(n, ', ') FROM jsonb_array_elements_text(u->'first') n)), '; ')
    FROM jsonb_array_elements(holders) u)), jsonb_build_object('used_by', holders))
$$;

CREATE FUNCTION public.inventory_digest() RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT md5(export_inventory('{}')::text) $$;

CREATE FUNCTION public.kinds_for(attachment text) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT CASE attachment WHEN 'logical-device' THEN ARRAY['mld', 'sld'] WHEN 'dynamic-capacity' THEN ARRAY['dcd']
              ELSE ARRAY['mld', 'sld', 'dcd'] END
$$;

CREATE FUNCTION public.known_fabrics(arg jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
  SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'name', name, 'driver', driver, 'endpoint', endpoint,
                                               'admin_state', admin_state) ORDER BY name), '[]') FROM fabric
$$;

CREATE FUNCTION public.largest_grant(d public.device, soon boolean) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION public.leave(a public.allocation, new_goal text, arg jsonb) RETURNS public.allocation
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.leaving_event(s public.segment, a public.allocation, new_goal text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT CASE
      WHEN s.phase = 'lost' AND new_goal = 'release' AND coalesce(s.node_state, 'offline') <> 'offline'
           AND a.conditions @> '[{"type": "Reappeared", "status": "True"}]' THEN 'release-wanted-present'
      WHEN s.phase IN ('reserved', 'binding', 'bound', 'online', 'lost', 'failed') THEN new_goal || '-wanted' END
  );
END $$;

CREATE FUNCTION public.live_on(device_wanted integer) RETURNS text[]
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT ARRAY(SELECT DISTINCT a.key FROM segment s JOIN allocation a ON a.id = s.allocation_id
               WHERE s.device_no = device_wanted AND s.phase NOT IN ('failed', 'released') ORDER BY a.key)
  );
END $$;

CREATE FUNCTION public.mark_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  INSERT INTO change_mark (kind) VALUES (TG_ARGV[0]);
  RETURN NULL;
END $$;

CREATE FUNCTION public.mark_reappeared(arg jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.may_use(d public.device, request jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT d.reserved_for = '{}' OR d.reserved_for && ARRAY[
    'tenant:' || (request->>'tenant'), 'cluster:' || (request#>>'{consumer,cluster}')]
$$;

CREATE FUNCTION public.next_phase(from_phase text, on_event text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
  result text;
BEGIN
  SELECT t.next_phase INTO result FROM lifecycle_transition t WHERE t.phase = from_phase AND t.event = on_event;
  IF result IS NULL THEN
    RAISE EXCEPTION 'a segment that is % cannot take %', from_phase, on_event USING ERRCODE = 'FM001';
  END IF;
  RETURN result;
END $$;

CREATE FUNCTION public.note_state_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  NEW.state_changed_at := now();
  RETURN NEW;
END $$;

CREATE FUNCTION public.open_operation(a public.allocation, new_id uuid, new_goal text, ctx jsonb, deadline timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  UPDATE operation SET state = 'superseded', finished_at = now(), reason = 'replaced by goal ' || new_goal,
                       generation = generation + 1
  WHERE allocation_id = a.id AND state IN ('pending', 'running');
  INSERT INTO operation (id, goal, allocation_id, fabric_id, deadline_at, actor, request_id)
  SELECT new_id, new_goal, a.id, d.fabric_id, deadline, ctx->>'actor', ctx->>'request_id'
  FROM segment s JOIN device d ON d.number = s.device_no WHERE s.allocation_id = a.id ORDER BY s.id LIMIT 1;
END $$;

CREATE FUNCTION public.operation_end(goal text, phase text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT CASE
    WHEN phase = 'quarantined' THEN 'quarantined'
    WHEN goal = 'bind' AND phase IN ('bound', 'online') THEN 'done'
    WHEN goal = 'bind' AND phase IN ('failed', 'lost') THEN 'failed'
    WHEN goal = 'undo' AND phase = 'failed' THEN 'done'
    WHEN goal = 'unbind' AND phase = 'reserved' THEN 'done'
    WHEN phase = 'released' THEN 'done' END
$$;

CREATE TABLE public.operation (
    id uuid NOT NULL,
    goal text NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    allocation_id uuid,
    fabric_id uuid,
    reason text DEFAULT ''::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    deadline_at timestamp with time zone,
    next_attempt_at timestamp with time zone DEFAULT now() NOT NULL,
    percent smallint,
    eta_ms bigint,
    actor text NOT NULL,
    request_id text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    CONSTRAINT operation_finished_has_time CHECK (((state = ANY (ARRAY['pending'::text, 'running'::text])) = (finished_at IS NULL))),
    CONSTRAINT operation_goal_known CHECK ((goal = ANY (ARRAY['hold'::text, 'bind'::text, 'unbind'::text, 'release'::text, 'undo'::text]))),
    CONSTRAINT operation_state_known CHECK ((state = ANY (ARRAY['pending'::text, 'running'::text, 'done'::text, 'failed'::text, 'quarantined'::text, 'superseded'::text]))),
    CONSTRAINT operation_unfinished_has_fabric CHECK (((fabric_id IS NOT NULL) OR (finished_at IS NOT NULL)))
);

COMMENT ON COLUMN public.operation.fabric_id IS 'NULL: over, and its fabric deleted';

CREATE FUNCTION public.operation_work(o public.operation) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
      'id', o.id, 'goal', o.goal, 'attempts', o.attempts, 'allocation_id', o.allocation_id, 'request_id', o.request_id,
      'actor', o.actor, 'key', (SELECT key FROM allocation WHERE id = o.allocation_id), 'late', coalesce(o.deadline_at <= now(), false),
      'segments', (SELECT coalesce(jsonb_agg(segment_work(s) ORDER BY s.id), '[]') FROM segment s
                   WHERE s.allocation_id = o.allocation_id))
  );
END $$;

CREATE FUNCTION public.own_live_bytes(d public.device, of_cluster text) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT coalesce(sum(greatest(0, least(s.size_bytes, a.size_bytes - coalesce((
      SELECT sum(e.size_bytes) FROM segment e
      WHERE e.allocation_id = a.id AND e.id < s.id AND e.phase NOT IN ('failed', 'released')), 0)))), 0)
    FROM segment s JOIN allocation a ON a.id = s.allocation_id AND a.cluster = of_cluster
    WHERE s.device_no = d.number AND s.phase NOT IN ('failed', 'released')
      AND s.phase IN ('reserved', 'binding', 'bound', 'online', 'lost')
  );
END $$;

CREATE FUNCTION public.place_segment(s public.segment, h public.host, new_attachment uuid) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.pool_generation(p public.pool) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT p.generation + coalesce((SELECT sum(d.generation) FROM device d WHERE d.pool_id = p.id), 0)::bigint
  );
END $$;

CREATE FUNCTION public.postpone_operation(arg jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
  PERFORM guard_epoch((arg->>'fabric_id')::uuid, (arg->>'epoch')::bigint);
  UPDATE operation SET
    next_attempt_at = clock_timestamp() + make_interval(secs => (arg->>'after_s')::double precision),
    reason = arg->>'reason', percent = (arg->>'percent')::smallint, eta_ms = (arg->>'eta_ms')::bigint,
    attempts = attempts + (arg->>'attempt')::integer,
    generation = generation + (reason IS DISTINCT FROM arg->>'reason'
                               OR percent IS DISTINCT FROM (arg->>'percent')::smallint)::integer
  WHERE id = (arg->>'operation_id')::uuid AND state IN ('pending', 'running');
  RETURN FOUND;
END $$;

CREATE FUNCTION public.publishable_bytes(d public.device, of_cluster text) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN own_live_bytes(d, of_cluster) + CASE
    WHEN d.health = 'ok' AND d.admin_state = 'enabled'
      AND (d.reserved_for = '{}' OR 'cluster:' || of_cluster = ANY (d.reserved_for)) THEN d.free_bytes ELSE 0 END;
END $$;

CREATE FUNCTION public.put_device(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION public.put_fabric(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.put_host(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION public.put_pool(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION public.record_event(type text, object_kind text, object_id text, ctx jsonb, before jsonb DEFAULT NULL::jsonb, after jsonb DEFAULT NULL::jsonb, dims jsonb DEFAULT '{}'::jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  INSERT INTO event_outbox (at, type, object_kind, object_id, key, claim_uid, cluster, tenant, host, device, pool,
                            before, after, actor, request_id, cause)
  VALUES (clock_timestamp(), type, object_kind, object_id, dims->>'key', dims->>'claim_uid', dims->>'cluster',
          dims->>'tenant', dims->>'host', dims->>'device', dims->>'pool',
          before, after, ctx->>'actor', ctx->>'request_id', ctx->>'cause');
END $$;

CREATE FUNCTION public.record_refusal(arg jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.refresh_allocation(wanted uuid, ctx jsonb, facts jsonb DEFAULT '{}'::jsonb) RETURNS public.allocation
    LANGUAGE plpgsql
    AS $$
DECLARE
  a allocation;
  was text;
  becomes text;
BEGIN
  SELECT * INTO a FROM allocation WHERE id = wanted;
  was := a.phase;
  SELECT coalesce((
    SELECT s.phase FROM segment s WHERE s.allocation_id = wanted AND s.phase <> 'released'
    ORDER BY array_position(ARRAY['quarantined', 'lost', 'release_blocked', 'releasing', 'sanitizing', 'failed',
                                  'reserved', 'binding', 'bound', 'online'], s.phase)
    LIMIT 1), 'released') INTO becomes;
  UPDATE allocation SET
    phase = becomes, generation = generation + 1, updated_at = now(),
    conditions = CASE WHEN becomes = was AND conditions <> '[]' THEN conditions
                      ELSE conditions_of(becomes, conditions) END,
    finished_at = CASE WHEN bucket(becomes) = 'free' THEN coalesce(finished_at, now()) END
  WHERE id = wanted RETURNING * INTO a;
  IF becomes <> was THEN
    PERFORM record_event('allocation.' || becomes, 'allocation', a.id::text, ctx,
      jsonb_build_object('phase', was), jsonb_build_object('phase', becomes) || facts, allocation_dims(a));
  END IF;
  RETURN a;
END $$;

CREATE FUNCTION public.refusal(code text, detail text, facts jsonb DEFAULT '{}'::jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT jsonb_build_object('refused', jsonb_build_object('code', code, 'detail', detail) || facts)
$$;

CREATE FUNCTION public.register_boot(arg jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
  boots_remembered CONSTANT integer := 32;
  h host;
  a allocation;
BEGIN
  PERFORM FROM allocation_key k JOIN allocation x ON x.key = k.key JOIN host y ON y.id = x.host_id
    WHERE y.name = arg->>'host' AND x.phase NOT IN ('failed', 'released') ORDER BY k.key FOR UPDATE OF k;
  PERFORM FROM device WHERE number IN (
    SELECT s.device_no FROM segment s JOIN allocation x ON x.id = s.allocation_id JOIN host y ON y.id = x.host_id
    WHERE y.name = arg->>'host' AND s.phase IN ('online', 'release_blocked')) ORDER BY number FOR NO KEY UPDATE;
  SELECT * INTO h FROM host WHERE name = arg->>'host' FOR NO KEY UPDATE;
  IF h.boot_id IS NOT DISTINCT FROM arg->>'boot_id' OR arg->>'boot_id' = ANY (h.boot_ids_past) THEN
    RETURN h.epoch;
  END IF;
  UPDATE host SET boot_id = arg->>'boot_id', boot_ids_past = (array_append(boot_ids_past, boot_id))[greatest(
                    cardinality(boot_ids_past) + 2 - boots_remembered, 1):], epoch = epoch + 1, generation = generation + 1, updated_at = now()
  WHERE id = h.id;
  PERFORM record_event('host.booted', 'host', h.id::text, arg->'ctx',
    jsonb_build_object('boot_id', h.boot_id, 'epoch', h.epoch),
    jsonb_build_object('boot_id', arg->>'boot_id', 'epoch', h.epoch + 1), jsonb_build_object('host', h.name));
  -- what waits for something else is no longer in use either
  UPDATE segment SET node_state = 'offline', node_boot_id = NULL, updated_at = now()
  WHERE phase IN ('lost', 'quarantined') AND node_state <> 'offline'
    AND allocation_id IN (SELECT id FROM allocation WHERE host_id = h.id);
  FOR a IN SELECT * FROM allocation WHERE host_id = h.id AND phase IN ('online', 'release_blocked') ORDER BY key LOOP
    UPDATE segment SET phase = next_phase(phase, 'new-boot'), node_state = 'offline', node_boot_id = NULL,
                       updated_at = now()
    WHERE allocation_id = a.id AND phase IN ('online', 'release_blocked');
    UPDATE operation SET next_attempt_at = now() WHERE allocation_id = a.id AND state IN ('pending', 'running');
    PERFORM refresh_allocation(a.id, arg->'ctx', '{"reason": "the host started anew"}');
  END LOOP;
  RETURN h.epoch + 1;
END $$;

CREATE FUNCTION public.release(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.reload_work(arg jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
  SELECT operation_work(o) FROM operation o
  WHERE o.id = (arg->>'operation_id')::uuid AND o.state IN ('pending', 'running')
$$;

CREATE FUNCTION public.renew_fabric(arg jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
  UPDATE fabric SET owned_until = clock_timestamp() + make_interval(secs => (arg->>'ttl_s')::double precision)
  WHERE id = (arg->>'fabric_id')::uuid AND epoch = (arg->>'epoch')::bigint;
  RETURN FOUND;
END $$;

CREATE FUNCTION public.replay(a public.allocation, arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.report_node_state(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
  a allocation;
  h host;
  s segment;
  report jsonb;
  said text;
  occurs text;
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
  SELECT * INTO h FROM host WHERE id = a.host_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'FM002', MESSAGE = jsonb_build_object('outcome', 'refused', 'refusal',
      jsonb_build_object('code', 'illegal_phase', 'phase', a.phase, 'reason', 'it is bound to no host'));
  ELSIF arg->>'boot_id' = ANY (h.boot_ids_past) THEN
    -- a report of before the last start that was long under way; taken, it would undo what was said since
    RETURN jsonb_build_object('outcome', 'refused', 'refusal', jsonb_build_object(
      'code', 'stale_generation', 'host', h.name, 'have_epoch', h.epoch,
      'reason', 'the host has started anew since this boot id'));
  ELSIF h.boot_id IS DISTINCT FROM arg->>'boot_id' THEN
    RETURN jsonb_build_object('outcome', 'boot_unknown', 'host', h.name);
  ELSIF (arg->>'epoch')::bigint <> h.epoch THEN
    RETURN jsonb_build_object('outcome', 'refused', 'refusal', jsonb_build_object(
      'code', 'stale_generation', 'have_epoch', h.epoch, 'got_epoch', (arg->>'epoch')::bigint));
  END IF;
  FOR report IN SELECT r FROM jsonb_array_elements(arg->'reports') r LOOP
    said := report->>'phase';
    SELECT * INTO s FROM segment WHERE allocation_id = a.id AND id = (report->>'id')::uuid;
    IF NOT FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'FM002', MESSAGE = jsonb_build_object('outcome', 'refused', 'refusal',
        jsonb_build_object('code', 'not_found', 'segment', report->>'id'));
    END IF;
    occurs := CASE
      WHEN said = 'online' AND s.phase = 'bound' THEN 'node-online'
      WHEN said = 'offline' AND s.phase IN ('online', 'release_blocked') THEN 'node-offline' END;
    IF said = 'online' AND s.phase NOT IN ('bound', 'online') THEN
      RAISE EXCEPTION USING ERRCODE = 'FM002', MESSAGE = jsonb_build_object('outcome', 'refused', 'refusal',
        jsonb_build_object('code', CASE WHEN s.phase IN ('release_blocked', 'releasing', 'sanitizing')
                                        THEN 'releasing' ELSE 'illegal_phase' END,
                           'phase', s.phase, 'segment', s.id));
    END IF;
    UPDATE segment SET
      phase = CASE WHEN occurs IS NULL THEN phase ELSE next_phase(phase, occurs) END,
      node_state = CASE
        WHEN said = 'offline' OR said = 'online' THEN said
        WHEN phase IN ('online', 'release_blocked', 'lost') THEN said  -- failed to go offline: still in use
        ELSE node_state END,
      node_boot_id = h.boot_id,
      numa_node = coalesce((report->>'numa_node')::integer, numa_node),
      dax_device = coalesce(report->>'dax_device', dax_device),
      updated_at = now()
    WHERE id = s.id;
    IF said = 'offline_failed' AND s.node_state IS DISTINCT FROM 'offline_failed' THEN
      PERFORM record_event('allocation.offline_failed', 'allocation', a.id::text, arg->'ctx', NULL,
        jsonb_build_object('segment', s.id, 'phase', s.phase), allocation_dims(a));
    END IF;
  END LOOP;
  UPDATE operation SET next_attempt_at = now() WHERE allocation_id = a.id AND state IN ('pending', 'running');
  SELECT * INTO a FROM refresh_allocation(a.id, arg->'ctx');
  RETURN jsonb_build_object('outcome', 'accepted', 'allocation', allocation_document(a));
EXCEPTION WHEN SQLSTATE 'FM002' THEN
  RETURN SQLERRM::jsonb;
END $$;

CREATE FUNCTION public.request_differences(have jsonb, got jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT jsonb_agg(jsonb_build_object('field', f, 'have', have->f, 'got', got->f) ORDER BY f)
  FROM jsonb_object_keys(have || got) f
  WHERE have->f IS DISTINCT FROM got->f AND f NOT IN ('labels', 'deadline_s', 'reservation_ttl_s')
$$;

CREATE FUNCTION public.retire(d public.device) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  UPDATE attachment SET live = false, state = 'gone', updated_at = now() WHERE device_no = d.number AND live;
  UPDATE logical_device SET size_bytes = 0 WHERE device_no = d.number AND size_bytes > 0;
  UPDATE device SET name = format('%s~%s', d.name, d.number), admin_state = 'retired', health = 'unknown',
    pool_id = NULL, switch_id = NULL, port_number = NULL, capacity_bytes = 0, free_bytes = 0, withdrawn_bytes = 0,
    free_lds = 0, exclusive_tenant_id = NULL, reserved_for = '{}', generation = generation + 1, updated_at = now()
  WHERE number = d.number;
END $$;

CREATE FUNCTION public.scan_work(arg jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
  SELECT coalesce(jsonb_agg(segment_work(s) || jsonb_build_object('allocation_id', s.allocation_id) ORDER BY s.id), '[]')
  FROM segment s JOIN device d ON d.number = s.device_no
  WHERE d.fabric_id = (arg->>'fabric_id')::uuid AND s.phase IN ('bound', 'online', 'lost')
$$;

CREATE FUNCTION public.segment_document(s public.segment) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
      'id', s.id, 'device', d.name, 'logical_device', s.ld_id, 'size_bytes', s.size_bytes,
      'min_bandwidth', s.min_bandwidth, 'phase', s.phase, 'goal', s.goal, 'node_state', s.node_state,
      'numa_node', s.numa_node, 'dax_device', s.dax_device,
      'extents', CASE WHEN s.ld_id IS NULL THEN (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
          'start_bytes', lower(e.span), 'size_bytes', upper(e.span) - lower(e.span)) ORDER BY e.number), '[]')
        FROM extent e WHERE e.segment_id = s.id) END,
      'binding', (
        SELECT jsonb_build_object('switch', w.name, 'vcs', t.vcs_number, 'vppb', t.vppb_number, 'phase', s.phase)
        FROM attachment t JOIN switch w ON w.id = t.switch_id WHERE t.id = s.attachment_id AND t.live))
    FROM device d WHERE d.number = s.device_no
  );
END $$;

CREATE FUNCTION public.segment_follows_lifecycle() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM lifecycle_transition t WHERE t.phase = OLD.phase AND t.next_phase = NEW.phase) THEN
    RAISE EXCEPTION 'a segment does not go from % to %', OLD.phase, NEW.phase
      USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_follows_lifecycle';
  END IF;
  IF OLD.phase = 'sanitizing' AND NEW.phase <> 'quarantined' AND NOT EXISTS (
    SELECT FROM evidence e WHERE e.segment_id = NEW.id AND e.ended_at >= NEW.unbound_at
  ) THEN
    RAISE EXCEPTION 'segment % has no evidence of sanitizing since it was unbound', NEW.id
      USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_sanitized_with_evidence';
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION public.segment_moves_bytes() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
  was text := 'free';
  becomes text := bucket(NEW.phase);
  bit integer := coalesce(1 << NEW.ld_id, 0);
BEGIN
  IF TG_OP = 'UPDATE' THEN
    was := bucket(OLD.phase);
  END IF;
  IF was = becomes THEN
    RETURN NULL;
  END IF;
  UPDATE device SET
    free_bytes        = free_bytes        + NEW.size_bytes * ((becomes = 'free')::int        - (was = 'free')::int),
    allocated_bytes   = allocated_bytes   + NEW.size_bytes * ((becomes = 'allocated')::int   - (was = 'allocated')::int),
    sanitizing_bytes  = sanitizing_bytes  + NEW.size_bytes * ((becomes = 'sanitizing')::int  - (was = 'sanitizing')::int),
    quarantined_bytes = quarantined_bytes + NEW.size_bytes * ((becomes = 'quarantined')::int - (was = 'quarantined')::int),
    free_lds = CASE WHEN becomes = 'free' THEN free_lds | bit WHEN was = 'free' THEN free_lds & ~bit ELSE free_lds END,
    generation = generation + 1,
    updated_at = now()
  WHERE number = NEW.device_no;
  RETURN NULL;
END $$;

CREATE FUNCTION public.segment_work(s public.segment) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
      'id', s.id, 'phase', s.phase, 'goal', s.goal, 'node_state', s.node_state, 'size_bytes', s.size_bytes,
      'ld_id', s.ld_id, 'serial', d.serial, 'kind', d.kind, 'device_switch', (SELECT name FROM switch WHERE id = d.switch_id),
      'sanitize_on_release', coalesce((d.dc_regions#>>'{0,sanitize_on_release}')::boolean, false),
      'region', coalesce((d.dc_regions#>>'{0,number}')::integer, 0),
      'sanitized', EXISTS (SELECT FROM evidence e WHERE e.segment_id = s.id AND e.ended_at >= s.unbound_at),
      'spans', (SELECT coalesce(jsonb_agg(jsonb_build_array(lower(e.span), upper(e.span) - lower(e.span)) ORDER BY e.number), '[]')
                FROM extent e WHERE e.segment_id = s.id),
      'place', (SELECT jsonb_build_object('switch', w.name, 'vcs', t.vcs_number, 'vppb', t.vppb_number,
                                          'port', t.port_number, 'ld_id', CASE WHEN t.kind <> 'sld' THEN t.ld_id END)
                FROM attachment t JOIN switch w ON w.id = t.switch_id WHERE t.id = s.attachment_id),
      -- counted since the binding was last asked for: an earlier life of the segment says nothing
      'offers', (SELECT count(*) FROM operation_step p JOIN operation o ON o.id = p.operation_id
                 WHERE p.segment_id = s.id AND p.step = 'offer' AND p.outcome = 'done'
                   AND o.state IN ('pending', 'running')),
      'refusals', (SELECT count(*) FROM operation_step p JOIN operation o ON o.id = p.operation_id
                   WHERE p.segment_id = s.id AND p.step IN ('bind', 'offer') AND p.outcome = 'refused'
                     AND o.state IN ('pending', 'running')),
      -- these outlive the operation they were sent for: a release that overtakes an unbind finds its steps
      'exposed', s.verified_at IS NOT NULL OR EXISTS (
        SELECT FROM steps_since_clean(s) p
        WHERE p.step = CASE d.kind WHEN 'dcd' THEN 'offer' ELSE 'bind' END
          AND coalesce(p.outcome, 'unknown') IN ('done', 'unknown')),
      'offered_in', (SELECT coalesce(jsonb_agg(DISTINCT p.intent->'boot_count'), '[]') FROM steps_since_clean(s) p
                     WHERE p.step = 'offer' AND coalesce(p.outcome, 'unknown') IN ('done', 'unknown')),
      'releases', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                     'boot_count', p.intent->'boot_count', 'outcome', p.outcome)), '[]')
                   FROM steps_since_clean(s) p WHERE p.step IN ('release', 'withdraw', 'watch')))
    FROM device d WHERE d.number = s.device_no
  );
END $$;

CREATE FUNCTION public.sequence_events(arg jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
  batch_max integer := arg->>'batch_max';
  head bigint;
  moved bigint;
  rows bigint;
  partition bigint;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtext('event sequencer')) THEN
    RETURN NULL;
  END IF;
  SELECT seq, partition_rows INTO head, rows FROM event_head;
  FOR partition IN SELECT generate_series((head + 1) / rows, (head + batch_max) / rows) LOOP
    IF to_regclass(format('event_%s', partition)) IS NULL THEN
      EXECUTE format('CREATE TABLE event_%s PARTITION OF event FOR VALUES FROM (%s) TO (%s)',
                     partition, partition * rows, (partition + 1) * rows);
    END IF;
  END LOOP;
  WITH taken AS (
    DELETE FROM event_outbox WHERE id IN (SELECT id FROM event_outbox ORDER BY id LIMIT batch_max) RETURNING *
  ), numbered AS (
    INSERT INTO event (seq, at, type, object_kind, object_id, key, claim_uid, cluster, tenant, host, device, pool,
                       before, after, actor, request_id, cause)
    SELECT head + row_number() OVER (ORDER BY id), at, type, object_kind, object_id, key, claim_uid, cluster, tenant,
           host, device, pool, before, after, actor, request_id, cause
    FROM taken RETURNING event.seq, object_kind
  ), heads AS (
    INSERT INTO event_kind_head (kind, seq) SELECT object_kind, max(seq) FROM numbered GROUP BY object_kind
    ON CONFLICT (kind) DO UPDATE SET seq = excluded.seq
  )
  SELECT count(*) INTO moved FROM numbered;
  PERFORM count_change_marks(batch_max);
  IF moved > 0 THEN
    UPDATE event_head SET seq = head + moved;
    PERFORM pg_notify('fabric_events', (head + moved)::text);
  END IF;
  RETURN head + moved;
END $$;

CREATE FUNCTION public.set_condition(conditions jsonb, type text, status boolean, reason text, message text) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
BEGIN
  RETURN (
    SELECT coalesce((SELECT jsonb_agg(c) FROM jsonb_array_elements(conditions) c WHERE c->>'type' <> type), '[]')
      || jsonb_build_array(jsonb_build_object(
        'type', type, 'status', CASE WHEN status THEN 'True' ELSE 'False' END, 'reason', reason, 'message', message,
        'last_transition_at', coalesce(
          (SELECT c->'last_transition_at' FROM jsonb_array_elements(conditions) c
           WHERE c->>'type' = type AND (c->>'status' = 'True') = status),
          to_jsonb(clock_timestamp()))))
  );
END $$;

CREATE FUNCTION public.set_fabric_state(arg jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.settle(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.side_of(changes jsonb, side text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
  RETURN (
    SELECT coalesce(jsonb_object_agg(c->>'field', c->side), '{}') FROM jsonb_array_elements(changes) c
  );
END $$;

CREATE TABLE public.operation_step (
    operation_id uuid NOT NULL,
    number integer NOT NULL,
    segment_id uuid,
    step text NOT NULL,
    component text NOT NULL,
    intent jsonb NOT NULL,
    epoch bigint NOT NULL,
    intended_at timestamp with time zone NOT NULL,
    outcome text,
    observed jsonb,
    finished_at timestamp with time zone,
    CONSTRAINT operation_step_outcome_known CHECK ((outcome = ANY (ARRAY['done'::text, 'refused'::text, 'busy'::text, 'unknown'::text])))
);

COMMENT ON COLUMN public.operation_step.outcome IS 'NULL: the process that intended it never said';

CREATE FUNCTION public.steps_since_clean(s public.segment) RETURNS SETOF public.operation_step
    LANGUAGE sql STABLE
    AS $$
  SELECT p.* FROM operation_step p WHERE p.segment_id = s.id AND p.intended_at > coalesce(
    (SELECT max(e.ended_at) FROM evidence e WHERE e.segment_id = s.id), '-infinity')
$$;

CREATE FUNCTION public.tombstone_hours() RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT interval '24 hours' $$;

CREATE FUNCTION public.try_device(arg jsonb, wanted_number integer, wait boolean) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.unbind(arg jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.unmet_condition(arg jsonb, have bigint) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    AS $$
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

CREATE FUNCTION public.used_by(noun text, names text[]) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
  RETURN (
    SELECT CASE WHEN cardinality(names) > 0 THEN jsonb_build_array(
    jsonb_build_object('noun', noun, 'count', cardinality(names), 'first', names[1:10])) ELSE '[]' END
  );
END $$;

CREATE FUNCTION public.yield_fabric(arg jsonb) RETURNS void
    LANGUAGE sql
    AS $$
  UPDATE fabric SET owner = NULL, owned_until = NULL, generation = generation + 1
  WHERE id = (arg->>'fabric_id')::uuid AND epoch = (arg->>'epoch')::bigint
$$;

CREATE TABLE public.allocation_key (
    key text NOT NULL,
    tombstone_scopes text[] DEFAULT '{}'::text[] NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT allocation_key_shape CHECK ((key ~ '^[A-Za-z0-9._~:-]{1,200}$'::text))
);

COMMENT ON TABLE public.allocation_key IS 'Locked first by every verb on the key, so that all of them stand in line.';

COMMENT ON COLUMN public.allocation_key.tombstone_scopes IS 'tenants or clusters whose DELETE came before any PUT';

CREATE TABLE public.api_token (
    id uuid NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    role text NOT NULL,
    tenant text,
    cluster text,
    host text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT api_token_hash_is_sha256 CHECK ((octet_length(hash) = 32)),
    CONSTRAINT api_token_role_known CHECK ((role = ANY (ARRAY['node'::text, 'controller'::text, 'tenant'::text, 'viewer'::text, 'operator'::text, 'admin'::text, 'breakglass'::text])))
);

COMMENT ON COLUMN public.api_token.hash IS 'SHA-256; the secret is never stored';

CREATE TABLE public.attachment (
    id uuid NOT NULL,
    host_id uuid,
    device_no integer NOT NULL,
    kind text NOT NULL,
    switch_id uuid NOT NULL,
    vcs_number smallint NOT NULL,
    vppb_number smallint NOT NULL,
    port_number smallint NOT NULL,
    ld_id smallint NOT NULL,
    live boolean DEFAULT true NOT NULL,
    state text DEFAULT 'wanted'::text NOT NULL,
    share_n smallint DEFAULT '0'::smallint NOT NULL,
    limit_n smallint DEFAULT '255'::smallint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT attachment_kind_known CHECK ((kind = ANY (ARRAY['sld'::text, 'mld'::text, 'dcd'::text]))),
    CONSTRAINT attachment_live_has_host CHECK (((host_id IS NOT NULL) OR (NOT live))),
    CONSTRAINT attachment_qos_bounded CHECK ((((share_n >= 0) AND (share_n <= 255)) AND ((limit_n >= share_n) AND (limit_n <= 255)))),
    CONSTRAINT attachment_state_known CHECK ((state = ANY (ARRAY['wanted'::text, 'bound'::text, 'gone'::text])))
);

COMMENT ON COLUMN public.attachment.host_id IS 'NULL: over, and its host deleted';

COMMENT ON COLUMN public.attachment.ld_id IS 'LD of an MLD, host interface of a DCD, 0 of an SLD';

CREATE TABLE public.change_mark (
    id bigint NOT NULL,
    kind text NOT NULL
);

COMMENT ON TABLE public.change_mark IS 'A change that no event tells of, not yet counted in event_kind_head.';

ALTER TABLE public.change_mark ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.change_mark_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE public.device ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.device_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.event (
    seq bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    type text NOT NULL,
    object_kind text NOT NULL,
    object_id text NOT NULL,
    key text,
    claim_uid text,
    cluster text,
    tenant text,
    host text,
    device text,
    pool text,
    before jsonb,
    after jsonb,
    actor text NOT NULL,
    request_id text,
    cause text
)
PARTITION BY RANGE (seq);

CREATE TABLE public.event_0 (
    seq bigint CONSTRAINT event_seq_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT event_at_not_null NOT NULL,
    type text CONSTRAINT event_type_not_null NOT NULL,
    object_kind text CONSTRAINT event_object_kind_not_null NOT NULL,
    object_id text CONSTRAINT event_object_id_not_null NOT NULL,
    key text,
    claim_uid text,
    cluster text,
    tenant text,
    host text,
    device text,
    pool text,
    before jsonb,
    after jsonb,
    actor text CONSTRAINT event_actor_not_null NOT NULL,
    request_id text,
    cause text
);

CREATE TABLE public.event_head (
    singleton boolean DEFAULT true NOT NULL,
    seq bigint NOT NULL,
    oldest_seq bigint DEFAULT '1'::bigint NOT NULL,
    oldest_moved_at timestamp with time zone DEFAULT now() NOT NULL,
    partition_rows bigint DEFAULT '1000000'::bigint NOT NULL,
    CONSTRAINT event_head_partition_rows_positive CHECK ((partition_rows > 0)),
    CONSTRAINT event_head_single CHECK (singleton)
);

COMMENT ON COLUMN public.event_head.oldest_seq IS 'The first number that may still be asked for; what is below is dropped later.';

COMMENT ON COLUMN public.event_head.partition_rows IS 'Numbers in one partition; it stays as it is once there are events.';

CREATE TABLE public.event_kind_head (
    kind text NOT NULL,
    seq bigint DEFAULT '0'::bigint NOT NULL,
    changes bigint DEFAULT '0'::bigint NOT NULL
);

COMMENT ON TABLE public.event_kind_head IS 'What the ETag of a list is made of: moves with every change of a kind of object.';

COMMENT ON COLUMN public.event_kind_head.seq IS 'the kind''s last event';

COMMENT ON COLUMN public.event_kind_head.changes IS 'change marks counted so far';

CREATE TABLE public.event_outbox (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    type text NOT NULL,
    object_kind text NOT NULL,
    object_id text NOT NULL,
    key text,
    claim_uid text,
    cluster text,
    tenant text,
    host text,
    device text,
    pool text,
    before jsonb,
    after jsonb,
    actor text NOT NULL,
    request_id text,
    cause text
);

COMMENT ON TABLE public.event_outbox IS 'Events as written by their transactions, not yet numbered.';

ALTER TABLE public.event_outbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.event_outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.evidence (
    id uuid NOT NULL,
    segment_id uuid NOT NULL,
    device_no integer NOT NULL,
    device_serial text NOT NULL,
    operation_id uuid,
    method text NOT NULL,
    size_bytes bigint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    read_back jsonb NOT NULL,
    CONSTRAINT evidence_ends_after_start CHECK ((ended_at >= started_at)),
    CONSTRAINT evidence_method_known CHECK ((method = ANY (ARRAY['completion'::text, 'release_with_sanitize'::text, 'host_attested'::text, 'operator'::text])))
);

COMMENT ON TABLE public.evidence IS 'Why bytes may be handed on: how, when and on which device they were erased.';

CREATE TABLE public.extent (
    segment_id uuid NOT NULL,
    number smallint NOT NULL,
    device_no integer NOT NULL,
    dpa_space smallint NOT NULL,
    span int8range NOT NULL,
    block_bytes bigint NOT NULL,
    CONSTRAINT extent_aligned CHECK ((((lower(span) % block_bytes) = 0) AND ((upper(span) % block_bytes) = 0))),
    CONSTRAINT extent_block_positive CHECK ((block_bytes > 0)),
    CONSTRAINT extent_bounded CHECK (((NOT lower_inf(span)) AND (NOT upper_inf(span)) AND (lower(span) >= 0) AND (upper(span) < '4611686018427387904'::bigint))),
    CONSTRAINT extent_not_empty CHECK ((NOT isempty(span)))
);

COMMENT ON COLUMN public.extent.segment_id IS 'also the tag on the wire';

COMMENT ON COLUMN public.extent.span IS '[start, end) in the host''s DPA space, in bytes';

CREATE TABLE public.frame (
    id bigint NOT NULL,
    operation_id uuid,
    endpoint text NOT NULL,
    component text NOT NULL,
    opcode integer NOT NULL,
    command text NOT NULL,
    request jsonb NOT NULL,
    response jsonb,
    request_raw bytea NOT NULL,
    response_raw bytea NOT NULL,
    return_code integer,
    sent_at timestamp with time zone NOT NULL,
    answered_at timestamp with time zone
);

ALTER TABLE public.frame ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.frame_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.host_port (
    switch_name text NOT NULL,
    port_number smallint NOT NULL,
    host_id uuid NOT NULL
);

COMMENT ON COLUMN public.host_port.switch_name IS 'a name: hosts may be declared before discovery';

CREATE TABLE public.isolation_policy (
    id uuid NOT NULL,
    name text NOT NULL,
    sharing text NOT NULL,
    sanitize text NOT NULL,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT isolation_policy_sanitize_known CHECK ((sanitize = ANY (ARRAY['always'::text, 'on-tenant-change'::text, 'never'::text]))),
    CONSTRAINT isolation_policy_sharing_known CHECK ((sharing = ANY (ARRAY['shared-device'::text, 'tenant-device'::text, 'dedicated-device'::text])))
);

CREATE TABLE public.lifecycle_transition (
    phase text NOT NULL,
    event text NOT NULL,
    next_phase text NOT NULL
);

COMMENT ON TABLE public.lifecycle_transition IS 'A copy of domain/lifecycle.py; a test compares them.';

CREATE TABLE public.logical_device (
    device_no integer NOT NULL,
    ld_id smallint NOT NULL,
    id uuid NOT NULL,
    size_bytes bigint NOT NULL,
    dirty boolean DEFAULT false NOT NULL,
    share_n smallint DEFAULT '0'::smallint NOT NULL,
    limit_n smallint DEFAULT '0'::smallint NOT NULL,
    CONSTRAINT logical_device_ld_id_bounded CHECK (((ld_id >= 0) AND (ld_id <= 15))),
    CONSTRAINT logical_device_size_not_negative CHECK ((size_bytes >= 0))
);

CREATE TABLE public.port (
    id uuid NOT NULL,
    switch_id uuid NOT NULL,
    number smallint NOT NULL,
    role text NOT NULL,
    device_serial text,
    link_width smallint DEFAULT '0'::smallint NOT NULL,
    link_width_max smallint DEFAULT '0'::smallint NOT NULL,
    link_speed_gt smallint DEFAULT '0'::smallint NOT NULL,
    link_speed_gt_max smallint DEFAULT '0'::smallint NOT NULL,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT port_number_bounded CHECK (((number >= 0) AND (number <= 255))),
    CONSTRAINT port_role_known CHECK ((role = ANY (ARRAY['upstream'::text, 'downstream'::text, 'fabric'::text, 'disabled'::text])))
);

CREATE TABLE public.qos_class (
    id uuid NOT NULL,
    name text NOT NULL,
    min_bandwidth bigint DEFAULT '0'::bigint NOT NULL,
    max_bandwidth bigint,
    max_latency_ns integer,
    priority smallint DEFAULT '0'::smallint NOT NULL,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT qos_class_limit_not_below_guarantee CHECK ((max_bandwidth >= min_bandwidth))
);

CREATE TABLE public.switch (
    id uuid NOT NULL,
    name text NOT NULL,
    fabric_id uuid,
    serial text NOT NULL,
    hdm_decoders integer NOT NULL,
    boot_count bigint,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON COLUMN public.switch.fabric_id IS 'NULL: of a fabric that was deleted';

CREATE TABLE public.tally (
    name text NOT NULL,
    label text NOT NULL,
    shard smallint NOT NULL,
    value bigint NOT NULL
);

COMMENT ON TABLE public.tally IS 'What is counted as it happens, because nobody may count it afterwards.';

COMMENT ON COLUMN public.tally.shard IS 'so that those who count at once do not wait';

CREATE TABLE public.tenant (
    id uuid NOT NULL,
    name text NOT NULL,
    quota_bytes bigint,
    quota_allocations integer,
    quota_bandwidth bigint,
    used_bytes bigint DEFAULT '0'::bigint NOT NULL,
    used_allocations integer DEFAULT 0 NOT NULL,
    used_bandwidth bigint DEFAULT '0'::bigint NOT NULL,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT tenant_quota_allocations CHECK ((used_allocations <= quota_allocations)),
    CONSTRAINT tenant_quota_bandwidth CHECK ((used_bandwidth <= quota_bandwidth)),
    CONSTRAINT tenant_quota_bytes CHECK ((used_bytes <= quota_bytes)),
    CONSTRAINT tenant_used_not_negative CHECK (((used_bytes >= 0) AND (used_allocations >= 0) AND (used_bandwidth >= 0)))
)
WITH (fillfactor='50');

CREATE TABLE public.tenant_consumer (
    cluster text NOT NULL,
    namespace text NOT NULL,
    tenant_id uuid NOT NULL
);

CREATE TABLE public.vcs (
    id uuid NOT NULL,
    switch_id uuid NOT NULL,
    number smallint NOT NULL,
    upstream_port smallint NOT NULL,
    generation bigint DEFAULT '1'::bigint NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT vcs_number_bounded CHECK (((number >= 0) AND (number <= 255)))
);

CREATE TABLE public.vppb (
    switch_id uuid NOT NULL,
    vcs_number smallint NOT NULL,
    number smallint NOT NULL,
    state text NOT NULL,
    port_number smallint,
    ld_id smallint,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT vppb_state_known CHECK ((state = ANY (ARRAY['free'::text, 'busy'::text, 'bound_port'::text, 'bound_ld'::text])))
);

COMMENT ON COLUMN public.vppb.state IS 'as last read from the switch';

ALTER TABLE ONLY public.event ATTACH PARTITION public.event_0 FOR VALUES FROM ('0') TO ('1000000');

ALTER TABLE ONLY public.allocation_key
    ADD CONSTRAINT allocation_key_pkey PRIMARY KEY (key);

ALTER TABLE ONLY public.allocation
    ADD CONSTRAINT allocation_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.api_token
    ADD CONSTRAINT api_token_hash_key UNIQUE (hash);

ALTER TABLE ONLY public.api_token
    ADD CONSTRAINT api_token_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.attachment
    ADD CONSTRAINT attachment_device_key UNIQUE (id, device_no);

ALTER TABLE ONLY public.attachment
    ADD CONSTRAINT attachment_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.change_mark
    ADD CONSTRAINT change_mark_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.device
    ADD CONSTRAINT device_name_key UNIQUE (name);

ALTER TABLE ONLY public.device
    ADD CONSTRAINT device_number_key UNIQUE (number);

ALTER TABLE ONLY public.device
    ADD CONSTRAINT device_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.device
    ADD CONSTRAINT device_serial_key UNIQUE (serial);

ALTER TABLE ONLY public.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY public.event_0
    ADD CONSTRAINT event_0_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY public.event_head
    ADD CONSTRAINT event_head_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY public.event_kind_head
    ADD CONSTRAINT event_kind_head_pkey PRIMARY KEY (kind);

ALTER TABLE ONLY public.event_outbox
    ADD CONSTRAINT event_outbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.evidence
    ADD CONSTRAINT evidence_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.extent
    ADD CONSTRAINT extent_pkey PRIMARY KEY (segment_id, number);

ALTER TABLE ONLY public.extent
    ADD CONSTRAINT extent_spans_disjoint EXCLUDE USING gist (int4range(device_no, device_no, '[]'::text) WITH &&, int4range((dpa_space)::integer, (dpa_space)::integer, '[]'::text) WITH &&, span WITH &&);

ALTER TABLE ONLY public.fabric
    ADD CONSTRAINT fabric_name_key UNIQUE (name);

ALTER TABLE ONLY public.fabric
    ADD CONSTRAINT fabric_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.frame
    ADD CONSTRAINT frame_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.host
    ADD CONSTRAINT host_name_key UNIQUE (name);

ALTER TABLE ONLY public.host
    ADD CONSTRAINT host_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.host_port
    ADD CONSTRAINT host_port_pkey PRIMARY KEY (switch_name, port_number);

ALTER TABLE ONLY public.isolation_policy
    ADD CONSTRAINT isolation_policy_name_key UNIQUE (name);

ALTER TABLE ONLY public.isolation_policy
    ADD CONSTRAINT isolation_policy_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.lifecycle_transition
    ADD CONSTRAINT lifecycle_transition_pkey PRIMARY KEY (phase, event);

ALTER TABLE ONLY public.logical_device
    ADD CONSTRAINT logical_device_id_key UNIQUE (id);

ALTER TABLE ONLY public.logical_device
    ADD CONSTRAINT logical_device_pkey PRIMARY KEY (device_no, ld_id);

ALTER TABLE ONLY public.operation
    ADD CONSTRAINT operation_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.operation_step
    ADD CONSTRAINT operation_step_pkey PRIMARY KEY (operation_id, number);

ALTER TABLE ONLY public.pool
    ADD CONSTRAINT pool_kind_key UNIQUE (id, kind);

ALTER TABLE ONLY public.pool
    ADD CONSTRAINT pool_name_key UNIQUE (name);

ALTER TABLE ONLY public.pool
    ADD CONSTRAINT pool_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.port
    ADD CONSTRAINT port_number_key UNIQUE (switch_id, number);

ALTER TABLE ONLY public.port
    ADD CONSTRAINT port_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.qos_class
    ADD CONSTRAINT qos_class_name_key UNIQUE (name);

ALTER TABLE ONLY public.qos_class
    ADD CONSTRAINT qos_class_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.segment
    ADD CONSTRAINT segment_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.segment
    ADD CONSTRAINT segment_space_key UNIQUE (id, device_no, dpa_space);

ALTER TABLE ONLY public.switch
    ADD CONSTRAINT switch_name_key UNIQUE (name);

ALTER TABLE ONLY public.switch
    ADD CONSTRAINT switch_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.switch
    ADD CONSTRAINT switch_serial_key UNIQUE (serial);

ALTER TABLE ONLY public.tally
    ADD CONSTRAINT tally_pkey PRIMARY KEY (name, label, shard);

ALTER TABLE ONLY public.tenant_consumer
    ADD CONSTRAINT tenant_consumer_pkey PRIMARY KEY (cluster, namespace);

ALTER TABLE ONLY public.tenant
    ADD CONSTRAINT tenant_name_key UNIQUE (name);

ALTER TABLE ONLY public.tenant
    ADD CONSTRAINT tenant_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.vcs
    ADD CONSTRAINT vcs_number_key UNIQUE (switch_id, number);

ALTER TABLE ONLY public.vcs
    ADD CONSTRAINT vcs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.vppb
    ADD CONSTRAINT vppb_pkey PRIMARY KEY (switch_id, vcs_number, number);

CREATE INDEX allocation_claim_uid ON public.allocation USING btree (claim_uid, id) WHERE ((NOT forgotten) AND (claim_uid IS NOT NULL));

CREATE INDEX allocation_cluster ON public.allocation USING btree (cluster, id) WHERE ((NOT forgotten) AND (cluster IS NOT NULL));

CREATE INDEX allocation_consumer_kind ON public.allocation USING btree (consumer_kind, id) WHERE ((NOT forgotten) AND (consumer_kind IS NOT NULL));

CREATE INDEX allocation_host ON public.allocation USING btree (host_id, forgotten, id);

CREATE INDEX allocation_kept ON public.allocation USING btree (id) WHERE (NOT forgotten);

CREATE INDEX allocation_key_expiry ON public.allocation_key USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE UNIQUE INDEX allocation_key_once ON public.allocation USING btree (key) WHERE (NOT forgotten);

CREATE INDEX allocation_live_host ON public.allocation USING btree (host_id, id) WHERE (phase <> ALL (ARRAY['failed'::text, 'released'::text]));

CREATE INDEX allocation_phase ON public.allocation USING btree (phase, forgotten, id);

CREATE INDEX allocation_pool ON public.allocation USING btree (pool_id, forgotten, id);

CREATE INDEX allocation_reservation_expiry ON public.allocation USING btree (reservation_expires_at) WHERE ((phase = 'reserved'::text) AND (reservation_expires_at IS NOT NULL));

CREATE INDEX allocation_tenant ON public.allocation USING btree (tenant_id, forgotten, id);

CREATE UNIQUE INDEX attachment_dcd_host_once ON public.attachment USING btree (host_id, device_no) WHERE (live AND (kind = 'dcd'::text));

CREATE UNIQUE INDEX attachment_ld_once ON public.attachment USING btree (device_no, ld_id) WHERE live;

CREATE INDEX attachment_live ON public.attachment USING btree (id) WHERE live;

CREATE INDEX attachment_live_host ON public.attachment USING btree (host_id) WHERE live;

CREATE UNIQUE INDEX attachment_vppb_once ON public.attachment USING btree (switch_id, vcs_number, vppb_number) WHERE live;

CREATE INDEX device_fabric ON public.device USING btree (fabric_id, name);

CREATE INDEX device_not_enabled ON public.device USING btree (name) WHERE (admin_state <> 'enabled'::text);

CREATE INDEX device_pool ON public.device USING btree (pool_id, name);

CREATE INDEX device_unwell ON public.device USING btree (name) WHERE (health <> 'ok'::text);

CREATE INDEX device_with_room ON public.device USING btree (pool_id, free_bytes, number) WHERE ((health = 'ok'::text) AND (admin_state = 'enabled'::text) AND (free_bytes > 0));

CREATE INDEX event_claim_uid ON ONLY public.event USING btree (claim_uid, seq) WHERE (claim_uid IS NOT NULL);

CREATE INDEX event_0_claim_uid_seq_idx ON public.event_0 USING btree (claim_uid, seq) WHERE (claim_uid IS NOT NULL);

CREATE INDEX event_device ON ONLY public.event USING btree (device, seq) WHERE (device IS NOT NULL);

CREATE INDEX event_0_device_seq_idx ON public.event_0 USING btree (device, seq) WHERE (device IS NOT NULL);

CREATE INDEX event_host ON ONLY public.event USING btree (host, seq) WHERE (host IS NOT NULL);

CREATE INDEX event_0_host_seq_idx ON public.event_0 USING btree (host, seq) WHERE (host IS NOT NULL);

CREATE INDEX event_key ON ONLY public.event USING btree (key, seq);

CREATE INDEX event_0_key_seq_idx ON public.event_0 USING btree (key, seq);

CREATE INDEX event_kind ON ONLY public.event USING btree (object_kind, seq);

CREATE INDEX event_0_object_kind_seq_idx ON public.event_0 USING btree (object_kind, seq);

CREATE INDEX evidence_segment ON public.evidence USING btree (segment_id, ended_at);

CREATE INDEX extent_space ON public.extent USING btree (device_no, dpa_space);

CREATE INDEX frame_operation ON public.frame USING btree (operation_id, id);

CREATE UNIQUE INDEX host_node ON public.host USING btree (cluster, node);

CREATE INDEX host_port_host ON public.host_port USING btree (host_id);

CREATE INDEX operation_allocation ON public.operation USING btree (allocation_id, id);

CREATE INDEX operation_due ON public.operation USING btree (fabric_id, next_attempt_at) WHERE (state = ANY (ARRAY['pending'::text, 'running'::text]));

CREATE INDEX operation_fabric ON public.operation USING btree (fabric_id, id);

CREATE INDEX operation_goal ON public.operation USING btree (goal, id);

CREATE INDEX operation_state ON public.operation USING btree (state, id);

CREATE INDEX operation_step_segment ON public.operation_step USING btree (segment_id, step);

CREATE UNIQUE INDEX operation_unfinished_once ON public.operation USING btree (allocation_id) WHERE (state = ANY (ARRAY['pending'::text, 'running'::text]));

CREATE INDEX segment_allocation ON public.segment USING btree (allocation_id);

CREATE INDEX segment_device ON public.segment USING btree (device_no, allocation_id) WHERE (NOT forgotten);

CREATE UNIQUE INDEX segment_ld_once ON public.segment USING btree (device_no, ld_id) WHERE ((ld_id IS NOT NULL) AND (phase <> ALL (ARRAY['failed'::text, 'released'::text])));

CREATE INDEX segment_live ON public.segment USING btree (id) WHERE (phase <> ALL (ARRAY['failed'::text, 'released'::text]));

CREATE INDEX segment_live_attachment ON public.segment USING btree (attachment_id) WHERE (phase <> ALL (ARRAY['failed'::text, 'released'::text]));

CREATE INDEX segment_live_device ON public.segment USING btree (device_no) WHERE (phase <> ALL (ARRAY['failed'::text, 'released'::text]));

CREATE INDEX segment_live_phase ON public.segment USING btree (phase, device_no) INCLUDE (size_bytes) WHERE (phase <> ALL (ARRAY['failed'::text, 'released'::text]));

CREATE INDEX switch_fabric ON public.switch USING btree (fabric_id);

ALTER INDEX public.event_claim_uid ATTACH PARTITION public.event_0_claim_uid_seq_idx;

ALTER INDEX public.event_device ATTACH PARTITION public.event_0_device_seq_idx;

ALTER INDEX public.event_host ATTACH PARTITION public.event_0_host_seq_idx;

ALTER INDEX public.event_key ATTACH PARTITION public.event_0_key_seq_idx;

ALTER INDEX public.event_kind ATTACH PARTITION public.event_0_object_kind_seq_idx;

ALTER INDEX public.event_pkey ATTACH PARTITION public.event_0_pkey;

CREATE TRIGGER allocation_counts_for_tenant AFTER INSERT OR UPDATE OF phase, granted_bytes, tenant_id ON public.allocation FOR EACH ROW EXECUTE FUNCTION public.allocation_counts_for_tenant();

CREATE TRIGGER allocation_forgets_segments AFTER UPDATE OF forgotten ON public.allocation FOR EACH ROW WHEN ((new.forgotten AND (NOT old.forgotten))) EXECUTE FUNCTION public.forget_segments();

CREATE TRIGGER allocation_marked AFTER UPDATE ON public.allocation FOR EACH ROW WHEN ((((old.phase = new.phase) AND (old.generation <> new.generation)) OR (old.forgotten <> new.forgotten))) EXECUTE FUNCTION public.mark_change('allocation');

CREATE TRIGGER allocation_state_changed BEFORE UPDATE OF phase ON public.allocation FOR EACH ROW WHEN ((old.phase <> new.phase)) EXECUTE FUNCTION public.note_state_change();

CREATE TRIGGER attachment_marked AFTER UPDATE ON public.attachment FOR EACH ROW WHEN ((old.* IS DISTINCT FROM new.*)) EXECUTE FUNCTION public.mark_change('allocation');

CREATE TRIGGER device_marked AFTER UPDATE ON public.device FOR EACH ROW WHEN (((((((((((old.name IS DISTINCT FROM new.name) OR (old.serial IS DISTINCT FROM new.serial)) OR (old.fabric_id IS DISTINCT FROM new.fabric_id)) OR (old.pool_id IS DISTINCT FROM new.pool_id)) OR (old.health IS DISTINCT FROM new.health)) OR (old.admin_state IS DISTINCT FROM new.admin_state)) OR (old.capacity_bytes IS DISTINCT FROM new.capacity_bytes)) OR (old.labels IS DISTINCT FROM new.labels)) OR (old.reserved_for IS DISTINCT FROM new.reserved_for)) OR (old.firmware IS DISTINCT FROM new.firmware))) EXECUTE FUNCTION public.mark_change('device');

CREATE TRIGGER device_state_changed BEFORE UPDATE OF health ON public.device FOR EACH ROW WHEN ((old.health <> new.health)) EXECUTE FUNCTION public.note_state_change();

CREATE TRIGGER event_is_append_only BEFORE DELETE OR UPDATE ON public.event FOR EACH ROW EXECUTE FUNCTION public.history_is_append_only();

CREATE TRIGGER event_is_not_truncated BEFORE TRUNCATE ON public.event FOR EACH STATEMENT EXECUTE FUNCTION public.history_is_append_only();

CREATE TRIGGER evidence_is_append_only BEFORE DELETE OR UPDATE ON public.evidence FOR EACH ROW EXECUTE FUNCTION public.history_is_append_only();

CREATE TRIGGER evidence_is_not_truncated BEFORE TRUNCATE ON public.evidence FOR EACH STATEMENT EXECUTE FUNCTION public.history_is_append_only();

CREATE TRIGGER fabric_marked AFTER UPDATE ON public.fabric FOR EACH ROW WHEN (((((old.generation IS DISTINCT FROM new.generation) OR (old.state IS DISTINCT FROM new.state)) OR (old.state_reason IS DISTINCT FROM new.state_reason)) OR (old.owner IS DISTINCT FROM new.owner))) EXECUTE FUNCTION public.mark_change('fabric');

CREATE TRIGGER fabric_state_changed BEFORE UPDATE OF state ON public.fabric FOR EACH ROW WHEN ((old.state <> new.state)) EXECUTE FUNCTION public.note_state_change();

CREATE TRIGGER host_marked AFTER UPDATE ON public.host FOR EACH ROW WHEN (((old.generation <> new.generation) OR (old.fenced_at IS DISTINCT FROM new.fenced_at))) EXECUTE FUNCTION public.mark_change('host');

CREATE TRIGGER host_port_marked AFTER INSERT OR DELETE ON public.host_port FOR EACH ROW EXECUTE FUNCTION public.mark_change('host');

CREATE TRIGGER logical_device_change_marked AFTER UPDATE ON public.logical_device FOR EACH ROW WHEN ((old.* IS DISTINCT FROM new.*)) EXECUTE FUNCTION public.mark_change('device');

CREATE TRIGGER logical_device_marked AFTER INSERT OR DELETE ON public.logical_device FOR EACH ROW EXECUTE FUNCTION public.mark_change('device');

CREATE TRIGGER operation_marked AFTER UPDATE ON public.operation FOR EACH ROW WHEN (((((old.generation IS DISTINCT FROM new.generation) OR (old.attempts IS DISTINCT FROM new.attempts)) OR (old.percent IS DISTINCT FROM new.percent)) OR (old.eta_ms IS DISTINCT FROM new.eta_ms))) EXECUTE FUNCTION public.mark_change('operation');

CREATE TRIGGER pool_marked AFTER UPDATE ON public.pool FOR EACH ROW WHEN ((old.generation <> new.generation)) EXECUTE FUNCTION public.mark_change('pool');

CREATE TRIGGER port_change_marked AFTER UPDATE ON public.port FOR EACH ROW WHEN ((old.* IS DISTINCT FROM new.*)) EXECUTE FUNCTION public.mark_change('switch');

CREATE TRIGGER port_marked AFTER INSERT OR DELETE ON public.port FOR EACH ROW EXECUTE FUNCTION public.mark_change('switch');

CREATE TRIGGER segment_follows_lifecycle BEFORE UPDATE OF phase ON public.segment FOR EACH ROW WHEN ((old.phase IS DISTINCT FROM new.phase)) EXECUTE FUNCTION public.segment_follows_lifecycle();

CREATE TRIGGER segment_marked AFTER UPDATE ON public.segment FOR EACH ROW WHEN (((old.phase = new.phase) AND (((((old.node_state IS DISTINCT FROM new.node_state) OR (old.numa_node IS DISTINCT FROM new.numa_node)) OR (old.dax_device IS DISTINCT FROM new.dax_device)) OR (old.goal IS DISTINCT FROM new.goal)) OR (old.attachment_id IS DISTINCT FROM new.attachment_id)))) EXECUTE FUNCTION public.mark_change('allocation');

CREATE TRIGGER segment_moves_bytes AFTER INSERT OR UPDATE OF phase ON public.segment FOR EACH ROW EXECUTE FUNCTION public.segment_moves_bytes();

CREATE TRIGGER switch_marked AFTER UPDATE ON public.switch FOR EACH ROW WHEN ((((old.generation IS DISTINCT FROM new.generation) OR (old.hdm_decoders IS DISTINCT FROM new.hdm_decoders)) OR (old.fabric_id IS DISTINCT FROM new.fabric_id))) EXECUTE FUNCTION public.mark_change('switch');

CREATE TRIGGER vcs_change_marked AFTER UPDATE ON public.vcs FOR EACH ROW WHEN ((old.* IS DISTINCT FROM new.*)) EXECUTE FUNCTION public.mark_change('switch');

CREATE TRIGGER vcs_marked AFTER INSERT OR DELETE ON public.vcs FOR EACH ROW EXECUTE FUNCTION public.mark_change('switch');

CREATE TRIGGER vppb_change_marked AFTER UPDATE ON public.vppb FOR EACH ROW WHEN ((old.* IS DISTINCT FROM new.*)) EXECUTE FUNCTION public.mark_change('switch');

CREATE TRIGGER vppb_marked AFTER INSERT OR DELETE ON public.vppb FOR EACH ROW EXECUTE FUNCTION public.mark_change('switch');

ALTER TABLE ONLY public.allocation
    ADD CONSTRAINT allocation_host_id_fkey FOREIGN KEY (host_id) REFERENCES public.host(id);

ALTER TABLE ONLY public.allocation
    ADD CONSTRAINT allocation_isolation_fkey FOREIGN KEY (isolation) REFERENCES public.isolation_policy(name);

ALTER TABLE ONLY public.allocation
    ADD CONSTRAINT allocation_key_fkey FOREIGN KEY (key) REFERENCES public.allocation_key(key);

ALTER TABLE ONLY public.allocation
    ADD CONSTRAINT allocation_pool_id_fkey FOREIGN KEY (pool_id) REFERENCES public.pool(id);

ALTER TABLE ONLY public.allocation
    ADD CONSTRAINT allocation_qos_class_fkey FOREIGN KEY (qos_class) REFERENCES public.qos_class(name);

ALTER TABLE ONLY public.allocation
    ADD CONSTRAINT allocation_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenant(id);

ALTER TABLE ONLY public.attachment
    ADD CONSTRAINT attachment_device_no_fkey FOREIGN KEY (device_no) REFERENCES public.device(number);

ALTER TABLE ONLY public.attachment
    ADD CONSTRAINT attachment_host_id_fkey FOREIGN KEY (host_id) REFERENCES public.host(id);

ALTER TABLE ONLY public.attachment
    ADD CONSTRAINT attachment_on_vppb FOREIGN KEY (switch_id, vcs_number, vppb_number) REFERENCES public.vppb(switch_id, vcs_number, number);

ALTER TABLE ONLY public.attachment
    ADD CONSTRAINT attachment_switch_id_fkey FOREIGN KEY (switch_id) REFERENCES public.switch(id);

ALTER TABLE ONLY public.device
    ADD CONSTRAINT device_exclusive_tenant_id_fkey FOREIGN KEY (exclusive_tenant_id) REFERENCES public.tenant(id);

ALTER TABLE ONLY public.device
    ADD CONSTRAINT device_fabric_id_fkey FOREIGN KEY (fabric_id) REFERENCES public.fabric(id);

ALTER TABLE ONLY public.device
    ADD CONSTRAINT device_pool_of_its_kind FOREIGN KEY (pool_id, kind) REFERENCES public.pool(id, kind);

ALTER TABLE ONLY public.device
    ADD CONSTRAINT device_switch_id_fkey FOREIGN KEY (switch_id) REFERENCES public.switch(id);

ALTER TABLE ONLY public.evidence
    ADD CONSTRAINT evidence_device_no_fkey FOREIGN KEY (device_no) REFERENCES public.device(number);

ALTER TABLE ONLY public.evidence
    ADD CONSTRAINT evidence_operation_id_fkey FOREIGN KEY (operation_id) REFERENCES public.operation(id);

ALTER TABLE ONLY public.evidence
    ADD CONSTRAINT evidence_segment_id_fkey FOREIGN KEY (segment_id) REFERENCES public.segment(id);

ALTER TABLE ONLY public.extent
    ADD CONSTRAINT extent_tag_has_one_host FOREIGN KEY (segment_id, device_no, dpa_space) REFERENCES public.segment(id, device_no, dpa_space);

ALTER TABLE ONLY public.frame
    ADD CONSTRAINT frame_operation_id_fkey FOREIGN KEY (operation_id) REFERENCES public.operation(id);

ALTER TABLE ONLY public.host_port
    ADD CONSTRAINT host_port_host_id_fkey FOREIGN KEY (host_id) REFERENCES public.host(id);

ALTER TABLE ONLY public.logical_device
    ADD CONSTRAINT logical_device_device_no_fkey FOREIGN KEY (device_no) REFERENCES public.device(number);

ALTER TABLE ONLY public.operation
    ADD CONSTRAINT operation_allocation_id_fkey FOREIGN KEY (allocation_id) REFERENCES public.allocation(id);

ALTER TABLE ONLY public.operation
    ADD CONSTRAINT operation_fabric_id_fkey FOREIGN KEY (fabric_id) REFERENCES public.fabric(id);

ALTER TABLE ONLY public.operation_step
    ADD CONSTRAINT operation_step_operation_id_fkey FOREIGN KEY (operation_id) REFERENCES public.operation(id);

ALTER TABLE ONLY public.operation_step
    ADD CONSTRAINT operation_step_segment_id_fkey FOREIGN KEY (segment_id) REFERENCES public.segment(id);

ALTER TABLE ONLY public.port
    ADD CONSTRAINT port_switch_id_fkey FOREIGN KEY (switch_id) REFERENCES public.switch(id);

ALTER TABLE ONLY public.segment
    ADD CONSTRAINT segment_allocation_id_fkey FOREIGN KEY (allocation_id) REFERENCES public.allocation(id);

ALTER TABLE ONLY public.segment
    ADD CONSTRAINT segment_attachment_of_its_device FOREIGN KEY (attachment_id, device_no) REFERENCES public.attachment(id, device_no);

ALTER TABLE ONLY public.segment
    ADD CONSTRAINT segment_device_no_fkey FOREIGN KEY (device_no) REFERENCES public.device(number);

ALTER TABLE ONLY public.segment
    ADD CONSTRAINT segment_of_ld FOREIGN KEY (device_no, ld_id) REFERENCES public.logical_device(device_no, ld_id);

ALTER TABLE ONLY public.switch
    ADD CONSTRAINT switch_fabric_id_fkey FOREIGN KEY (fabric_id) REFERENCES public.fabric(id);

ALTER TABLE ONLY public.tenant_consumer
    ADD CONSTRAINT tenant_consumer_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenant(id);

ALTER TABLE ONLY public.vcs
    ADD CONSTRAINT vcs_switch_id_fkey FOREIGN KEY (switch_id) REFERENCES public.switch(id);

ALTER TABLE ONLY public.vppb
    ADD CONSTRAINT vppb_of_vcs FOREIGN KEY (switch_id, vcs_number) REFERENCES public.vcs(switch_id, number);
