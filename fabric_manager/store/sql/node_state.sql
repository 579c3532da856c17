-- What a node says of the memory it was given. Online is said before the memory is brought up, offline after.

-- A host that started anew has nothing online any more. Its other allocations are locked in key order, before the host.
CREATE OR REPLACE FUNCTION register_boot(arg jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
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

-- arg: key, boot_id, epoch (optional), reports [{id, phase, numa_node, dax_device}], ctx.
-- Answers outcome accepted, absent, released, refused, or boot_unknown: call register_boot and come again.
CREATE OR REPLACE FUNCTION report_node_state(arg jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
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
