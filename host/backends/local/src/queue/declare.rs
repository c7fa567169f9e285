//! Queues that the configuration declares. They are created, or changed to match their declarations
//! if no message is lost. Pure steps that take `now` as an argument.

use super::look::queue_id;
use super::registry;
use super::settings::{QueueSettings, Redrive};
use super::time::StoreTime;
use super::turn::Turn;
use dispatcher_core::backend::{Contradiction, QueueDeclaration};
use rusqlite::params;
use std::time::Duration;

/// Creates or changes all of these queues, or none if one contradicts an existing queue.
pub(super) fn declare(
    turn: &mut Turn<'_>,
    queues: &[QueueDeclaration],
) -> rusqlite::Result<Vec<Contradiction>> {
    let contradictions = contradictions(turn, queues)?;
    if !contradictions.is_empty() {
        return Ok(contradictions);
    }
    // Queues without a redrive policy come first: a dead-letter queue is created by its own
    // declaration.
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

/// Returns the contradictions between these declarations and the existing queues.
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

/// Returns the settings, overridden by those that are declared.
fn applied(declared: &QueueDeclaration, settings: QueueSettings) -> QueueSettings {
    let redrive = declared
        .redrive
        .clone()
        .map(|(dead_letter_queue, most_receives)| Redrive {
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

fn seconds(time: Option<Duration>) -> Option<u64> {
    time.map(|time| time.as_secs())
}

/// Returns why the queue cannot become what is declared: messages would be lost, or one of the two
/// is FIFO and the other is not.
fn contradiction(
    turn: &Turn<'_>,
    declared: &QueueDeclaration,
) -> rusqlite::Result<Option<Contradiction>> {
    let name = &declared.name;
    let Some(known) = registry::find(turn, name)? else {
        return Ok(None);
    };
    if known.configured && known.settings.fifo != declared.fifo {
        let is = if known.settings.fifo { "is" } else { "is not" };
        return Ok(Some(against(
            declared,
            format!("queue `local:{name}` already exists and {is} FIFO"),
            "the queue as it is, or another name",
        )));
    }
    let kept = known.settings.retention_s.map(Duration::from_secs);
    if let Some(retention) = declared
        .retention
        .filter(|retention: &Duration| kept.is_none_or(|kept| *retention < kept))
    {
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
            return Ok(Some(against(
                declared,
                format!("this retention would drop {old} of the messages in `local:{name}`"),
                "a longer one, or the queue purged first",
            )));
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
            return Ok(Some(against(
                declared,
                format!(
                    "{spent} of the messages in `local:{name}` were received {most} times or more \
                     and would be dead-lettered"
                ),
                "more receives, or the queue empty",
            )));
        }
    }
    Ok(None)
}

fn against(declared: &QueueDeclaration, found: String, wanted: &str) -> Contradiction {
    Contradiction {
        at: declared.at.clone(),
        found,
        wanted: wanted.to_owned(),
    }
}
