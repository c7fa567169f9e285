-- Ends deliveries: their messages wait again. $4: delays, in microseconds. Without `last_read_at`
-- a message counts as waiting or delayed, not as in flight.
WITH released AS (
    UPDATE {queue} m
    SET vt = now() + receipt.delay * interval '1 microsecond',
        last_read_at = NULL,
        headers = {headers_with_first_read}
    FROM unnest($1, $2, $3, $4) AS receipt (msg_id, read_ct, last_read_at, delay)
    WHERE {is_held}
    RETURNING m.msg_id
)
SELECT msg_id, CASE WHEN EXISTS (
    SELECT FROM dispatcher.waiting WHERE queue_table = {table} AND until > now()
) THEN pg_notify('dispatcher', {table}) END
FROM released
