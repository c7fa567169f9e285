//! Figures of peers as tables in Markdown: each as measured, then as multiples of one of them. Pure.

use super::support::figures::Samples;

/// What one peer came to.
#[derive(Default)]
pub(crate) struct PeerRow {
    pub name: String,
    /// In turns with the other peers; the table has the medians.
    pub drains: Vec<DrainFigures>,
    pub idle_mib: f64,
    /// Of one core.
    pub idle_percent: f64,
    pub wakes: Option<Samples>,
    pub start_ms: f64,
    pub stop_ms: f64,
}

/// How one drain of a queue went.
pub(crate) struct DrainFigures {
    pub per_second: f64,
    /// CPU-seconds for each 10,000 messages.
    pub cpu_s: f64,
    pub server_cpu_s: f64,
    /// For each message.
    pub calls: f64,
    pub peak_mib: f64,
    /// What else ran meanwhile, of all cores.
    pub others_percent: f64,
}

impl PeerRow {
    /// The median of a figure.
    fn drain(&self, read: fn(&DrainFigures) -> f64) -> f64 {
        Samples::of_ms(self.drains.iter().map(read)).at(50)
    }

    fn wake(&self, percent: usize) -> f64 {
        self.wakes.as_ref().map_or(0.0, |wakes| wakes.at(percent))
    }
}

/// One figure of a row: its heading, how it is read, and how many digits it has.
type Column = (&'static str, fn(&PeerRow) -> f64, usize);

const COLUMNS: [Column; 11] = [
    ("messages/s", |row| row.drain(|drain| drain.per_second), 0),
    (
        "client CPU-s per 10,000",
        |row| row.drain(|drain| drain.cpu_s),
        2,
    ),
    ("{} per message", |row| row.drain(|drain| drain.calls), 2),
    ("peak MiB", |row| row.drain(|drain| drain.peak_mib), 0),
    ("idle MiB", |row| row.idle_mib, 0),
    ("idle, % of a core", |row| row.idle_percent, 2),
    ("wake-up p50 ms", |row| row.wake(50), 1),
    ("p99 ms", |row| row.wake(99), 1),
    ("start to first message ms", |row| row.start_ms, 0),
    ("SIGTERM to exit ms", |row| row.stop_ms, 0),
    (
        "server's CPU-s per 10,000",
        |row| row.drain(|drain| drain.server_cpu_s),
        2,
    ),
];

/// Peers of one run.
pub(crate) struct PeerTable {
    pub title: String,
    /// What the server counts.
    pub calls: String,
    pub rows: Vec<PeerRow>,
}

impl PeerTable {
    /// Prints it twice: as measured, and as multiples of the row of this name.
    pub(crate) fn print(&self, base: &str) {
        println!("\n**{}**\n", self.title);
        self.heading();
        for row in &self.rows {
            let cells = COLUMNS.map(|(_, read, digits)| format!("{:.digits$}", read(row)));
            println!("| {} | {} |", row.name, cells.join(" | "));
        }
        let Some(base) = self.rows.iter().find(|row| row.name == base) else {
            return;
        };
        println!("\n{}, as multiples of `{}`\n", self.title, base.name);
        self.heading();
        for row in &self.rows {
            let cells = COLUMNS.map(|(_, read, _)| ratio(read(row), read(base)));
            println!("| {} | {} |", row.name, cells.join(" | "));
        }
        let drains = self.rows.iter().flat_map(|row| &row.drains);
        let others = Samples::of_ms(drains.map(|drain| drain.others_percent));
        println!(
            "\nMessages a second in each of {} rounds: {}.",
            base.drains.len(),
            self.rows.iter().map(rounds).collect::<Vec<_>>().join("; ")
        );
        println!(
            "Other work took {:.0} to {:.0} % of the machine meanwhile.",
            others.at(0),
            others.at(100)
        );
    }

    fn heading(&self) {
        let names = COLUMNS.map(|(name, ..)| name.replace("{}", &self.calls));
        println!("| | {} |", names.join(" | "));
        println!("| --- |{}", " --- |".repeat(COLUMNS.len()));
    }
}

/// All rates of a peer, in their order.
fn rounds(row: &PeerRow) -> String {
    let rates = row
        .drains
        .iter()
        .map(|drain| format!("{:.0}", drain.per_second));
    format!("{} {}", row.name, rates.collect::<Vec<_>>().join(", "))
}

/// In two significant digits, where there is something to divide by.
fn ratio(of: f64, by: f64) -> String {
    if by <= 0.0 {
        return "–".to_owned();
    }
    let times = of / by;
    let digits = if times < 0.1 {
        3
    } else if times < 1.0 {
        2
    } else {
        usize::from(times < 10.0)
    };
    format!("{times:.digits$}×")
}
