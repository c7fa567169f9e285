-- Finds first messages of groups, those due first, and locks their groups until the transaction
-- ends. $1: how many messages to look at. $2: the most to return.
WITH due AS MATERIALIZED (
    SELECT msg_id, vt, headers
    FROM {queue}
    WHERE vt <= now()
    ORDER BY vt
    LIMIT $1
), next AS MATERIALIZED (
    SELECT msg_id, headers->>'x-pgmq-group' AS message_group
    FROM due m
    WHERE headers->>'x-pgmq-group' IS NOT NULL AND ({is_next})
    ORDER BY vt
    LIMIT $2
), locked AS MATERIALIZED (
    SELECT msg_id FROM next WHERE {lock_group}
)
SELECT ARRAY(SELECT msg_id FROM locked) AS ids,
    (SELECT count(*) FROM next) AS found,
    (SELECT count(*) FROM due) AS seen
