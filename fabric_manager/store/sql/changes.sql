-- What lists and dashboards read instead of rows: which kinds changed, how often something happened, since when.
-- Whatever a list shows changes with an event of its kinds, or with a change mark. Marks are rows of their own and not
-- a counter, so that nobody who changes something waits for another.

-- The trigger's argument is the kind of object that changed.
CREATE OR REPLACE FUNCTION mark_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO change_mark (kind) VALUES (TG_ARGV[0]);
  RETURN NULL;
END $$;

-- The sequencer's part: up to `batch_max` marks that were committed are counted and gone.
CREATE OR REPLACE FUNCTION count_change_marks(batch_max integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  WITH taken AS (
    DELETE FROM change_mark WHERE id IN (SELECT id FROM change_mark ORDER BY id LIMIT batch_max) RETURNING kind
  )
  INSERT INTO event_kind_head (kind, changes) SELECT kind, count(*) FROM taken GROUP BY kind
  ON CONFLICT (kind) DO UPDATE SET changes = event_kind_head.changes + excluded.changes;
END $$;

CREATE OR REPLACE FUNCTION count_one(what text, which text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  shards CONSTANT integer := 8;
BEGIN
  INSERT INTO tally (name, label, shard, value) VALUES (what, which, pg_backend_pid() % shards, 1)
  ON CONFLICT (name, label, shard) DO UPDATE SET value = tally.value + 1;
END $$;

CREATE OR REPLACE FUNCTION note_state_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  NEW.state_changed_at := now();
  RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION forget_segments() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE segment SET forgotten = true WHERE allocation_id = NEW.id;
  RETURN NULL;
END $$;

-- Lists pass over what nobody remembers; without this they would read their way through all that ever was.
-- arg: batch_max. Answers how many keys are as if they had never been.
CREATE OR REPLACE FUNCTION forget_allocations(arg jsonb) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  over text[];
BEGIN
  over := ARRAY(SELECT key FROM allocation_key WHERE expires_at < now() ORDER BY expires_at
                LIMIT (arg->>'batch_max')::integer FOR UPDATE SKIP LOCKED);
  UPDATE allocation SET forgotten = true WHERE key = ANY (over) AND NOT forgotten AND phase = 'released';
  UPDATE allocation_key SET expires_at = NULL, tombstone_scopes = '{}' WHERE key = ANY (over);
  RETURN cardinality(over);
END $$;

CREATE OR REPLACE TRIGGER fabric_state_changed BEFORE UPDATE OF state ON fabric
  FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION note_state_change();
CREATE OR REPLACE TRIGGER device_state_changed BEFORE UPDATE OF health ON device
  FOR EACH ROW WHEN (OLD.health <> NEW.health) EXECUTE FUNCTION note_state_change();
CREATE OR REPLACE TRIGGER allocation_state_changed BEFORE UPDATE OF phase ON allocation
  FOR EACH ROW WHEN (OLD.phase <> NEW.phase) EXECUTE FUNCTION note_state_change();
CREATE OR REPLACE TRIGGER allocation_forgets_segments AFTER UPDATE OF forgotten ON allocation
  FOR EACH ROW WHEN (NEW.forgotten AND NOT OLD.forgotten) EXECUTE FUNCTION forget_segments();

-- An allocation's new phase is an event; so is a device's new counter, since bytes move with phases only.
CREATE OR REPLACE TRIGGER allocation_marked AFTER UPDATE ON allocation FOR EACH ROW
  WHEN (OLD.phase = NEW.phase AND OLD.generation <> NEW.generation OR OLD.forgotten <> NEW.forgotten)
  EXECUTE FUNCTION mark_change('allocation');
CREATE OR REPLACE TRIGGER segment_marked AFTER UPDATE ON segment FOR EACH ROW
  WHEN (OLD.phase = NEW.phase AND (OLD.node_state, OLD.numa_node, OLD.dax_device, OLD.goal, OLD.attachment_id)
        IS DISTINCT FROM (NEW.node_state, NEW.numa_node, NEW.dax_device, NEW.goal, NEW.attachment_id))
  EXECUTE FUNCTION mark_change('allocation');
CREATE OR REPLACE TRIGGER attachment_marked AFTER UPDATE ON attachment FOR EACH ROW
  WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION mark_change('allocation');
CREATE OR REPLACE TRIGGER operation_marked AFTER UPDATE ON operation FOR EACH ROW
  WHEN ((OLD.generation, OLD.attempts, OLD.percent, OLD.eta_ms) IS DISTINCT FROM
        (NEW.generation, NEW.attempts, NEW.percent, NEW.eta_ms)) EXECUTE FUNCTION mark_change('operation');
CREATE OR REPLACE TRIGGER device_marked AFTER UPDATE ON device FOR EACH ROW
  WHEN ((OLD.name, OLD.serial, OLD.fabric_id, OLD.pool_id, OLD.health, OLD.admin_state, OLD.capacity_bytes, OLD.labels,
         OLD.reserved_for, OLD.firmware) IS DISTINCT FROM
        (NEW.name, NEW.serial, NEW.fabric_id, NEW.pool_id, NEW.health, NEW.admin_state, NEW.capacity_bytes, NEW.labels,
         NEW.reserved_for, NEW.firmware)) EXECUTE FUNCTION mark_change('device');
CREATE OR REPLACE TRIGGER logical_device_marked AFTER INSERT OR DELETE ON logical_device
  FOR EACH ROW EXECUTE FUNCTION mark_change('device');
CREATE OR REPLACE TRIGGER logical_device_change_marked AFTER UPDATE ON logical_device FOR EACH ROW
  WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION mark_change('device');
CREATE OR REPLACE TRIGGER fabric_marked AFTER UPDATE ON fabric FOR EACH ROW
  WHEN ((OLD.generation, OLD.state, OLD.state_reason, OLD.owner) IS DISTINCT FROM
        (NEW.generation, NEW.state, NEW.state_reason, NEW.owner)) EXECUTE FUNCTION mark_change('fabric');
CREATE OR REPLACE TRIGGER pool_marked AFTER UPDATE ON pool FOR EACH ROW
  WHEN (OLD.generation <> NEW.generation) EXECUTE FUNCTION mark_change('pool');
CREATE OR REPLACE TRIGGER host_marked AFTER UPDATE ON host FOR EACH ROW
  WHEN (OLD.generation <> NEW.generation OR OLD.fenced_at IS DISTINCT FROM NEW.fenced_at)
  EXECUTE FUNCTION mark_change('host');
CREATE OR REPLACE TRIGGER host_port_marked AFTER INSERT OR DELETE ON host_port
  FOR EACH ROW EXECUTE FUNCTION mark_change('host');
CREATE OR REPLACE TRIGGER switch_marked AFTER UPDATE ON switch FOR EACH ROW
  WHEN ((OLD.generation, OLD.hdm_decoders, OLD.fabric_id) IS DISTINCT FROM
        (NEW.generation, NEW.hdm_decoders, NEW.fabric_id)) EXECUTE FUNCTION mark_change('switch');
CREATE OR REPLACE TRIGGER port_marked AFTER INSERT OR DELETE ON port
  FOR EACH ROW EXECUTE FUNCTION mark_change('switch');
CREATE OR REPLACE TRIGGER port_change_marked AFTER UPDATE ON port FOR EACH ROW
  WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION mark_change('switch');
CREATE OR REPLACE TRIGGER vcs_marked AFTER INSERT OR DELETE ON vcs
  FOR EACH ROW EXECUTE FUNCTION mark_change('switch');
CREATE OR REPLACE TRIGGER vcs_change_marked AFTER UPDATE ON vcs FOR EACH ROW
  WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION mark_change('switch');
CREATE OR REPLACE TRIGGER vppb_marked AFTER INSERT OR DELETE ON vppb
  FOR EACH ROW EXECUTE FUNCTION mark_change('switch');
CREATE OR REPLACE TRIGGER vppb_change_marked AFTER UPDATE ON vppb FOR EACH ROW
  WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION mark_change('switch');
