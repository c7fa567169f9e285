-- Removes up to $1 messages that are not in flight. Returns how many.
WITH removed AS (
    DELETE FROM {queue}
    WHERE msg_id IN (
        SELECT msg_id FROM {queue}
        WHERE vt <= now() OR last_read_at IS NULL
        LIMIT $1
        FOR UPDATE SKIP LOCKED
    )
    RETURNING 1
)
SELECT count(*) FROM removed
