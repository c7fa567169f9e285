-- Moves messages to the dead-letter queue. $4: attributes to add, each a JSON object. Also returns
-- the new ids.
WITH ended AS (
    DELETE FROM {queue} m
    USING unnest($1, $2, $3, $4) AS receipt (msg_id, read_ct, last_read_at, added)
    WHERE {is_held}
    RETURNING m.msg_id, m.read_ct, m.last_read_at, m.enqueued_at, m.message,
        (CASE WHEN jsonb_typeof(m.headers) = 'object' THEN m.headers - 'x-dispatcher-first-read'
            ELSE '{}' END) || receipt.added::jsonb AS headers,
        {in_group} AS in_group
), numbered AS MATERIALIZED (
    SELECT ended.*, nextval(pg_get_serial_sequence({dead_letter_name}, 'msg_id')) AS new_id
    FROM ended
), moved AS (
    INSERT INTO {dead_letter} (msg_id, enqueued_at, vt, message, headers)
    OVERRIDING SYSTEM VALUE
    SELECT new_id, enqueued_at, now(), message, headers FROM numbered
)
SELECT msg_id, read_ct, last_read_at, {wake}, new_id FROM numbered
