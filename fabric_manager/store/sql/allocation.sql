-- What every verb on an allocation shares: its document, its phase, its operation.

CREATE OR REPLACE FUNCTION segment_document(s segment) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
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

CREATE OR REPLACE FUNCTION allocation_document(a allocation) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
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

CREATE OR REPLACE FUNCTION set_condition(conditions jsonb, type text, status boolean, reason text, message text)
RETURNS jsonb LANGUAGE plpgsql AS $$
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

-- How each phase reads as the two conditions that consumers wait for.
CREATE OR REPLACE FUNCTION conditions_of(phase text, conditions jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE FUNCTION allocation_dims(a allocation) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
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

-- Brings the allocation in line with its segments, in the transaction that moved them; one event per new phase.
CREATE OR REPLACE FUNCTION refresh_allocation(wanted uuid, ctx jsonb, facts jsonb DEFAULT '{}') RETURNS allocation
LANGUAGE plpgsql AS $$
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

-- Makes `goal` the one thing the reconciler works towards for this allocation.
CREATE OR REPLACE FUNCTION open_operation(
  a allocation, new_id uuid, new_goal text, ctx jsonb, deadline timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE operation SET state = 'superseded', finished_at = now(), reason = 'replaced by goal ' || new_goal,
                       generation = generation + 1
  WHERE allocation_id = a.id AND state IN ('pending', 'running');
  INSERT INTO operation (id, goal, allocation_id, fabric_id, deadline_at, actor, request_id)
  SELECT new_id, new_goal, a.id, d.fabric_id, deadline, ctx->>'actor', ctx->>'request_id'
  FROM segment s JOIN device d ON d.number = s.device_no WHERE s.allocation_id = a.id ORDER BY s.id LIMIT 1;
END $$;

CREATE OR REPLACE FUNCTION finish_operation(wanted uuid, ends text, why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE operation SET state = ends, reason = why, finished_at = now(), percent = NULL, eta_ms = NULL,
                       generation = generation + 1
  WHERE allocation_id = wanted AND state IN ('pending', 'running');
END $$;

-- The state a finished operation ends in, given what the allocation reached; NULL while it must go on.
CREATE OR REPLACE FUNCTION operation_end(goal text, phase text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN phase = 'quarantined' THEN 'quarantined'
    WHEN goal = 'bind' AND phase IN ('bound', 'online') THEN 'done'
    WHEN goal = 'bind' AND phase IN ('failed', 'lost') THEN 'failed'
    WHEN goal = 'undo' AND phase = 'failed' THEN 'done'
    WHEN goal = 'unbind' AND phase = 'reserved' THEN 'done'
    WHEN phase = 'released' THEN 'done' END
$$;
