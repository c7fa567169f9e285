//! The tables, indexes and triggers for lanes. A file gets them at the first receive that shares
//! messages out. They are not part of the version: triggers keep lanes right for every writer,
//! older programs included.
//!
//! A lane is a priority and a tenant of one queue. `entries.priority` and `entries.tenant` name the
//! lane of a message. The priority is NULL if the message does not count: its queue is not shared
//! out, or it waits behind the first of its group. It is 0 until the message was read (`assign`).

use crate::queue::schema::create;
use rusqlite::Connection;

/// The rules by which a queue is shared out, as `AssignmentRules`. `first_priority` is the priority of a
/// new message. The messages up to the row `walk_to` may be in lanes of earlier rules; those up to
/// the row `walked` no longer are. `used_at` is about the time of the last receive that shared
/// messages out. Every file has this table, so that a look says whether a queue is shared out.
const RULES: &str = "
    CREATE TABLE IF NOT EXISTS lane_rules (
        queue INTEGER PRIMARY KEY,
        by_group INTEGER NOT NULL,
        attribute TEXT,
        pointer TEXT,
        first_priority INTEGER NOT NULL,
        walked INTEGER NOT NULL,
        walk_to INTEGER NOT NULL,
        used_at INTEGER NOT NULL
    );
";

/// `next_at` is a lower bound of the time at which the first message of a lane can be received.
/// `is_due` says that this time has come, as a receive has found. `pass` is the sum that the lane
/// has paid. A priority's `pass` in `lane_times` is its virtual time.
///
/// No trigger raises `next_at`, and none deletes a lane: the next receive to look at a lane does.
const LANES: &str = "
    ALTER TABLE entries ADD COLUMN priority INTEGER;
    ALTER TABLE entries ADD COLUMN tenant TEXT;
    CREATE INDEX lane_messages ON entries (queue, priority, tenant, visible_at, seq)
        WHERE priority IS NOT NULL;
    CREATE INDEX unranked ON entries (queue, seq) WHERE priority = 0;
    CREATE TABLE lanes (
        queue INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        next_at INTEGER NOT NULL,
        is_due INTEGER NOT NULL DEFAULT 0,
        pass INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (queue, priority, tenant)
    ) WITHOUT ROWID;
    CREATE INDEX lanes_by_time ON lanes (queue, is_due, priority, next_at, tenant);
    CREATE INDEX lanes_by_pass ON lanes (queue, priority, pass, tenant) WHERE is_due = 1;
    CREATE TABLE lane_times (
        queue INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        pass INTEGER NOT NULL,
        PRIMARY KEY (queue, priority)
    ) WITHOUT ROWID;
    CREATE TRIGGER lane_of_new AFTER INSERT ON entries
    WHEN EXISTS (SELECT 1 FROM lane_rules WHERE queue = NEW.queue)
    BEGIN
        UPDATE entries SET (priority, tenant) = (
            SELECT CASE WHEN by_group OR NEW.head THEN first_priority END,
                   CASE WHEN by_group THEN coalesce(NEW.message_group, '') ELSE '' END
            FROM lane_rules WHERE queue = NEW.queue
        ) WHERE seq = NEW.seq;
    END;
    CREATE TRIGGER lane_of_head AFTER UPDATE OF head ON entries
    WHEN EXISTS (SELECT 1 FROM lane_rules WHERE queue = NEW.queue AND NOT by_group)
    BEGIN
        UPDATE entries SET tenant = '', priority = (
            SELECT first_priority FROM lane_rules WHERE queue = NEW.queue AND NEW.head
        ) WHERE seq = NEW.seq;
    END;
    CREATE TRIGGER lane_entered AFTER UPDATE OF priority, tenant ON entries
    WHEN NEW.priority > 0
    BEGIN
        INSERT INTO lanes (queue, priority, tenant, next_at)
        VALUES (NEW.queue, NEW.priority, NEW.tenant, NEW.visible_at)
        ON CONFLICT DO UPDATE SET next_at = excluded.next_at WHERE excluded.next_at < next_at;
    END;
    CREATE TRIGGER lane_sooner AFTER UPDATE OF visible_at ON entries
    WHEN NEW.priority > 0 AND NEW.visible_at < OLD.visible_at
    BEGIN
        INSERT INTO lanes (queue, priority, tenant, next_at)
        VALUES (NEW.queue, NEW.priority, NEW.tenant, NEW.visible_at)
        ON CONFLICT DO UPDATE SET next_at = excluded.next_at WHERE excluded.next_at < next_at;
    END;
";

/// The index of lanes for receives that want the newest messages first.
const BY_AGE: &str =
    "CREATE INDEX lane_ages ON entries (queue, priority, tenant, sent_at, seq, visible_at)
         WHERE priority IS NOT NULL";

/// Creates the table that says which queues are shared out.
pub(in crate::queue) fn create_rules(connection: &Connection) -> rusqlite::Result<()> {
    create(connection, "lane_rules", RULES)
}

/// Creates the lanes. For a million messages this takes about a second.
pub(super) fn create_lanes(connection: &Connection) -> rusqlite::Result<()> {
    create(connection, "lanes", LANES)
}

/// Creates the index of lanes by age.
pub(super) fn index_ages(connection: &Connection) -> rusqlite::Result<()> {
    create(connection, "lane_ages", BY_AGE)
}
