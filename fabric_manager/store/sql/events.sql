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
  partition_rows CONSTANT bigint := 1000000;
  partition bigint;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtext('event sequencer')) THEN
    RETURN NULL;
  END IF;
  SELECT seq INTO head FROM event_head;
  FOR partition IN SELECT DISTINCT s / partition_rows FROM unnest(ARRAY[head + 1, head + batch_max]) s LOOP
    IF to_regclass(format('event_%s', partition)) IS NULL THEN
      EXECUTE format('CREATE TABLE event_%s PARTITION OF event FOR VALUES FROM (%s) TO (%s)',
                     partition, partition * partition_rows, (partition + 1) * partition_rows);
    END IF;
  END LOOP;
  WITH taken AS (
    DELETE FROM event_outbox WHERE id IN (SELECT id FROM event_outbox ORDER BY id LIMIT batch_max) RETURNING *
  ), numbered AS (
    INSERT INTO event (seq, at, type, object_kind, object_id, key, claim_uid, cluster, tenant, host, device, pool,
                       before, after, actor, request_id, cause)
    SELECT head + row_number() OVER (ORDER BY id), at, type, object_kind, object_id, key, claim_uid, cluster, tenant,
           host, device, pool, before, after, actor, request_id, cause
    FROM taken RETURNING 1
  )
  SELECT count(*) INTO moved FROM numbered;
  IF moved > 0 THEN
    UPDATE event_head SET seq = head + moved;
    PERFORM pg_notify('fabric_events', (head + moved)::text);
  END IF;
  RETURN head + moved;
END $$;
