-- Ends deliveries: their messages wait again. $4: delays, in microseconds. Without `last_read_at`
-- a message counts as waiting or delayed, not as in flight.
WITH ended AS (
    UPDATE {queue} m
    SET vt = now() + receipt.delay * interval '1 microsecond',
        last_read_at = NULL,
        headers = {headers_with_first_read}
    FROM unnest($1, $2, $3, $4) AS receipt (msg_id, read_ct, last_read_at, delay)
    WHERE {is_held}
    RETURNING receipt.*, true AS in_group
)
SELECT msg_id, read_ct, last_read_at, {wake} FROM ended
