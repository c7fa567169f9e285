-- Sends messages in their order. $1: bodies, $2: headers, both JSON. $3: delays, in microseconds.
INSERT INTO {queue} (vt, message, headers)
SELECT now() + delay * interval '1 microsecond', body::jsonb, headers::jsonb
FROM unnest($1, $2, $3) WITH ORDINALITY AS item (body, headers, delay, position)
ORDER BY position
RETURNING msg_id
