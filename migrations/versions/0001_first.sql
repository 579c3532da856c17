-- The schema of the first release. Written once from store/tables.py; later changes are later migrations.

CREATE TABLE allocation_key (
  key TEXT NOT NULL,
  tombstone_scopes TEXT[] DEFAULT '{}' NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (key),
  CONSTRAINT allocation_key_shape CHECK (key ~ '^[A-Za-z0-9._~:-]{1,200}$')
);
CREATE INDEX allocation_key_expiry ON allocation_key (expires_at) WHERE expires_at IS NOT NULL;
COMMENT ON TABLE allocation_key IS 'Locked first by every verb on the key, so that all of them stand in line.';
COMMENT ON COLUMN allocation_key.tombstone_scopes IS 'tenants or clusters whose DELETE came before any PUT';

CREATE TABLE api_token (
  id UUID NOT NULL,
  name TEXT NOT NULL,
  hash BYTEA NOT NULL,
  role TEXT NOT NULL,
  tenant TEXT,
  cluster TEXT,
  host TEXT,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  revoked_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (id),
  CONSTRAINT api_token_role_known CHECK (role IN ('node', 'controller', 'tenant', 'viewer', 'operator', 'admin', 'breakglass')),
  CONSTRAINT api_token_hash_is_sha256 CHECK (octet_length(hash) = 32),
  UNIQUE (hash)
);
COMMENT ON COLUMN api_token.hash IS 'SHA-256; the secret is never stored';

CREATE TABLE change_mark (
  id BIGINT GENERATED ALWAYS AS IDENTITY,
  kind TEXT NOT NULL,
  PRIMARY KEY (id)
);
COMMENT ON TABLE change_mark IS 'A change that no event tells of, not yet counted in event_kind_head.';

CREATE TABLE event (
  seq BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  type TEXT NOT NULL,
  object_kind TEXT NOT NULL,
  object_id TEXT NOT NULL,
  key TEXT,
  claim_uid TEXT,
  cluster TEXT,
  tenant TEXT,
  host TEXT,
  device TEXT,
  pool TEXT,
  before JSONB,
  after JSONB,
  actor TEXT NOT NULL,
  request_id TEXT,
  cause TEXT,
  PRIMARY KEY (seq)
)
 PARTITION BY RANGE (seq);
CREATE INDEX event_claim_uid ON event (claim_uid, seq) WHERE claim_uid IS NOT NULL;
CREATE INDEX event_device ON event (device, seq) WHERE device IS NOT NULL;
CREATE INDEX event_host ON event (host, seq) WHERE host IS NOT NULL;
CREATE INDEX event_key ON event (key, seq);
CREATE INDEX event_kind ON event (object_kind, seq);

CREATE TABLE event_head (
  singleton BOOLEAN DEFAULT 'true' NOT NULL,
  seq BIGINT NOT NULL,
  oldest_seq BIGINT DEFAULT '1' NOT NULL,
  oldest_moved_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  partition_rows BIGINT DEFAULT '1000000' NOT NULL,
  PRIMARY KEY (singleton),
  CONSTRAINT event_head_partition_rows_positive CHECK (partition_rows > 0),
  CONSTRAINT event_head_single CHECK (singleton)
);
COMMENT ON COLUMN event_head.oldest_seq IS 'The first number that may still be asked for; what is below is dropped later.';
COMMENT ON COLUMN event_head.partition_rows IS 'Numbers in one partition; it stays as it is once there are events.';

CREATE TABLE event_kind_head (
  kind TEXT NOT NULL,
  seq BIGINT DEFAULT '0' NOT NULL,
  changes BIGINT DEFAULT '0' NOT NULL,
  PRIMARY KEY (kind)
);
COMMENT ON TABLE event_kind_head IS 'What the ETag of a list is made of: moves with every change of a kind of object.';
COMMENT ON COLUMN event_kind_head.seq IS 'the kind''s last event';
COMMENT ON COLUMN event_kind_head.changes IS 'change marks counted so far';

CREATE TABLE event_outbox (
  id BIGINT GENERATED ALWAYS AS IDENTITY,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  type TEXT NOT NULL,
  object_kind TEXT NOT NULL,
  object_id TEXT NOT NULL,
  key TEXT,
  claim_uid TEXT,
  cluster TEXT,
  tenant TEXT,
  host TEXT,
  device TEXT,
  pool TEXT,
  before JSONB,
  after JSONB,
  actor TEXT NOT NULL,
  request_id TEXT,
  cause TEXT,
  PRIMARY KEY (id)
);
COMMENT ON TABLE event_outbox IS 'Events as written by their transactions, not yet numbered.';

CREATE TABLE fabric (
  id UUID NOT NULL,
  name TEXT NOT NULL,
  driver TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  credentials_ref TEXT,
  admin_state TEXT DEFAULT 'active' NOT NULL,
  state TEXT DEFAULT 'unreachable' NOT NULL,
  state_reason TEXT,
  owner TEXT,
  epoch BIGINT DEFAULT '0' NOT NULL,
  owned_until TIMESTAMP WITH TIME ZONE,
  scanned_at TIMESTAMP WITH TIME ZONE,
  state_changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  generation BIGINT DEFAULT '1' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT fabric_admin_state_known CHECK (admin_state IN ('active', 'paused', 'maintenance')),
  CONSTRAINT fabric_state_known CHECK (state IN ('up', 'degraded', 'unreachable')),
  CONSTRAINT fabric_epoch_not_negative CHECK (epoch >= 0),
  UNIQUE (name)
);
COMMENT ON COLUMN fabric.owner IS 'process that drives the hardware now';

CREATE TABLE host (
  id UUID NOT NULL,
  name TEXT NOT NULL,
  cluster TEXT,
  node TEXT,
  node_uid TEXT,
  vppbs_max SMALLINT,
  decoders_max SMALLINT,
  labels JSONB DEFAULT '{}' NOT NULL,
  boot_id TEXT,
  boot_ids_past TEXT[] DEFAULT '{}' NOT NULL,
  epoch BIGINT DEFAULT '0' NOT NULL,
  fenced_at TIMESTAMP WITH TIME ZONE,
  fence_reason TEXT,
  generation BIGINT DEFAULT '1' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  UNIQUE (name)
);
CREATE UNIQUE INDEX host_node ON host (cluster, node);

CREATE TABLE isolation_policy (
  id UUID NOT NULL,
  name TEXT NOT NULL,
  sharing TEXT NOT NULL,
  sanitize TEXT NOT NULL,
  generation BIGINT DEFAULT '1' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT isolation_policy_sharing_known CHECK (sharing IN ('shared-device', 'tenant-device', 'dedicated-device')),
  CONSTRAINT isolation_policy_sanitize_known CHECK (sanitize IN ('always', 'on-tenant-change', 'never')),
  UNIQUE (name)
);

CREATE TABLE lifecycle_transition (
  phase TEXT NOT NULL,
  event TEXT NOT NULL,
  next_phase TEXT NOT NULL,
  PRIMARY KEY (phase, event)
);
COMMENT ON TABLE lifecycle_transition IS 'A copy of domain/lifecycle.py; a test compares them.';

CREATE TABLE pool (
  id UUID NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  tier TEXT,
  labels JSONB DEFAULT '{}' NOT NULL,
  generation BIGINT DEFAULT '1' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT pool_kind_key UNIQUE (id, kind),
  CONSTRAINT pool_kind_known CHECK (kind IN ('sld', 'mld', 'dcd')),
  UNIQUE (name)
);

CREATE TABLE qos_class (
  id UUID NOT NULL,
  name TEXT NOT NULL,
  min_bandwidth BIGINT DEFAULT '0' NOT NULL,
  max_bandwidth BIGINT,
  max_latency_ns INTEGER,
  priority SMALLINT DEFAULT '0' NOT NULL,
  generation BIGINT DEFAULT '1' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT qos_class_limit_not_below_guarantee CHECK (max_bandwidth >= min_bandwidth),
  UNIQUE (name)
);

CREATE TABLE tally (
  name TEXT NOT NULL,
  label TEXT NOT NULL,
  shard SMALLINT NOT NULL,
  value BIGINT NOT NULL,
  PRIMARY KEY (name, label, shard)
);
COMMENT ON TABLE tally IS 'What is counted as it happens, because nobody may count it afterwards.';
COMMENT ON COLUMN tally.shard IS 'so that those who count at once do not wait';

CREATE TABLE tenant (
  id UUID NOT NULL,
  name TEXT NOT NULL,
  quota_bytes BIGINT,
  quota_allocations INTEGER,
  quota_bandwidth BIGINT,
  used_bytes BIGINT DEFAULT '0' NOT NULL,
  used_allocations INTEGER DEFAULT '0' NOT NULL,
  used_bandwidth BIGINT DEFAULT '0' NOT NULL,
  generation BIGINT DEFAULT '1' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT tenant_used_not_negative CHECK (used_bytes >= 0 AND used_allocations >= 0 AND used_bandwidth >= 0),
  CONSTRAINT tenant_quota_bytes CHECK (used_bytes <= quota_bytes),
  CONSTRAINT tenant_quota_allocations CHECK (used_allocations <= quota_allocations),
  CONSTRAINT tenant_quota_bandwidth CHECK (used_bandwidth <= quota_bandwidth),
  UNIQUE (name)
)
 WITH (fillfactor = 50);

CREATE TABLE allocation (
  id UUID NOT NULL,
  key TEXT NOT NULL,
  forgotten BOOLEAN DEFAULT 'false' NOT NULL,
  tenant_id UUID NOT NULL,
  consumer_kind TEXT,
  cluster TEXT,
  namespace TEXT,
  consumer_name TEXT,
  claim_uid TEXT,
  request JSONB NOT NULL,
  size_bytes BIGINT NOT NULL,
  granted_bytes BIGINT DEFAULT '0' NOT NULL,
  pool_id UUID,
  host_id UUID,
  qos_class TEXT NOT NULL,
  isolation TEXT NOT NULL,
  phase TEXT NOT NULL,
  goal TEXT DEFAULT 'hold' NOT NULL,
  failure JSONB,
  conditions JSONB DEFAULT '[]' NOT NULL,
  labels JSONB DEFAULT '{}' NOT NULL,
  deadline_at TIMESTAMP WITH TIME ZONE,
  reservation_ttl_s INTEGER,
  reservation_expires_at TIMESTAMP WITH TIME ZONE,
  finished_at TIMESTAMP WITH TIME ZONE,
  state_changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  generation BIGINT DEFAULT '1' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT allocation_phase_known CHECK (phase IN ('reserved', 'binding', 'bound', 'online', 'release_blocked', 'releasing', 'sanitizing', 'released', 'failed', 'lost', 'quarantined')),
  CONSTRAINT allocation_goal_known CHECK (goal IN ('hold', 'bind', 'unbind', 'release', 'undo')),
  CONSTRAINT allocation_size_bounded CHECK (size_bytes BETWEEN 1 AND 9007199254740991),
  FOREIGN KEY(key) REFERENCES allocation_key (key),
  FOREIGN KEY(tenant_id) REFERENCES tenant (id),
  FOREIGN KEY(pool_id) REFERENCES pool (id),
  FOREIGN KEY(host_id) REFERENCES host (id),
  FOREIGN KEY(qos_class) REFERENCES qos_class (name),
  FOREIGN KEY(isolation) REFERENCES isolation_policy (name)
);
CREATE INDEX allocation_claim_uid ON allocation (claim_uid, id) WHERE NOT forgotten AND claim_uid IS NOT NULL;
CREATE INDEX allocation_cluster ON allocation (cluster, id) WHERE NOT forgotten AND cluster IS NOT NULL;
CREATE INDEX allocation_consumer_kind ON allocation (consumer_kind, id) WHERE NOT forgotten AND consumer_kind IS NOT NULL;
CREATE INDEX allocation_host ON allocation (host_id, forgotten, id);
CREATE INDEX allocation_kept ON allocation (id) WHERE NOT forgotten;
CREATE UNIQUE INDEX allocation_key_once ON allocation (key) WHERE NOT forgotten;
CREATE INDEX allocation_live_host ON allocation (host_id, id) WHERE phase NOT IN ('failed', 'released');
CREATE INDEX allocation_phase ON allocation (phase, forgotten, id);
CREATE INDEX allocation_pool ON allocation (pool_id, forgotten, id);
CREATE INDEX allocation_reservation_expiry ON allocation (reservation_expires_at) WHERE phase = 'reserved' AND reservation_expires_at IS NOT NULL;
CREATE INDEX allocation_tenant ON allocation (tenant_id, forgotten, id);
COMMENT ON COLUMN allocation.forgotten IS 'its tombstone is gone';

CREATE TABLE host_port (
  switch_name TEXT NOT NULL,
  port_number SMALLINT NOT NULL,
  host_id UUID NOT NULL,
  PRIMARY KEY (switch_name, port_number),
  FOREIGN KEY(host_id) REFERENCES host (id)
);
CREATE INDEX host_port_host ON host_port (host_id);
COMMENT ON COLUMN host_port.switch_name IS 'a name: hosts may be declared before discovery';

CREATE TABLE switch (
  id UUID NOT NULL,
  name TEXT NOT NULL,
  fabric_id UUID,
  serial TEXT NOT NULL,
  hdm_decoders INTEGER NOT NULL,
  boot_count BIGINT,
  generation BIGINT DEFAULT '1' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  UNIQUE (name),
  FOREIGN KEY(fabric_id) REFERENCES fabric (id),
  UNIQUE (serial)
);
CREATE INDEX switch_fabric ON switch (fabric_id);
COMMENT ON COLUMN switch.fabric_id IS 'NULL: of a fabric that was deleted';

CREATE TABLE tenant_consumer (
  cluster TEXT NOT NULL,
  namespace TEXT NOT NULL,
  tenant_id UUID NOT NULL,
  PRIMARY KEY (cluster, namespace),
  FOREIGN KEY(tenant_id) REFERENCES tenant (id)
);

CREATE TABLE device (
  id UUID NOT NULL,
  number INTEGER GENERATED ALWAYS AS IDENTITY,
  name TEXT NOT NULL,
  fabric_id UUID,
  switch_id UUID,
  port_number SMALLINT,
  serial TEXT NOT NULL,
  kind TEXT NOT NULL,
  pool_id UUID,
  capacity_bytes BIGINT DEFAULT '0' NOT NULL,
  free_bytes BIGINT DEFAULT '0' NOT NULL,
  allocated_bytes BIGINT DEFAULT '0' NOT NULL,
  sanitizing_bytes BIGINT DEFAULT '0' NOT NULL,
  quarantined_bytes BIGINT DEFAULT '0' NOT NULL,
  withdrawn_bytes BIGINT DEFAULT '0' NOT NULL,
  granule_bytes BIGINT DEFAULT '1' NOT NULL,
  allocation_step_bytes BIGINT DEFAULT '1' NOT NULL,
  lds_max SMALLINT DEFAULT '0' NOT NULL,
  free_lds INTEGER DEFAULT '0' NOT NULL,
  share_n SMALLINT DEFAULT '0' NOT NULL,
  exclusive_tenant_id UUID,
  dc_regions JSONB DEFAULT '[]' NOT NULL,
  bandwidth_bytes_per_s BIGINT DEFAULT '0' NOT NULL,
  latency_ns INTEGER DEFAULT '0' NOT NULL,
  tier TEXT,
  media TEXT,
  failure_domain TEXT,
  labels JSONB DEFAULT '{}' NOT NULL,
  capabilities TEXT[] DEFAULT '{}' NOT NULL,
  reserved_for TEXT[] DEFAULT '{}' NOT NULL,
  health TEXT DEFAULT 'unknown' NOT NULL,
  firmware TEXT DEFAULT '' NOT NULL,
  admin_state TEXT DEFAULT 'enabled' NOT NULL,
  boot_count BIGINT,
  state_changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  generation BIGINT DEFAULT '1' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT device_pool_of_its_kind FOREIGN KEY(pool_id, kind) REFERENCES pool (id, kind),
  CONSTRAINT device_bytes_sum_to_capacity CHECK (capacity_bytes = free_bytes + allocated_bytes + sanitizing_bytes + quarantined_bytes + withdrawn_bytes),
  CONSTRAINT device_bytes_not_negative CHECK (least(free_bytes, allocated_bytes, sanitizing_bytes, quarantined_bytes, withdrawn_bytes) >= 0),
  CONSTRAINT device_share_bounded CHECK (share_n BETWEEN 0 AND 256),
  CONSTRAINT device_free_lds_bounded CHECK (free_lds BETWEEN 0 AND 65535),
  CONSTRAINT device_kind_known CHECK (kind IN ('sld', 'mld', 'dcd')),
  CONSTRAINT device_health_known CHECK (health IN ('ok', 'degraded', 'failed', 'unknown')),
  CONSTRAINT device_admin_state_known CHECK (admin_state IN ('enabled', 'cordoned', 'draining', 'maintenance', 'retired')),
  CONSTRAINT device_retired_holds_nothing CHECK (admin_state <> 'retired' OR (pool_id IS NULL AND capacity_bytes = 0)),
  CONSTRAINT device_has_fabric CHECK (fabric_id IS NOT NULL OR admin_state = 'retired'),
  UNIQUE (number),
  UNIQUE (name),
  FOREIGN KEY(fabric_id) REFERENCES fabric (id),
  FOREIGN KEY(switch_id) REFERENCES switch (id),
  UNIQUE (serial),
  FOREIGN KEY(exclusive_tenant_id) REFERENCES tenant (id)
)
 WITH (fillfactor = 70);
CREATE INDEX device_fabric ON device (fabric_id, name);
CREATE INDEX device_not_enabled ON device (name) WHERE admin_state <> 'enabled';
CREATE INDEX device_pool ON device (pool_id, name);
CREATE INDEX device_unwell ON device (name) WHERE health <> 'ok';
CREATE INDEX device_with_room ON device (pool_id, free_bytes, number) WHERE health = 'ok' AND admin_state = 'enabled' AND free_bytes > 0;
COMMENT ON COLUMN device.fabric_id IS 'NULL: retired, and its fabric deleted';
COMMENT ON COLUMN device.free_lds IS 'bit n: LD n is carved, clean, unheld';
COMMENT ON COLUMN device.share_n IS 'sum of live shares, n/256';

CREATE TABLE operation (
  id UUID NOT NULL,
  goal TEXT NOT NULL,
  state TEXT DEFAULT 'pending' NOT NULL,
  allocation_id UUID,
  fabric_id UUID,
  reason TEXT DEFAULT '' NOT NULL,
  attempts INTEGER DEFAULT '0' NOT NULL,
  deadline_at TIMESTAMP WITH TIME ZONE,
  next_attempt_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  percent SMALLINT,
  eta_ms BIGINT,
  actor TEXT NOT NULL,
  request_id TEXT,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  started_at TIMESTAMP WITH TIME ZONE,
  finished_at TIMESTAMP WITH TIME ZONE,
  generation BIGINT DEFAULT '1' NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT operation_goal_known CHECK (goal IN ('hold', 'bind', 'unbind', 'release', 'undo')),
  CONSTRAINT operation_state_known CHECK (state IN ('pending', 'running', 'done', 'failed', 'quarantined', 'superseded')),
  CONSTRAINT operation_finished_has_time CHECK ((state IN ('pending', 'running')) = (finished_at IS NULL)),
  CONSTRAINT operation_unfinished_has_fabric CHECK (fabric_id IS NOT NULL OR finished_at IS NOT NULL),
  FOREIGN KEY(allocation_id) REFERENCES allocation (id),
  FOREIGN KEY(fabric_id) REFERENCES fabric (id)
);
CREATE INDEX operation_allocation ON operation (allocation_id, id);
CREATE INDEX operation_due ON operation (fabric_id, next_attempt_at) WHERE state IN ('pending', 'running');
CREATE INDEX operation_fabric ON operation (fabric_id, id);
CREATE INDEX operation_goal ON operation (goal, id);
CREATE INDEX operation_state ON operation (state, id);
CREATE UNIQUE INDEX operation_unfinished_once ON operation (allocation_id) WHERE state IN ('pending', 'running');
COMMENT ON COLUMN operation.fabric_id IS 'NULL: over, and its fabric deleted';

CREATE TABLE port (
  id UUID NOT NULL,
  switch_id UUID NOT NULL,
  number SMALLINT NOT NULL,
  role TEXT NOT NULL,
  device_serial TEXT,
  link_width SMALLINT DEFAULT '0' NOT NULL,
  link_width_max SMALLINT DEFAULT '0' NOT NULL,
  link_speed_gt SMALLINT DEFAULT '0' NOT NULL,
  link_speed_gt_max SMALLINT DEFAULT '0' NOT NULL,
  generation BIGINT DEFAULT '1' NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT port_number_key UNIQUE (switch_id, number),
  CONSTRAINT port_role_known CHECK (role IN ('upstream', 'downstream', 'fabric', 'disabled')),
  CONSTRAINT port_number_bounded CHECK (number BETWEEN 0 AND 255),
  FOREIGN KEY(switch_id) REFERENCES switch (id)
);

CREATE TABLE vcs (
  id UUID NOT NULL,
  switch_id UUID NOT NULL,
  number SMALLINT NOT NULL,
  upstream_port SMALLINT NOT NULL,
  generation BIGINT DEFAULT '1' NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT vcs_number_key UNIQUE (switch_id, number),
  CONSTRAINT vcs_number_bounded CHECK (number BETWEEN 0 AND 255),
  FOREIGN KEY(switch_id) REFERENCES switch (id)
);

CREATE TABLE frame (
  id BIGINT GENERATED ALWAYS AS IDENTITY,
  operation_id UUID,
  endpoint TEXT NOT NULL,
  component TEXT NOT NULL,
  opcode INTEGER NOT NULL,
  command TEXT NOT NULL,
  request JSONB NOT NULL,
  response JSONB,
  request_raw BYTEA NOT NULL,
  response_raw BYTEA NOT NULL,
  return_code INTEGER,
  sent_at TIMESTAMP WITH TIME ZONE NOT NULL,
  answered_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (id),
  FOREIGN KEY(operation_id) REFERENCES operation (id)
);
CREATE INDEX frame_operation ON frame (operation_id, id);

CREATE TABLE logical_device (
  device_no INTEGER NOT NULL,
  ld_id SMALLINT NOT NULL,
  id UUID NOT NULL,
  size_bytes BIGINT NOT NULL,
  dirty BOOLEAN DEFAULT 'false' NOT NULL,
  share_n SMALLINT DEFAULT '0' NOT NULL,
  limit_n SMALLINT DEFAULT '0' NOT NULL,
  PRIMARY KEY (device_no, ld_id),
  CONSTRAINT logical_device_ld_id_bounded CHECK (ld_id BETWEEN 0 AND 15),
  CONSTRAINT logical_device_size_not_negative CHECK (size_bytes >= 0),
  FOREIGN KEY(device_no) REFERENCES device (number),
  UNIQUE (id)
);

CREATE TABLE vppb (
  switch_id UUID NOT NULL,
  vcs_number SMALLINT NOT NULL,
  number SMALLINT NOT NULL,
  state TEXT NOT NULL,
  port_number SMALLINT,
  ld_id SMALLINT,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (switch_id, vcs_number, number),
  CONSTRAINT vppb_of_vcs FOREIGN KEY(switch_id, vcs_number) REFERENCES vcs (switch_id, number),
  CONSTRAINT vppb_state_known CHECK (state IN ('free', 'busy', 'bound_port', 'bound_ld'))
);
COMMENT ON COLUMN vppb.state IS 'as last read from the switch';

CREATE TABLE attachment (
  id UUID NOT NULL,
  host_id UUID,
  device_no INTEGER NOT NULL,
  kind TEXT NOT NULL,
  switch_id UUID NOT NULL,
  vcs_number SMALLINT NOT NULL,
  vppb_number SMALLINT NOT NULL,
  port_number SMALLINT NOT NULL,
  ld_id SMALLINT NOT NULL,
  live BOOLEAN DEFAULT 'true' NOT NULL,
  state TEXT DEFAULT 'wanted' NOT NULL,
  share_n SMALLINT DEFAULT '0' NOT NULL,
  limit_n SMALLINT DEFAULT '255' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT attachment_device_key UNIQUE (id, device_no),
  CONSTRAINT attachment_on_vppb FOREIGN KEY(switch_id, vcs_number, vppb_number) REFERENCES vppb (switch_id, vcs_number, number),
  CONSTRAINT attachment_kind_known CHECK (kind IN ('sld', 'mld', 'dcd')),
  CONSTRAINT attachment_state_known CHECK (state IN ('wanted', 'bound', 'gone')),
  CONSTRAINT attachment_live_has_host CHECK (host_id IS NOT NULL OR NOT live),
  CONSTRAINT attachment_qos_bounded CHECK (share_n BETWEEN 0 AND 255 AND limit_n BETWEEN share_n AND 255),
  FOREIGN KEY(host_id) REFERENCES host (id),
  FOREIGN KEY(device_no) REFERENCES device (number),
  FOREIGN KEY(switch_id) REFERENCES switch (id)
);
CREATE UNIQUE INDEX attachment_dcd_host_once ON attachment (host_id, device_no) WHERE live AND kind = 'dcd';
CREATE UNIQUE INDEX attachment_ld_once ON attachment (device_no, ld_id) WHERE live;
CREATE INDEX attachment_live ON attachment (id) WHERE live;
CREATE INDEX attachment_live_host ON attachment (host_id) WHERE live;
CREATE UNIQUE INDEX attachment_vppb_once ON attachment (switch_id, vcs_number, vppb_number) WHERE live;
COMMENT ON COLUMN attachment.host_id IS 'NULL: over, and its host deleted';
COMMENT ON COLUMN attachment.ld_id IS 'LD of an MLD, host interface of a DCD, 0 of an SLD';

CREATE TABLE segment (
  id UUID NOT NULL,
  allocation_id UUID NOT NULL,
  device_no INTEGER NOT NULL,
  ld_id SMALLINT,
  dpa_space SMALLINT,
  size_bytes BIGINT NOT NULL,
  min_bandwidth BIGINT DEFAULT '0' NOT NULL,
  share_n SMALLINT DEFAULT '0' NOT NULL,
  phase TEXT NOT NULL,
  goal TEXT DEFAULT 'hold' NOT NULL,
  attachment_id UUID,
  verified_at TIMESTAMP WITH TIME ZONE,
  unbound_at TIMESTAMP WITH TIME ZONE,
  node_state TEXT,
  node_boot_id TEXT,
  numa_node INTEGER,
  dax_device TEXT,
  forgotten BOOLEAN DEFAULT 'false' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT segment_space_key UNIQUE (id, device_no, dpa_space),
  CONSTRAINT segment_attachment_of_its_device FOREIGN KEY(attachment_id, device_no) REFERENCES attachment (id, device_no),
  CONSTRAINT segment_of_ld FOREIGN KEY(device_no, ld_id) REFERENCES logical_device (device_no, ld_id),
  CONSTRAINT segment_phase_known CHECK (phase IN ('reserved', 'binding', 'bound', 'online', 'release_blocked', 'releasing', 'sanitizing', 'released', 'failed', 'lost', 'quarantined')),
  CONSTRAINT segment_goal_known CHECK (goal IN ('hold', 'bind', 'unbind', 'release', 'undo')),
  CONSTRAINT segment_size_positive CHECK (size_bytes > 0),
  CONSTRAINT segment_ld_or_extents CHECK (ld_id IS NULL OR dpa_space IS NULL),
  CONSTRAINT segment_node_state_known CHECK (node_state IN ('online', 'offline', 'offline_failed')),
  CONSTRAINT segment_bound_was_read_back CHECK (phase NOT IN ('bound', 'online', 'release_blocked') OR (verified_at IS NOT NULL AND attachment_id IS NOT NULL)),
  CONSTRAINT segment_taken_only_when_offline CHECK (phase NOT IN ('releasing', 'sanitizing', 'reserved', 'released', 'failed') OR coalesce(node_state, 'offline') = 'offline'),
  CONSTRAINT segment_online_was_reported CHECK (phase NOT IN ('online', 'release_blocked') OR node_state IN ('online', 'offline_failed')),
  FOREIGN KEY(allocation_id) REFERENCES allocation (id),
  FOREIGN KEY(device_no) REFERENCES device (number)
);
CREATE INDEX segment_allocation ON segment (allocation_id);
CREATE INDEX segment_device ON segment (device_no, allocation_id) WHERE NOT forgotten;
CREATE UNIQUE INDEX segment_ld_once ON segment (device_no, ld_id) WHERE ld_id IS NOT NULL AND phase NOT IN ('failed', 'released');
CREATE INDEX segment_live ON segment (id) WHERE phase NOT IN ('failed', 'released');
CREATE INDEX segment_live_attachment ON segment (attachment_id) WHERE phase NOT IN ('failed', 'released');
CREATE INDEX segment_live_device ON segment (device_no) WHERE phase NOT IN ('failed', 'released');
CREATE INDEX segment_live_phase ON segment (phase, device_no) INCLUDE (size_bytes) WHERE phase NOT IN ('failed', 'released');
COMMENT ON COLUMN segment.ld_id IS 'the LD held; an SLD is its own LD 0';
COMMENT ON COLUMN segment.dpa_space IS 'the host interface its extents live in, on a DCD once bound';
COMMENT ON COLUMN segment.forgotten IS 'as its allocation is';

CREATE TABLE evidence (
  id UUID NOT NULL,
  segment_id UUID NOT NULL,
  device_no INTEGER NOT NULL,
  device_serial TEXT NOT NULL,
  operation_id UUID,
  method TEXT NOT NULL,
  size_bytes BIGINT NOT NULL,
  started_at TIMESTAMP WITH TIME ZONE NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE NOT NULL,
  read_back JSONB NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT evidence_method_known CHECK (method IN ('completion', 'release_with_sanitize', 'host_attested', 'operator')),
  CONSTRAINT evidence_ends_after_start CHECK (ended_at >= started_at),
  FOREIGN KEY(segment_id) REFERENCES segment (id),
  FOREIGN KEY(device_no) REFERENCES device (number),
  FOREIGN KEY(operation_id) REFERENCES operation (id)
);
CREATE INDEX evidence_segment ON evidence (segment_id, ended_at);
COMMENT ON TABLE evidence IS 'Why bytes may be handed on: how, when and on which device they were erased.';

CREATE TABLE extent (
  segment_id UUID NOT NULL,
  number SMALLINT NOT NULL,
  device_no INTEGER NOT NULL,
  dpa_space SMALLINT NOT NULL,
  span INT8RANGE NOT NULL,
  block_bytes BIGINT NOT NULL,
  PRIMARY KEY (segment_id, number),
  CONSTRAINT extent_tag_has_one_host FOREIGN KEY(segment_id, device_no, dpa_space) REFERENCES segment (id, device_no, dpa_space),
  CONSTRAINT extent_not_empty CHECK (NOT isempty(span)),
  CONSTRAINT extent_bounded CHECK (NOT lower_inf(span) AND NOT upper_inf(span) AND lower(span) >= 0 AND upper(span) < 4611686018427387904),
  CONSTRAINT extent_block_positive CHECK (block_bytes > 0),
  CONSTRAINT extent_aligned CHECK (lower(span) % block_bytes = 0 AND upper(span) % block_bytes = 0),
  CONSTRAINT extent_spans_disjoint EXCLUDE USING gist (int4range(device_no, device_no, '[]') WITH &&, int4range(dpa_space::integer, dpa_space::integer, '[]') WITH &&, span WITH &&)
);
CREATE INDEX extent_space ON extent (device_no, dpa_space);
COMMENT ON COLUMN extent.segment_id IS 'also the tag on the wire';
COMMENT ON COLUMN extent.span IS '[start, end) in the host''s DPA space, in bytes';

CREATE TABLE operation_step (
  operation_id UUID NOT NULL,
  number INTEGER NOT NULL,
  segment_id UUID,
  step TEXT NOT NULL,
  component TEXT NOT NULL,
  intent JSONB NOT NULL,
  epoch BIGINT NOT NULL,
  intended_at TIMESTAMP WITH TIME ZONE NOT NULL,
  outcome TEXT,
  observed JSONB,
  finished_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (operation_id, number),
  CONSTRAINT operation_step_outcome_known CHECK (outcome IN ('done', 'refused', 'busy', 'unknown')),
  FOREIGN KEY(operation_id) REFERENCES operation (id),
  FOREIGN KEY(segment_id) REFERENCES segment (id)
);
CREATE INDEX operation_step_segment ON operation_step (segment_id, step);
COMMENT ON COLUMN operation_step.outcome IS 'NULL: the process that intended it never said';

INSERT INTO lifecycle_transition (phase, event, next_phase) VALUES
  ('reserved', 'bind-wanted', 'binding'),
  ('reserved', 'release-wanted', 'released'),
  ('reserved', 'expired', 'released'),
  ('binding', 'bind-read-back', 'bound'),
  ('binding', 'bind-untouched', 'failed'),
  ('binding', 'release-wanted', 'releasing'),
  ('binding', 'unbind-wanted', 'releasing'),
  ('binding', 'undo', 'releasing'),
  ('binding', 'unprovable', 'quarantined'),
  ('bound', 'node-online', 'online'),
  ('bound', 'release-wanted', 'releasing'),
  ('bound', 'unbind-wanted', 'releasing'),
  ('bound', 'gone', 'lost'),
  ('bound', 'identity-changed', 'quarantined'),
  ('online', 'node-offline', 'bound'),
  ('online', 'new-boot', 'bound'),
  ('online', 'release-wanted', 'release_blocked'),
  ('online', 'unbind-wanted', 'release_blocked'),
  ('online', 'gone', 'lost'),
  ('online', 'identity-changed', 'quarantined'),
  ('online', 'forced', 'quarantined'),
  ('release_blocked', 'node-offline', 'releasing'),
  ('release_blocked', 'new-boot', 'releasing'),
  ('release_blocked', 'fenced', 'releasing'),
  ('release_blocked', 'gone', 'releasing'),
  ('release_blocked', 'identity-changed', 'quarantined'),
  ('release_blocked', 'forced', 'quarantined'),
  ('releasing', 'gone', 'sanitizing'),
  ('releasing', 'unprovable', 'quarantined'),
  ('sanitizing', 'sanitized-release', 'released'),
  ('sanitizing', 'sanitized-undo', 'failed'),
  ('sanitizing', 'sanitized-unbind', 'reserved'),
  ('sanitizing', 'unprovable', 'quarantined'),
  ('lost', 'bind-wanted', 'binding'),
  ('lost', 'release-wanted', 'releasing'),
  ('lost', 'release-wanted-present', 'release_blocked'),
  ('lost', 'identity-changed', 'quarantined'),
  ('lost', 'forced', 'quarantined'),
  ('quarantined', 'cleared-releasing', 'releasing'),
  ('quarantined', 'cleared-sanitizing', 'sanitizing'),
  ('failed', 'release-wanted', 'released'),
  ('failed', 'expired', 'released');

-- What every installation starts with.
INSERT INTO event_head (singleton, seq) VALUES (true, 0);
CREATE TABLE event_0 PARTITION OF event FOR VALUES FROM (0) TO (1000000);
INSERT INTO qos_class (id, name) VALUES ('01900000-0000-7000-8000-000000000001', 'standard');
INSERT INTO isolation_policy (id, name, sharing, sanitize)
VALUES ('01900000-0000-7000-8000-000000000002', 'shared', 'shared-device', 'always');
