-- Lists messages that wait. $1: the largest body to read, in bytes. $2: the id to begin after.
-- $3: the most messages. $4: the most bytes.
SELECT * FROM (
    SELECT {message}, sum({bytes}) OVER (ORDER BY m.msg_id) AS bytes_so_far
    FROM (
        SELECT * FROM {queue} WHERE msg_id > $2 AND vt <= now() ORDER BY msg_id LIMIT $3
    ) m
) listed
WHERE bytes_so_far - bytes < $4
ORDER BY msg_id
