-- Events are written by the transaction they tell of and numbered afterwards, in order, by whoever holds the lock.

CREATE OR REPLACE FUNCTION record_event(
  type text, object_kind text, object_id text, ctx jsonb,
  before jsonb DEFAULT NULL, after jsonb DEFAULT NULL, dims jsonb DEFAULT '{}'
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO event_outbox (at, type, object_kind, object_id, key, claim_uid, cluster, tenant, host, device, pool,
                            before, after, actor, request_id, cause)
  VALUES (clock_timestamp(), type, object_kind, object_id, dims->>'key', dims->>'claim_uid', dims->>'cluster',
          dims->>'tenant', dims->>'host', dims->>'device', dims->>'pool',
          before, after, ctx->>'actor', ctx->>'request_id', ctx->>'cause');
END $$;

-- arg: batch_max. Moves committed rows to `event`; answers the head, or NULL when another process is at it.
CREATE OR REPLACE FUNCTION sequence_events(arg jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
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

-- arg: keep, grace_s. One step towards keeping the last `keep` events and the rest of their oldest partition: first
-- the number is moved below which nobody may ask, and once every snapshot that knew the old one is over (`grace_s`),
-- one partition is dropped. Answers what was done, or NULL. A partition in use raises lock_not_available.
CREATE OR REPLACE FUNCTION expire_events(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
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
END $$;
