-- What the reconciler reads and writes about goals. Every write is guarded by the owner's epoch.

-- What was sent for a segment since its bytes were last proven clean: whatever a host may have seen of them.
CREATE OR REPLACE FUNCTION steps_since_clean(s segment) RETURNS SETOF operation_step
LANGUAGE sql STABLE AS $$
  SELECT p.* FROM operation_step p WHERE p.segment_id = s.id AND p.intended_at > coalesce(
    (SELECT max(e.ended_at) FROM evidence e WHERE e.segment_id = s.id), '-infinity')
$$;

CREATE OR REPLACE FUNCTION segment_work(s segment) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
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

CREATE OR REPLACE FUNCTION operation_work(o operation) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
      'id', o.id, 'goal', o.goal, 'attempts', o.attempts, 'allocation_id', o.allocation_id, 'request_id', o.request_id,
      'actor', o.actor, 'key', (SELECT key FROM allocation WHERE id = o.allocation_id), 'late', coalesce(o.deadline_at <= now(), false),
      'segments', (SELECT coalesce(jsonb_agg(segment_work(s) ORDER BY s.id), '[]') FROM segment s
                   WHERE s.allocation_id = o.allocation_id))
  );
END $$;

-- arg: fabric_id, busy (operation ids at work already), work_max. Releases first, then binds, sanitizing last.
CREATE OR REPLACE FUNCTION due_work(arg jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT coalesce(jsonb_agg(operation_work(due.whole) ORDER BY due.rank, due.id), '[]') FROM (
    SELECT o, o.id, CASE WHEN a.phase IN ('releasing', 'release_blocked') THEN 0 WHEN a.phase = 'sanitizing' THEN 2 ELSE 1 END AS rank
    FROM operation o JOIN allocation a ON a.id = o.allocation_id
    WHERE o.fabric_id = (arg->>'fabric_id')::uuid AND o.state IN ('pending', 'running') AND o.next_attempt_at <= now()
      AND o.id <> ALL (ARRAY(SELECT b::uuid FROM jsonb_array_elements_text(arg->'busy') b))
    ORDER BY 3, o.id LIMIT (arg->>'work_max')::integer
  ) due(whole, id, rank)
$$;

-- arg: operation_id. The operation as it is now, or null when it is finished.
CREATE OR REPLACE FUNCTION reload_work(arg jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT operation_work(o) FROM operation o
  WHERE o.id = (arg->>'operation_id')::uuid AND o.state IN ('pending', 'running')
$$;

-- The intent, before anything is sent. arg: operation_id, segment_id, step, component, intent, fabric_id, epoch.
CREATE OR REPLACE FUNCTION begin_step(arg jsonb) RETURNS integer
LANGUAGE plpgsql AS $$
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

-- The observation, before the phase moves. arg: operation_id, number, outcome, observed, frames, fabric_id, epoch,
-- attempt (0 or 1); optional evidence {id, method, read_back}: how the segment's bytes were erased in this step.
CREATE OR REPLACE FUNCTION end_step(arg jsonb) RETURNS boolean
LANGUAGE plpgsql AS $$
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

-- arg: operation_id, after_s, reason, fabric_id, epoch, attempt; optional percent, eta_ms.
CREATE OR REPLACE FUNCTION postpone_operation(arg jsonb) RETURNS boolean
LANGUAGE plpgsql AS $$
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
