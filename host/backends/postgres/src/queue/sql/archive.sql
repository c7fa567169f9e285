-- The same, but the messages move to the queue's archive, as pgmq.archive moves them.
WITH ended AS (
    DELETE FROM {queue} m
    USING unnest($1, $2, $3) AS receipt (msg_id, read_ct, last_read_at)
    WHERE {is_held}
    RETURNING m.*, {in_group} AS in_group
), archived AS (
    INSERT INTO {archive} (msg_id, vt, read_ct, enqueued_at, last_read_at, message, headers)
    SELECT msg_id, vt, read_ct, enqueued_at, last_read_at, message, headers FROM ended
)
SELECT msg_id, read_ct, last_read_at, {wake} FROM ended
