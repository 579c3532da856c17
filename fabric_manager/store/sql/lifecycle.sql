-- The lifecycle guards itself: whoever writes a segment's phase, the table allows it, the bytes move with it,
-- and nothing leaves sanitizing without evidence.

CREATE OR REPLACE FUNCTION next_phase(from_phase text, on_event text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  result text;
BEGIN
  SELECT t.next_phase INTO result FROM lifecycle_transition t WHERE t.phase = from_phase AND t.event = on_event;
  IF result IS NULL THEN
    RAISE EXCEPTION 'a segment that is % cannot take %', from_phase, on_event USING ERRCODE = 'FM001';
  END IF;
  RETURN result;
END $$;

CREATE OR REPLACE FUNCTION bucket(phase text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN phase IN ('failed', 'released') THEN 'free'
              WHEN phase IN ('sanitizing', 'quarantined') THEN phase
              ELSE 'allocated' END
$$;

CREATE OR REPLACE FUNCTION segment_follows_lifecycle() RETURNS trigger
LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE FUNCTION segment_moves_bytes() RETURNS trigger
LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE FUNCTION allocation_counts_for_tenant() RETURNS trigger
LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE FUNCTION history_is_append_only() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE OR REPLACE TRIGGER segment_follows_lifecycle BEFORE UPDATE OF phase ON segment
  FOR EACH ROW WHEN (OLD.phase IS DISTINCT FROM NEW.phase) EXECUTE FUNCTION segment_follows_lifecycle();
CREATE OR REPLACE TRIGGER segment_moves_bytes AFTER INSERT OR UPDATE OF phase ON segment
  FOR EACH ROW EXECUTE FUNCTION segment_moves_bytes();
CREATE OR REPLACE TRIGGER allocation_counts_for_tenant
  AFTER INSERT OR UPDATE OF phase, granted_bytes, tenant_id ON allocation
  FOR EACH ROW EXECUTE FUNCTION allocation_counts_for_tenant();
CREATE OR REPLACE TRIGGER event_is_append_only BEFORE UPDATE OR DELETE ON event
  FOR EACH ROW EXECUTE FUNCTION history_is_append_only();
CREATE OR REPLACE TRIGGER evidence_is_append_only BEFORE UPDATE OR DELETE ON evidence
  FOR EACH ROW EXECUTE FUNCTION history_is_append_only();
CREATE OR REPLACE TRIGGER event_is_not_truncated BEFORE TRUNCATE ON event
  FOR EACH STATEMENT EXECUTE FUNCTION history_is_append_only();
CREATE OR REPLACE TRIGGER evidence_is_not_truncated BEFORE TRUNCATE ON evidence
  FOR EACH STATEMENT EXECUTE FUNCTION history_is_append_only();
