    -- Messages without a group. $5: no message that waits is due before this time.
    SELECT msg_id, vt, {place} AS place, {bytes} AS bytes
    FROM {queue} m
    WHERE vt <= now() AND vt >= $5 AND headers->>'x-pgmq-group' IS NULL
    ORDER BY {order}
    LIMIT $3
    FOR UPDATE SKIP LOCKED
