//! The views that clients look at: each live view is rendered once a second for all its followers,
//! and only queues in view are asked for their depth. Pure: the caller passes `now`.

use dispatcher_core::clock::BootInstant;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a requested page counts as viewed: a user without JavaScript may be reading it.
const GLANCE: Duration = Duration::from_secs(10);

/// The maximum number of views that are followed at once: filters can create any number of them.
const MOST: usize = 64;

/// A part of the dashboard that updates by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum View {
    /// A page of the list of queues, and the numbers of all queues together.
    Overview { filter: String, after: usize },
    /// One queue.
    Queue(String),
    /// A page of the list of dead-letter queues, and the jobs.
    DeadLetters { filter: String, after: usize },
    /// The running attempts.
    Running { after: Option<String> },
    /// The processes of the fleet.
    Fleet,
    /// The versions of plugins.
    Plugins,
    /// The messages of a queue: how many wait, and the jobs that move or remove them.
    Letters(String),
    /// One of these jobs.
    Job(String),
}

impl View {
    /// Returns whether it shows the depths of queues.
    pub(super) fn has_depths(&self) -> bool {
        matches!(
            self,
            Self::Overview { .. } | Self::DeadLetters { .. } | Self::Queue(_) | Self::Letters(_)
        )
    }

    /// Returns the subject of its charts: one queue, or all queues (`None`).
    pub(super) fn charted(&self) -> Option<Option<&str>> {
        match self {
            Self::Overview { .. } => Some(None),
            Self::Queue(queue) => Some(Some(queue)),
            _ => None,
        }
    }
}

/// A view for one kind of caller: callers who may act see other buttons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SeenView {
    pub view: View,
    /// The reason why the caller may not act, or `None` if it may.
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

/// A list whose rows change.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListPart {
    /// A key that changes when the list gets other rows or another frame.
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

    /// Returns the rows that differ from an earlier list of the same shape.
    fn new_rows(&self, earlier: Option<&Self>) -> String {
        let before = earlier.map_or(&[][..], |earlier| &earlier.rows);
        let rows = self.rows.iter().zip(before);
        let new = rows.filter(|(row, before)| row != before);
        new.map(|(row, _)| row.as_str()).collect()
    }
}

/// The content that is sent to all followers of a view.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Frame {
    /// The elements that change, each with an id.
    pub parts: Arc<[String]>,
    pub list: Option<Arc<ListPart>>,
    /// The newest point of its charts, as JSON.
    pub point: Option<Arc<str>>,
}

impl Frame {
    /// Returns server-sent events with the changes since an earlier frame of the same view.
    pub(super) fn events_after(&self, earlier: &Self) -> String {
        let parts = self.parts.iter().enumerate();
        let new = parts.filter(|(at, part)| earlier.parts.get(*at) != Some(*part));
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
        // A browser cannot parse table rows that follow other elements.
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
    // A carriage return would also end the line of data.
    let html = html.replace('\r', "&#13;");
    let lines = html.split('\n').map(|line| format!("data: {line}\n"));
    format!("event: parts\n{}\n", lines.collect::<String>())
}

/// The state of one view.
#[derive(Debug)]
struct Look {
    frames: watch::Sender<Frame>,
    /// The last time when a page of it was requested.
    glanced: Option<BootInstant>,
}

/// All views that are looked at.
#[derive(Debug, Default)]
pub(super) struct Looks(BTreeMap<SeenView, Look>);

impl Looks {
    /// Records that a page of a view was requested. Returns whether the view is new.
    pub(super) fn glance(&mut self, view: &SeenView, now: BootInstant) -> bool {
        self.forget(now);
        if !self.has_room_for(view) {
            return false;
        }
        let is_new = !self.0.contains_key(view);
        self.look(view).glanced = Some(now);
        is_new
    }

    /// Follows a view, or returns `None` if too many views are followed.
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
            // The last frame was not kept current.
            look.frames.send_replace(Frame::default());
        }
        Some(look.frames.subscribe())
    }

    /// Returns whether a view is already in the list or can be added. A view that was only
    /// requested does not prevent this: the one that was requested longest ago is removed.
    fn has_room_for(&mut self, view: &SeenView) -> bool {
        if self.0.len() < MOST || self.0.contains_key(view) {
            return true;
        }
        let glances = self.0.iter().filter(|(_, look)| !look.is_followed());
        let oldest = glances
            .min_by_key(|(_, look)| look.glanced)
            .map(|(view, _)| view.clone());
        oldest.is_some_and(|oldest| self.0.remove(&oldest).is_some())
    }

    fn look(&mut self, view: &SeenView) -> &mut Look {
        self.0.entry(view.clone()).or_insert_with(|| Look {
            frames: watch::Sender::default(),
            glanced: None,
        })
    }

    /// Returns the views that are looked at now.
    pub(super) fn views(&mut self, now: BootInstant) -> Vec<SeenView> {
        self.forget(now);
        self.0.keys().cloned().collect()
    }

    /// Returns the views that are followed now.
    pub(super) fn followed(&self) -> Vec<SeenView> {
        let followed = self.0.iter().filter(|(_, look)| look.is_followed());
        followed.map(|(view, _)| view.clone()).collect()
    }

    /// Sends a frame to all followers of a view, unless it is unchanged.
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

/// The cost of the depths that were requested for the dashboard.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct DepthCost {
    /// The number of calls since the start.
    pub calls: u64,
    /// The number of calls of the last round.
    pub last_calls: u64,
    /// The cost per day of all followed depths, in US dollars; `None` if calls are not billed.
    pub dollars_per_day: Option<f64>,
}

/// The interval between requests for depths while a page is open.
pub(super) const DEPTHS_EVERY: Duration = Duration::from_secs(5);
/// The interval between requests for depths if calls are billed.
pub(super) const BILLED_DEPTHS_EVERY: Duration = Duration::from_secs(15);

/// How long a billed queue counts as followed after its depth was requested: until the next
/// request, plus time for the calls for other queues.
const BILLED: Duration = Duration::from_secs(20);

/// The reason for asking a queue for its depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DepthPurpose {
    /// A list of queues shows the depth.
    List,
    /// A page of its messages shows the depth.
    Messages,
}

/// A queue whose depth was requested, and the reason.
pub(super) type AskedQueue = (DepthPurpose, String);

/// The number of calls for depths, and the queues that they are billed for.
#[derive(Debug, Default)]
pub(super) struct DepthBill {
    calls: u64,
    last_calls: u64,
    /// The time of the last call for each queue, and the price of a million calls in US dollars.
    billed: BTreeMap<AskedQueue, (BootInstant, f64)>,
}

impl DepthBill {
    /// Adds a number of calls, with the price for each billed queue.
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

    /// Returns the cost, assuming that the recently asked queues stay in view.
    pub(super) fn cost(&self, now: BootInstant) -> DepthCost {
        let times = 86_400.0 / BILLED_DEPTHS_EVERY.as_secs_f64();
        let asked = self
            .billed
            .values()
            .filter(|(at, _)| now.since(*at) < BILLED);
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

    fn frame(parts: &[&str]) -> Frame {
        Frame {
            parts: parts.iter().map(ToString::to_string).collect(),
            point: Some("[1]".into()),
            list: None,
        }
    }

    #[test]
    fn a_stream_has_what_is_new_in_lines() {
        let first = frame(&["<p>a</p>", "<p>b</p>"]);
        let all = "event: parts\ndata: <p>a</p><p>b</p>\n\nevent: point\ndata: [1]\n\n";
        assert_eq!(first.events_after(&Frame::default()), all);
        assert_eq!(first.events_after(&first), "");
        let second = frame(&["<p>a</p>", "<p>c\nd\re</p>"]);
        let lines = "event: parts\ndata: <p>c\ndata: d&#13;e</p>\n\n";
        assert_eq!(second.events_after(&first), lines);
    }

    fn list(rows: &[(&str, &str)]) -> Frame {
        Frame {
            parts: [format!("<{}>", rows.len())].into(),
            list: Some(Arc::new(ListPart {
                shape: rows.iter().map(|(key, _)| (*key).to_owned()).collect(),
                whole: "<all>".to_owned(),
                rows: rows.iter().map(|(_, row)| (*row).to_owned()).collect(),
            })),
            ..Frame::default()
        }
    }

    fn event(html: &str) -> String {
        format!("event: parts\ndata: {html}\n\n")
    }

    #[test]
    fn a_list_is_sent_as_a_whole_where_rows_have_come_or_gone() {
        let first = list(&[("a", "<a 1>"), ("b", "<b 1>")]);
        let changed = list(&[("a", "<a 1>"), ("b", "<b 2>")]);
        let gone = list(&[("b", "<b 2>")]);
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

    fn asked(name: &str) -> (AskedQueue, f64) {
        ((DepthPurpose::List, name.to_owned()), 0.4)
    }

    #[test]
    fn the_cost_of_depths_is_that_of_all_billed_queues_that_are_followed() {
        let mut bill = DepthBill::default();
        bill.add(3, [], at(0));
        let free = bill.cost(at(0));
        assert_eq!((free.calls, free.dollars_per_day), (3, None));
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
