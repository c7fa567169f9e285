-- Keeps deliveries invisible. $4: for how long from now, in microseconds. $5: the longest time since
-- the receipt. A delivery that has ended is not kept if its group has gone on meanwhile.
UPDATE {queue} m
SET vt = least(
    now() + receipt.time * interval '1 microsecond',
    m.last_read_at + $5 * interval '1 microsecond'
)
FROM unnest($1, $2, $3, $4) AS receipt (msg_id, read_ct, last_read_at, time)
WHERE {is_held} AND (m.vt > now() OR {is_next})
RETURNING receipt.msg_id, receipt.read_ct, receipt.last_read_at
