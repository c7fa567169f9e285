//! Queues that the configuration declares: made, or changed to what it says where that costs no
//! message. Pure steps that are told `now`.

use super::look::queue_id;
use super::registry;
use super::settings::{QueueSettings, Redrive};
use super::time::StoreTime;
use super::turn::Turn;
use dispatcher_core::backend::{Contradiction, QueueDeclaration};
use rusqlite::params;
use std::time::Duration;

/// Makes or changes them all; none, if one contradicts what is there.
pub(super) fn declare(
    turn: &mut Turn<'_>,
    queues: &[QueueDeclaration],
) -> rusqlite::Result<Vec<Contradiction>> {
    let contradictions = contradictions(turn, queues)?;
    if !contradictions.is_empty() {
        return Ok(contradictions);
    }
    // Those that others name as their dead-letter queue are made by their own declaration.
    let mut in_order: Vec<_> = queues.iter().collect();
    in_order.sort_by_key(|declared| declared.redrive.is_some());
    for declared in in_order {
        let name = &declared.name;
        let known = registry::find(turn, name)?.filter(|known| known.configured);
        match known.map(|known| known.settings) {
            None => drop(registry::create(
                turn,
                name,
                &applied(declared, QueueSettings::default()),
            )?),
            Some(settings) if applied(declared, settings.clone()) != settings => {
                registry::change(turn, name, |settings| {
                    *settings = applied(declared, settings.clone());
                })?;
            }
            Some(_) => {}
        }
        if let Some((dead_letter_queue, _)) = &declared.redrive {
            queue_id(turn.connection, dead_letter_queue)?;
        }
    }
    Ok(Vec::new())
}

/// Which of them contradict what is there.
pub(super) fn contradictions(
    turn: &Turn<'_>,
    queues: &[QueueDeclaration],
) -> rusqlite::Result<Vec<Contradiction>> {
    let mut found = Vec::new();
    for declared in queues {
        found.extend(contradiction(turn, declared)?);
    }
    Ok(found)
}

/// What is declared, over what is set.
fn applied(declared: &QueueDeclaration, settings: QueueSettings) -> QueueSettings {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs());
    let redrive = declared.redrive.clone();
    let redrive = redrive.map(|(dead_letter_queue, most_receives)| Redrive {
        most_receives,
        dead_letter_queue,
    });
    QueueSettings {
        fifo: declared.fifo,
        visibility_s: seconds(declared.visibility).unwrap_or(settings.visibility_s),
        delay_s: seconds(declared.delay).unwrap_or(settings.delay_s),
        retention_s: seconds(declared.retention).or(settings.retention_s),
        redrive: redrive.or(settings.redrive.clone()),
        ..settings
    }
}

/// Why this queue cannot be what is declared: messages would be lost, or it is of the other kind.
fn contradiction(
    turn: &Turn<'_>,
    declared: &QueueDeclaration,
) -> rusqlite::Result<Option<Contradiction>> {
    let name = &declared.name;
    let Some(known) = registry::find(turn, name)? else {
        return Ok(None);
    };
    let against = |found: String, wanted: String| {
        Ok(Some(Contradiction {
            at: declared.at.clone(),
            found,
            wanted,
        }))
    };
    if known.configured && known.settings.fifo != declared.fifo {
        let is = if known.settings.fifo { "is" } else { "is not" };
        return against(
            format!("queue `local:{name}` is there and {is} FIFO"),
            "the queue as it is, or another name".to_owned(),
        );
    }
    let kept = known.settings.retention_s.map(Duration::from_secs);
    let shorter = |retention: &Duration| kept.is_none_or(|kept| *retention < kept);
    if let Some(retention) = declared.retention.filter(shorter) {
        let ms = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let until = StoreTime(turn.now.0.saturating_sub(ms));
        let old: i64 = turn
            .connection
            .prepare_cached(
                "SELECT count(*) FROM entries WHERE queue = ?1 AND sent_at <= ?2
                 AND coalesce(first_received_at, visible_at) <= ?2",
            )?
            .query_row(params![known.id, until], |row| row.get(0))?;
        if old > 0 {
            return against(
                format!("this retention would drop {old} of the messages in `local:{name}`"),
                "a longer one, or the queue purged first".to_owned(),
            );
        }
    }
    if let Some((_, most)) = &declared.redrive {
        let spent: i64 = turn
            .connection
            .prepare_cached(
                "SELECT count(*) FROM entries WHERE queue = ?1 AND receive_count >= ?2",
            )?
            .query_row(params![known.id, most], |row| row.get(0))?;
        let before = known.settings.redrive.map(|redrive| redrive.most_receives);
        if spent > 0 && before.is_none_or(|before| *most < before) {
            return against(
                format!(
                    "{spent} of the messages in `local:{name}` were received {most} times or more \
                     and would be dead-lettered"
                ),
                "more receives, or the queue empty".to_owned(),
            );
        }
    }
    Ok(None)
}
