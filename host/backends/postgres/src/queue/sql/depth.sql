SELECT count(*) FILTER (WHERE vt <= now()),
    count(*) FILTER (WHERE vt > now() AND last_read_at IS NOT NULL),
    count(*) FILTER (WHERE vt > now() AND last_read_at IS NULL),
    (extract(epoch FROM now() - min(enqueued_at) FILTER (WHERE vt <= now() OR last_read_at IS NULL)) * 1000)::bigint
FROM {queue}
