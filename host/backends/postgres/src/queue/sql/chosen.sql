    -- Those of the messages $5 that wait. A message of a group must be the first of its group, and no
    -- other of the group may be in flight; the transaction holds the locks of the groups.
    SELECT msg_id, vt, msg_id AS place, pg_column_size(m.message) AS stored_bytes
    FROM {queue} m
    WHERE msg_id = ANY($5) AND vt <= clock_timestamp() AND ({is_next})
    ORDER BY msg_id
    LIMIT $3
    FOR UPDATE SKIP LOCKED
