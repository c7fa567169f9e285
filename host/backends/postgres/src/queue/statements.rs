//! The statements of one queue. Each file in `sql` is one of them, or a part of one.

/// The names of the tables of a queue, quoted.
pub(super) struct QueueTables {
    /// The name of its table, without the schema.
    pub table: String,
    /// The dead-letter queue's.
    pub dead_letter: Option<String>,
    /// Whether messages that are done move to the archive.
    pub archive: bool,
}

/// The text of each statement.
pub(super) struct Statements {
    pub claim: String,
    pub claim_newest: String,
    pub claim_among_groups: String,
    pub claim_chosen: String,
    pub lock_chosen: String,
    pub heads_by_time: String,
    pub heads_from_start: String,
    pub heads_by_group: String,
    pub done: String,
    pub release: String,
    pub dead_letter: String,
    pub extend: String,
    pub send: String,
    pub list: String,
    pub end: String,
    pub find: String,
    pub find_copy: String,
    pub peek: String,
    pub depth: String,
    pub purge: String,
    pub cancel_delayed: String,
}

/// The bytes of a message.
const BYTES: &str = "(coalesce(octet_length(m.message::text), 0) \
                     + coalesce(octet_length(m.headers::text), 0))::bigint";

/// The columns of a message `m`. $1 is the largest body to read.
const MESSAGE: &str = "m.msg_id, m.read_ct, m.enqueued_at, m.last_read_at, {bytes} AS bytes, \
                       CASE WHEN {bytes} <= $1 THEN coalesce(m.message #>> '{}', 'null') END AS body, \
                       m.headers::text AS headers";

/// The messages that a claim looks at. $5: where it begins. $6: how many.
const DUE: &str = "due AS MATERIALIZED (\
                   SELECT msg_id, vt, headers->>'x-pgmq-group' IS NULL AS is_alone \
                   FROM {queue} WHERE vt <= now() AND vt >= $5 ORDER BY vt LIMIT $6),";

/// How many it has looked at, and where it ended.
const LOOKED: &str = "(SELECT count(*) FROM due), (SELECT max(vt) FROM due)";

/// The headers of a message `m` that was received, with the time of its first receipt.
const FIRST_READ: &str = "CASE WHEN m.last_read_at IS NULL \
                          OR coalesce(jsonb_typeof(m.headers), 'object') <> 'object' \
                          OR m.headers ? 'x-dispatcher-first-read' \
                          THEN m.headers \
                          ELSE coalesce(m.headers, '{}') || jsonb_build_object('x-dispatcher-first-read', \
                          (extract(epoch FROM m.last_read_at) * 1000000)::bigint) END";

/// Whether a message `m` may be received: it has no group, or it is the first of its group and no
/// other is in flight. Subqueries with a limit are looked up for each message; `EXISTS` may become a
/// join that reads the table.
const IS_NEXT: &str = "m.headers->>'x-pgmq-group' IS NULL OR (\
                       m.msg_id = (SELECT e.msg_id FROM {queue} e \
                       WHERE e.headers->>'x-pgmq-group' = m.headers->>'x-pgmq-group' \
                       ORDER BY e.headers->>'x-pgmq-group', e.msg_id LIMIT 1) \
                       AND (SELECT e.msg_id FROM {queue} e \
                       WHERE e.headers->>'x-pgmq-group' = m.headers->>'x-pgmq-group' \
                       AND e.last_read_at IS NOT NULL AND e.vt > clock_timestamp() \
                       AND e.msg_id <> m.msg_id LIMIT 1) IS NULL)";

/// Whether a group could be locked. It stays locked until the transaction ends.
const LOCK_GROUP: &str =
    "pg_try_advisory_xact_lock(hashtextextended({table} || '.' || message_group, 0))";

/// Whether a message `m` has a group.
const IN_GROUP: &str = "m.headers->>'x-pgmq-group' IS NOT NULL";

/// Wakes processes that wait for the queue, if one may now receive a message.
const WAKE: &str = "CASE WHEN in_group AND EXISTS (\
                    SELECT FROM dispatcher.waiting WHERE queue_table = {table} AND until > now()\
                    ) THEN pg_notify('dispatcher', {table}) END";

/// Whether a receipt is that of the last delivery of a message `m`.
const IS_HELD: &str = "m.msg_id = receipt.msg_id AND m.read_ct = receipt.read_ct \
                       AND m.last_read_at = receipt.last_read_at";

impl Statements {
    pub(super) fn of(tables: &QueueTables) -> Self {
        let claim = include_str!("sql/claim.sql");
        let all_due = claim.replace("{due}", "").replace("{looked}", "NULL, NULL");
        let by_time = all_due.replace("{ready}", include_str!("sql/ready.sql"));
        let chosen = all_due.replace("{ready}", include_str!("sql/chosen.sql"));
        let some_due = claim
            .replace("{due}", DUE)
            .replace("{looked}", LOOKED)
            .replace("{ready}", include_str!("sql/ready_among_groups.sql"));
        let by_group = include_str!("sql/heads_by_group.sql");
        let oldest = by_time.replace("{place}", "vt").replace("{order}", "vt");
        let newest = by_time
            .replace("{place}", "-msg_id")
            .replace("{order}", "msg_id DESC");
        Self {
            claim: tables.fill(&oldest),
            claim_newest: tables.fill(&newest),
            claim_among_groups: tables.fill(&some_due),
            claim_chosen: tables.fill(&chosen),
            lock_chosen: tables.fill(
                "SELECT ARRAY(SELECT msg_id FROM (SELECT msg_id, headers->>'x-pgmq-group' AS message_group \
                 FROM {queue} WHERE msg_id = ANY($1)) chosen \
                 WHERE message_group IS NULL OR {lock_group}) AS ids",
            ),
            heads_by_time: tables.fill(include_str!("sql/heads_by_time.sql")),
            heads_from_start: tables.fill(&by_group.replace("{after}", ">=")),
            heads_by_group: tables.fill(&by_group.replace("{after}", ">")),
            done: tables.fill(if tables.archive {
                include_str!("sql/archive.sql")
            } else {
                include_str!("sql/delete.sql")
            }),
            release: tables.fill(include_str!("sql/release.sql")),
            dead_letter: tables.fill(include_str!("sql/dead_letter.sql")),
            extend: tables.fill(include_str!("sql/extend.sql")),
            send: tables.fill(include_str!("sql/send.sql")),
            list: tables.fill(include_str!("sql/list.sql")),
            end: tables.fill("SELECT coalesce(max(msg_id), 0) FROM {queue}"),
            find: tables.fill("SELECT {message} FROM {queue} m WHERE msg_id = $2 AND vt <= now()"),
            find_copy: tables.fill(
                "SELECT {message} FROM {queue} m \
                 WHERE headers->>'dispatcher-first-id' = $2::text AND vt <= now() LIMIT 1",
            ),
            peek: tables.fill(
                "SELECT {message} FROM (SELECT * FROM {queue} WHERE vt <= now() ORDER BY vt LIMIT $2) m",
            ),
            depth: tables.fill(include_str!("sql/depth.sql")),
            purge: tables.fill(include_str!("sql/purge.sql")),
            cancel_delayed: tables.fill(
                "DELETE FROM {queue} WHERE msg_id = $1 AND vt > now() AND last_read_at IS NULL \
                 RETURNING msg_id",
            ),
        }
    }
}

impl QueueTables {
    /// Replaces the names and the parts in a statement.
    fn fill(&self, sql: &str) -> String {
        let queue = in_schema(&self.table);
        let dead_letter = in_schema(self.dead_letter.as_deref().unwrap_or(&self.table));
        sql.replace("{headers_with_first_read}", FIRST_READ)
            .replace("{wake}", WAKE)
            .replace("{in_group}", IN_GROUP)
            .replace("{is_next}", IS_NEXT)
            .replace("{lock_group}", LOCK_GROUP)
            .replace("{is_held}", IS_HELD)
            .replace("{message}", MESSAGE)
            .replace("{bytes}", BYTES)
            .replace("{queue}", &queue)
            .replace("{archive}", &in_schema(&self.table.replacen("q_", "a_", 1)))
            .replace("{dead_letter_name}", &text(&dead_letter))
            .replace("{dead_letter}", &dead_letter)
            .replace("{table}", &text(&self.table))
    }
}

/// Returns the quoted name of a table of pgmq.
fn in_schema(table: &str) -> String {
    format!("pgmq.\"{}\"", table.replace('"', "\"\""))
}

/// Returns a text as a literal.
fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}
