    -- Messages without a group. $5: no message that waits is due before this time. The planner takes
    -- `IS NULL` to hold for few rows, and would sort them all; it takes `num_nulls` to hold for most.
    SELECT msg_id, vt, {place} AS place, pg_column_size(m.message) AS stored_bytes
    FROM {queue} m
    WHERE vt <= now() AND vt >= $5 AND num_nulls(headers->>'x-pgmq-group') <> 0
    ORDER BY {order}
    LIMIT $3
    FOR UPDATE SKIP LOCKED
