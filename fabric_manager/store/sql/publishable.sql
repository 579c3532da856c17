-- What a cluster's scheduler may take for available on a device: gross of what the cluster itself holds, because the
-- scheduler subtracts its own claims, by the sizes they asked for.

-- Bytes of the device that live claims of the cluster asked for. Memory on its way back is no longer theirs. A request
-- fills its segments in order; what it does not reach is waste by rounding.
CREATE OR REPLACE FUNCTION own_live_bytes(d device, of_cluster text) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
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

-- capacity - withdrawn - sanitizing - quarantined - others' - own on the way back - own waste: what is free and what is
-- the cluster's own. A device that others alone may use, or that hands nothing out, shows the cluster's own.
CREATE OR REPLACE FUNCTION publishable_bytes(d device, of_cluster text) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN own_live_bytes(d, of_cluster) + CASE
    WHEN d.health = 'ok' AND d.admin_state = 'enabled'
      AND (d.reserved_for = '{}' OR 'cluster:' || of_cluster = ANY (d.reserved_for)) THEN d.free_bytes ELSE 0 END;
END $$;
