-- Takes messages that `ready` has found and locked, as many as fit into $4 bytes, at least one.
-- $1: the largest body to read, in bytes. $2: the visibility timeout, in microseconds.
-- $3: the most messages. The last row says what else the queue has.
WITH {due} ready AS ({ready}), stored AS (
    SELECT msg_id, place,
        row_number() OVER (ORDER BY place, msg_id) AS number,
        sum(stored_bytes) OVER (ORDER BY place, msg_id) AS stored_so_far
    FROM ready
), measured AS (
    -- Only bodies that may fit are read to be measured.
    SELECT stored.msg_id, number, sum(least({bytes}, $1)) OVER (ORDER BY number) AS bytes_so_far
    FROM stored JOIN {queue} m USING (msg_id)
    WHERE number = 1 OR stored_so_far <= $4
), fitting AS (
    SELECT msg_id, number FROM measured WHERE number = 1 OR bytes_so_far <= $4
), claimed AS (
    UPDATE {queue} m
    SET vt = now() + $2 * interval '1 microsecond',
        read_ct = m.read_ct + 1,
        last_read_at = now(),
        headers = {headers_with_first_read}
    FROM fitting
    WHERE m.msg_id = fitting.msg_id
    RETURNING fitting.number, {message}
)
SELECT number, msg_id, read_ct, enqueued_at, last_read_at, bytes, body, headers,
    NULL::timestamptz AS now, NULL::timestamptz AS next_due, NULL::boolean AS has_groups,
    NULL::bigint AS found, NULL::timestamptz AS newest,
    NULL::bigint AS looked_at, NULL::timestamptz AS looked_to
FROM claimed
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    now(),
    (SELECT vt FROM {queue} WHERE vt > now() ORDER BY vt LIMIT 1),
    -- In the order of an index, so that no plan reads the table.
    (SELECT true FROM {queue} WHERE headers->>'x-pgmq-group' IS NOT NULL
        ORDER BY headers->>'x-pgmq-group' LIMIT 1),
    (SELECT count(*) FROM ready),
    (SELECT max(vt) FROM ready),
    {looked}
ORDER BY number NULLS LAST
