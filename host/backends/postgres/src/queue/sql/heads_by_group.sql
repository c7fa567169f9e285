-- The same in the order of the groups' names, for a queue whose first messages by time all wait for
-- others of their groups. $1: the last group that was looked at. $2: how many groups to look at.
-- $3: the most to return.
WITH RECURSIVE heads AS (
    (SELECT headers->>'x-pgmq-group' AS message_group, msg_id, vt, headers
    FROM {queue}
    WHERE headers->>'x-pgmq-group' {after} $1
    ORDER BY headers->>'x-pgmq-group', msg_id
    LIMIT 1)
    UNION ALL
    SELECT further.*
    FROM heads, LATERAL (
        SELECT headers->>'x-pgmq-group', msg_id, vt, headers
        FROM {queue} q
        WHERE q.headers->>'x-pgmq-group' > heads.message_group
        ORDER BY q.headers->>'x-pgmq-group', q.msg_id
        LIMIT 1
    ) further
), near AS MATERIALIZED (
    SELECT * FROM heads LIMIT $2
), next AS MATERIALIZED (
    SELECT msg_id, message_group FROM near m WHERE vt <= now() AND ({is_next}) LIMIT $3
), locked AS MATERIALIZED (
    SELECT msg_id FROM next WHERE {lock_group}
)
SELECT ARRAY(SELECT msg_id FROM locked) AS ids,
    (SELECT count(*) FROM next) AS found,
    (SELECT count(*) FROM near) AS seen,
    (SELECT max(message_group) FROM near) AS last_group
