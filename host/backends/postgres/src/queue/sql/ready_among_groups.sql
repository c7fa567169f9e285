    -- Messages without a group, in a queue that also has groups. Looks at $6 messages only: those of
    -- groups may be millions.
    SELECT m.msg_id, m.vt, m.vt AS place, pg_column_size(m.message) AS stored_bytes
    FROM due JOIN {queue} m USING (msg_id)
    WHERE due.is_alone AND m.vt <= now()
    ORDER BY due.vt
    LIMIT $3
    FOR UPDATE OF m SKIP LOCKED
