-- Ends deliveries: their messages are done. $1, $2, $3: ids, receive counts and times of receipt.
WITH ended AS (
    DELETE FROM {queue} m
    USING unnest($1, $2, $3) AS receipt (msg_id, read_ct, last_read_at)
    WHERE {is_held}
    RETURNING receipt.*, {in_group} AS in_group
)
SELECT msg_id, read_ct, last_read_at, {wake} FROM ended
