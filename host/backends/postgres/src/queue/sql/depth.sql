-- Counts messages. $1: the most to count of each kind; of more that wait there is an estimate.
SELECT
    CASE WHEN due < $1 THEN due
        ELSE greatest(due, (SELECT reltuples::bigint FROM pg_class WHERE oid = '{queue}'::regclass))
    END,
    in_flight,
    delayed,
    (SELECT (extract(epoch FROM now() - enqueued_at) * 1000)::bigint FROM {queue}
        WHERE vt <= now() OR last_read_at IS NULL ORDER BY msg_id LIMIT 1)
FROM
    (SELECT count(*) AS due FROM (SELECT FROM {queue} WHERE vt <= now() LIMIT $1) counted) waiting,
    (SELECT count(*) FILTER (WHERE last_read_at IS NOT NULL) AS in_flight,
        count(*) FILTER (WHERE last_read_at IS NULL) AS delayed
        FROM (SELECT last_read_at FROM {queue} WHERE vt > now() LIMIT $1) counted) invisible
