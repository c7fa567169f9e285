-- Finds first messages of groups, those due first, and locks their groups until the transaction
-- ends. $1: no message that waits is due before this time. $2: how many messages to look at.
-- $3: the most to return.
WITH due AS MATERIALIZED (
    SELECT msg_id, vt, headers
    FROM {queue}
    WHERE vt <= now() AND vt >= $1
    ORDER BY vt
    LIMIT $2
), next AS MATERIALIZED (
    SELECT msg_id, headers->>'x-pgmq-group' AS message_group
    FROM due m
    WHERE headers->>'x-pgmq-group' IS NOT NULL AND ({is_next})
    ORDER BY vt
    LIMIT $3
), locked AS MATERIALIZED (
    SELECT msg_id FROM next WHERE {lock_group}
)
SELECT ARRAY(SELECT msg_id FROM locked) AS ids,
    (SELECT count(*) FROM next) AS found,
    (SELECT count(*) FROM due) AS seen
