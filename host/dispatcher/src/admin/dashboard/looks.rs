//! Who looks at what: the live views, each rendered once a second for all who follow it, and the
//! queues whose depth is worth a call. Pure: it is told `now`.

use dispatcher_core::clock::BootInstant;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A page that was asked for counts as looked at for this long: somebody without JavaScript reads it.
const GLANCE: Duration = Duration::from_secs(10);

/// How many views are followed at once: filters make any number of them.
const MOST: usize = 64;

/// A part of the dashboard that changes by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum View {
    /// Some queues, and the numbers of all together.
    Overview { filter: String, after: usize },
    /// One queue.
    Queue(String),
    /// Some dead-letter queues, and the jobs.
    DeadLetters { filter: String, after: usize },
    /// The attempts under way.
    Running { after: Option<String> },
    /// The versions of plugins.
    Plugins,
    /// The messages of a queue: how many wait, and what moves or removes them.
    Letters(String),
    /// One of these jobs.
    Job(String),
}

impl View {
    /// Whether it shows how much queues hold.
    pub(super) fn has_depths(&self) -> bool {
        matches!(
            self,
            Self::Overview { .. } | Self::DeadLetters { .. } | Self::Queue(_) | Self::Letters(_)
        )
    }

    /// Whom its charts are about: a queue, or all.
    pub(super) fn charted(&self) -> Option<Option<&str>> {
        match self {
            Self::Overview { .. } => Some(None),
            Self::Queue(queue) => Some(Some(queue)),
            _ => None,
        }
    }
}

/// A view as it is shown to some: those who may act are shown other buttons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SeenView {
    pub view: View,
    /// Why they may not act, where they may not.
    pub why_not: Option<&'static str>,
}

/// The parts of a view that change.
#[derive(Debug, Default)]
pub(super) struct ViewParts {
    /// Elements, each with an id.
    pub single: Vec<String>,
    pub list: Option<ListPart>,
}

impl From<Vec<String>> for ViewParts {
    fn from(single: Vec<String>) -> Self {
        Self { single, list: None }
    }
}

/// A list in which rows come and go.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListPart {
    /// What tells this list from one with other rows or another frame around them.
    pub shape: Vec<String>,
    /// The whole list, an element with an id.
    pub whole: String,
    /// Its rows, each an element with an id.
    pub rows: Vec<String>,
}

impl ListPart {
    fn is_shaped_as(&self, earlier: Option<&Self>) -> bool {
        earlier.is_some_and(|earlier| earlier.shape == self.shape)
    }

    /// The rows that are new since an earlier list with as many.
    fn new_rows(&self, earlier: Option<&Self>) -> String {
        let before = earlier.map_or(&[][..], |earlier| &earlier.rows);
        let rows = self.rows.iter().zip(before);
        let new = rows.filter(|(row, before)| row != before);
        new.map(|(row, _)| row.as_str()).collect()
    }
}

/// What is sent to all who follow a view.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Frame {
    /// The elements that change, each with an id.
    pub parts: Arc<[String]>,
    pub list: Option<Arc<ListPart>>,
    /// The newest point of its charts, as JSON.
    pub point: Option<Arc<str>>,
}

impl Frame {
    /// Server-sent events with what is new since an earlier frame of the same view.
    pub(super) fn events_after(&self, earlier: &Self) -> String {
        let same = |at: usize, part: &String| earlier.parts.get(at) == Some(part);
        let parts = self.parts.iter().enumerate();
        let new = parts.filter(|(at, part)| !same(*at, part));
        let mut html: String = new.map(|(_, part)| part.as_str()).collect();
        let mut rows = String::new();
        if let Some(list) = &self.list {
            let before = earlier.list.as_deref();
            if list.is_shaped_as(before) {
                rows = list.new_rows(before);
            } else {
                html.push_str(&list.whole);
            }
        }
        // A browser reads no row of a table behind other elements.
        let mut text = parts_event(&html) + &parts_event(&rows);
        if let Some(point) = &self.point
            && self.point != earlier.point
        {
            text.push_str(&format!("event: point\ndata: {point}\n\n"));
        }
        text
    }
}

fn parts_event(html: &str) -> String {
    if html.is_empty() {
        return String::new();
    }
    // Other ends of lines would end the data as well.
    let html = html.replace('\r', "&#13;");
    let lines = html.split('\n').map(|line| format!("data: {line}\n"));
    format!("event: parts\n{}\n", lines.collect::<String>())
}

/// One view.
#[derive(Debug)]
struct Look {
    frames: watch::Sender<Frame>,
    /// When a page of it was asked for.
    glanced: Option<BootInstant>,
}

/// All views that somebody looks at.
#[derive(Debug, Default)]
pub(super) struct Looks(BTreeMap<SeenView, Look>);

impl Looks {
    /// Somebody asks for a page of a view. Whether nobody looked at it before.
    pub(super) fn glance(&mut self, view: &SeenView, now: BootInstant) -> bool {
        self.forget(now);
        if !self.has_room_for(view) {
            return false;
        }
        let is_new = !self.0.contains_key(view);
        self.look(view).glanced = Some(now);
        is_new
    }

    /// Somebody follows a view; nothing if too many are followed.
    pub(super) fn follow(
        &mut self,
        view: &SeenView,
        now: BootInstant,
    ) -> Option<watch::Receiver<Frame>> {
        self.forget(now);
        if !self.has_room_for(view) {
            return None;
        }
        let look = self.look(view);
        if !look.is_followed() {
            // Nobody kept the last frame current.
            look.frames.send_replace(Frame::default());
        }
        Some(look.frames.subscribe())
    }

    /// Whether a view is looked at already or can be. Pages that were only asked for keep nobody from
    /// looking: the one that was asked for longest ago is forgotten.
    fn has_room_for(&mut self, view: &SeenView) -> bool {
        if self.0.len() < MOST || self.0.contains_key(view) {
            return true;
        }
        let glances = self.0.iter().filter(|(_, look)| !look.is_followed());
        let oldest = glances.min_by_key(|(_, look)| look.glanced);
        let oldest = oldest.map(|(view, _)| view.clone());
        oldest.is_some_and(|oldest| self.0.remove(&oldest).is_some())
    }

    fn look(&mut self, view: &SeenView) -> &mut Look {
        self.0.entry(view.clone()).or_insert_with(|| Look {
            frames: watch::Sender::default(),
            glanced: None,
        })
    }

    /// The views that somebody looks at now.
    pub(super) fn views(&mut self, now: BootInstant) -> Vec<SeenView> {
        self.forget(now);
        self.0.keys().cloned().collect()
    }

    /// The views that somebody follows now.
    pub(super) fn followed(&self) -> Vec<SeenView> {
        let followed = self.0.iter().filter(|(_, look)| look.is_followed());
        followed.map(|(view, _)| view.clone()).collect()
    }

    /// Sends a frame to all who follow a view, unless it is what they have.
    pub(super) fn publish(&self, view: &SeenView, frame: Frame) {
        if let Some(look) = self.0.get(view) {
            look.frames.send_if_modified(|sent| {
                let is_other = *sent != frame;
                *sent = frame;
                is_other
            });
        }
    }

    fn forget(&mut self, now: BootInstant) {
        self.0.retain(|_, look| {
            let glanced = look.glanced.is_some_and(|at| now.since(at) < GLANCE);
            glanced || look.is_followed()
        });
    }
}

impl Look {
    fn is_followed(&self) -> bool {
        self.frames.receiver_count() > 0
    }
}

/// What the depths of queues cost that were asked for while somebody looked.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct DepthCost {
    /// Calls since the start.
    pub calls: u64,
    /// Calls of the last time.
    pub last_calls: u64,
    /// What all that is followed costs in a day, in US dollars; nothing where calls are not billed.
    pub dollars_per_day: Option<f64>,
}

/// How often depths are asked for while somebody looks.
pub(super) const DEPTHS_EVERY: Duration = Duration::from_secs(5);
/// The same where calls are billed.
pub(super) const BILLED_DEPTHS_EVERY: Duration = Duration::from_secs(15);

/// For how long a billed queue counts as followed after it was asked: until it is asked again, with time
/// for the calls of others.
const BILLED: Duration = Duration::from_secs(20);

/// Which of its answers a queue was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DepthPurpose {
    /// A list of queues shows it.
    List,
    /// A page of its messages shows it.
    Messages,
}

/// A queue that was asked, and why.
pub(super) type AskedQueue = (DepthPurpose, String);

/// The calls for depths, and the queues that they are billed for.
#[derive(Debug, Default)]
pub(super) struct DepthBill {
    calls: u64,
    last_calls: u64,
    /// When each was asked last, and what a million calls for it cost in US dollars.
    billed: BTreeMap<AskedQueue, (BootInstant, f64)>,
}

impl DepthBill {
    /// Adds some calls, which asked these queues; with the price of each that is billed.
    pub(super) fn add(
        &mut self,
        calls: usize,
        billed: impl IntoIterator<Item = (AskedQueue, f64)>,
        now: BootInstant,
    ) {
        self.last_calls = calls as u64;
        self.calls += self.last_calls;
        self.billed.retain(|_, (at, _)| now.since(*at) < BILLED);
        let billed = billed.into_iter();
        self.billed
            .extend(billed.map(|(queue, price)| (queue, (now, price))));
    }

    /// What they cost, while the queues of the last seconds are followed.
    pub(super) fn cost(&self, now: BootInstant) -> DepthCost {
        let times = 86_400.0 / BILLED_DEPTHS_EVERY.as_secs_f64();
        let asked = self.billed.values();
        let asked = asked.filter(|(at, _)| now.since(*at) < BILLED);
        let prices = asked.map(|(_, price)| *price);
        let dollars = prices.reduce(|all, one| all + one);
        DepthCost {
            calls: self.calls,
            last_calls: self.last_calls,
            dollars_per_day: dollars.map(|dollars| dollars / 1e6 * times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(seconds))
    }

    fn queue(name: &str) -> SeenView {
        SeenView {
            view: View::Queue(name.to_owned()),
            why_not: None,
        }
    }

    #[test]
    fn two_hundred_tabs_are_one_view() {
        let mut looks = Looks::default();
        let tabs: Vec<_> = (0..200)
            .filter_map(|_| looks.follow(&queue("a"), at(0)))
            .collect();
        assert_eq!(tabs.len(), 200);
        assert_eq!(looks.views(at(1_000)), [queue("a")]);
        assert_eq!(looks.followed(), [queue("a")]);
        drop(tabs);
        assert!(looks.followed().is_empty());
        assert!(looks.views(at(1_000)).is_empty());
    }

    #[test]
    fn a_page_counts_as_looked_at_for_some_seconds() {
        let mut looks = Looks::default();
        assert!(looks.glance(&queue("a"), at(0)));
        assert!(!looks.glance(&queue("a"), at(5)));
        assert_eq!(looks.views(at(14)), [queue("a")]);
        assert!(looks.followed().is_empty(), "nobody follows it");
        assert!(looks.views(at(15)).is_empty());
    }

    #[test]
    fn a_frame_reaches_all_who_follow_and_an_equal_one_is_not_sent_again() {
        let mut looks = Looks::default();
        let mut tabs = [0; 2].map(|_| looks.follow(&queue("a"), at(0)).expect("there is room"));
        let frame = Frame {
            parts: ["x".to_owned()].into(),
            ..Frame::default()
        };
        for expected in [true, false] {
            looks.publish(&queue("a"), frame.clone());
            for tab in &mut tabs {
                assert_eq!(tab.has_changed().ok(), Some(expected));
                assert_eq!(*tab.borrow_and_update(), frame);
            }
        }
    }

    #[test]
    fn whoever_follows_what_nobody_followed_is_sent_nothing_old() {
        let mut looks = Looks::default();
        looks.glance(&queue("a"), at(0));
        let first = looks.follow(&queue("a"), at(0)).expect("there is room");
        let old = Frame {
            parts: ["old".to_owned()].into(),
            ..Frame::default()
        };
        looks.publish(&queue("a"), old.clone());
        let beside = looks.follow(&queue("a"), at(1)).expect("there is room");
        assert_eq!(*beside.borrow(), old, "it is current while it is followed");
        drop((first, beside));
        let later = looks.follow(&queue("a"), at(9)).expect("there is room");
        assert_eq!(*later.borrow(), Frame::default());
    }

    #[test]
    fn a_stream_has_what_is_new_in_lines() {
        let frame = |parts: &[&str], point: Option<&str>| Frame {
            parts: parts.iter().map(ToString::to_string).collect(),
            point: point.map(Into::into),
            list: None,
        };
        let first = frame(&["<p>a</p>", "<p>b</p>"], Some("[1]"));
        let all = "event: parts\ndata: <p>a</p><p>b</p>\n\nevent: point\ndata: [1]\n\n";
        assert_eq!(first.events_after(&Frame::default()), all);
        assert_eq!(first.events_after(&first), "");
        let second = frame(&["<p>a</p>", "<p>c\nd\re</p>"], Some("[1]"));
        let lines = "event: parts\ndata: <p>c\ndata: d&#13;e</p>\n\n";
        assert_eq!(second.events_after(&first), lines);
    }

    #[test]
    fn a_list_is_sent_as_a_whole_where_rows_have_come_or_gone() {
        let frame = |rows: &[(&str, &str)]| Frame {
            parts: [format!("<{}>", rows.len())].into(),
            list: Some(Arc::new(ListPart {
                shape: rows.iter().map(|(key, _)| (*key).to_owned()).collect(),
                whole: "<all>".to_owned(),
                rows: rows.iter().map(|(_, row)| (*row).to_owned()).collect(),
            })),
            ..Frame::default()
        };
        let first = frame(&[("a", "<a 1>"), ("b", "<b 1>")]);
        let changed = frame(&[("a", "<a 1>"), ("b", "<b 2>")]);
        let gone = frame(&[("b", "<b 2>")]);
        let event = |html: &str| format!("event: parts\ndata: {html}\n\n");
        assert_eq!(first.events_after(&Frame::default()), event("<2><all>"));
        assert_eq!(first.events_after(&first), "");
        assert_eq!(changed.events_after(&first), event("<b 2>"));
        assert_eq!(gone.events_after(&changed), event("<1><all>"));
        let mut both = changed.clone();
        both.parts = ["<other>".to_owned()].into();
        let apart = event("<other>") + &event("<b 2>");
        assert_eq!(both.events_after(&first), apart, "rows are apart");
    }

    #[test]
    fn the_number_of_views_is_bounded() {
        let mut looks = Looks::default();
        let names = (0..MOST).map(|number| queue(&number.to_string()));
        let followed: Vec<_> = names.map(|view| looks.follow(&view, at(0))).collect();
        assert!(followed.iter().all(Option::is_some));
        assert!(looks.follow(&queue("more"), at(0)).is_none());
        assert!(!looks.glance(&queue("more"), at(0)));
        assert!(looks.follow(&queue("0"), at(0)).is_some());
    }

    #[test]
    fn pages_that_were_only_asked_for_keep_nobody_from_following() {
        let mut looks = Looks::default();
        let kept = looks.follow(&queue("kept"), at(0));
        for number in 0..2 * MOST {
            assert!(looks.glance(&queue(&number.to_string()), at(1)));
        }
        let new = looks.follow(&queue("new"), at(2));
        assert!(kept.is_some() && new.is_some());
        assert_eq!(looks.views(at(2)).len(), MOST);
        assert_eq!(looks.followed(), [queue("kept"), queue("new")]);
    }

    #[test]
    fn the_cost_of_depths_is_that_of_all_billed_queues_that_are_followed() {
        let mut bill = DepthBill::default();
        bill.add(3, [], at(0));
        let free = bill.cost(at(0));
        assert_eq!((free.calls, free.dollars_per_day), (3, None));
        let asked = |name: &str| ((DepthPurpose::List, name.to_owned()), 0.4);
        bill.add(2, [asked("a"), asked("b")], at(10));
        // Free queues are asked more often.
        bill.add(1, [], at(15));
        let billed = bill.cost(at(15));
        assert_eq!((billed.calls, billed.last_calls), (6, 1));
        let dollars = billed.dollars_per_day.expect("it is billed");
        assert!((dollars - 0.004_608).abs() < 1e-9, "{dollars}");
        bill.add(1, [asked("a")], at(26));
        let dollars = bill.cost(at(26)).dollars_per_day.expect("it is billed");
        assert!((dollars - 0.004_608).abs() < 1e-9, "each once: {dollars}");
        assert_eq!(bill.cost(at(60)).dollars_per_day, None, "nobody looks");
    }
}
