//! Draws the pictures of `docs/algorithms.md`: who passes over time. The same requests go through each algorithm, decided
//! by the library's own core.
//!
//! Run it with: cargo run --example plots

use std::error::Error;
use std::time::Duration;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tallygate::Policy;
use tallygate::decide::{
    Ask, Bucket, Charge, Event, Head, Hold, Ledger, Need, Undo, Version, decide, happen,
};
use tallygate::policy::Algorithm;

const SECOND_US: i64 = 1_000_000;
const MINUTE: Duration = Duration::from_secs(60);
const END_S: i64 = 240;
/// The time for which a slot is held before it is released.
const HELD_S: i64 = 12;

// One solid background, so that the picture reads the same on a light page and on a dark one.
const PAPER: RGBColor = RGBColor(250, 250, 247);
const INK: RGBColor = RGBColor(34, 40, 49);
const FAINT: RGBColor = RGBColor(108, 117, 125);
const GRID: RGBColor = RGBColor(222, 222, 216);
const PASSED: RGBColor = RGBColor(0, 109, 91);
const BLOCKED: RGBColor = RGBColor(196, 60, 48);
const COUNTED: RGBColor = RGBColor(138, 161, 177);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/algorithms");
    std::fs::create_dir_all(folder)?;
    for (name, svg) in plots()? {
        std::fs::write(format!("{folder}/{name}"), svg)?;
        println!("wrote {folder}/{name}");
    }
    Ok(())
}

/// Each picture with the name of its file.
///
/// # Errors
/// A picture that cannot be drawn.
pub fn plots() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let six = |algorithm| Policy::new(algorithm, 6, MINUTE, None);
    let plots = [
        (six(Algorithm::SlidingLog)?, "6 in any minute"),
        (six(Algorithm::FixedWindow)?, "6 in each minute"),
        (six(Algorithm::SlidingCounter)?.with_slots(Some(3)), "6 in a minute of 3 slots"),
        (six(Algorithm::TokenBucket)?, "6 tokens, one more every 10 seconds"),
        (six(Algorithm::LeakyBucket)?, "room for 6, one drains every 10 seconds"),
        (six(Algorithm::LeakyQueue)?, "room for 6, one is served every 10 seconds"),
        (six(Algorithm::Uniform)?, "one every 10 seconds"),
        (six(Algorithm::Distinct)?, "6 different members in a minute"),
        (Policy::concurrency(3, MINUTE)?, "3 at once, each released after 12 seconds"),
    ];
    plots.into_iter().map(|(policy, terms)| Ok((file(&policy), draw(policy, terms)?))).collect()
}

fn file(policy: &Policy) -> String {
    format!("{}.svg", policy.algorithm())
}

/// When a request comes, and whom it is about: a burst of eight by four, one every five seconds by ever new ones, a burst
/// of twelve by three over the edge of a minute, and one every twelve seconds.
fn requests() -> Vec<(i64, String)> {
    let burst = (0..8).map(|n| (10_000 + 1_000 * n, format!("a{}", n % 4)));
    let crowd = (0..16).map(|n| (40_000 + 5_000 * n, format!("b{n}")));
    let edge = (0..12).map(|n| (171_000 + 1_500 * n, format!("c{}", n % 3)));
    let calm = (0..4).map(|n| (200_000 + 12_000 * n, format!("d{n}")));
    burst.chain(crowd).chain(edge).chain(calm).map(|(ms, member)| (ms * 1_000, member)).collect()
}

// ---- what is decided ----

struct Mark {
    at_s: f64,
    passed: bool,
    /// When its turn comes, where it passes into a queue.
    turn_s: f64,
}

/// The units that count over time: seconds and units.
type Curve = Vec<(f64, f64)>;

/// The fate of each request, and how much counted over time.
fn run(policy: Policy) -> Result<(Vec<Mark>, Curve), Need> {
    let version = [Version { version: 1, policy, changed_us: 0 }];
    let mut book = Book { version, head: Head::default(), holds: Vec::new(), rows: Vec::new() };
    let held = policy.algorithm() == Algorithm::Concurrency;
    let (mut marks, mut counted, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    let mut requests = requests().into_iter().peekable();
    // Four looks in a second, so that steps are steep.
    for now_us in (0..=END_S * SECOND_US).step_by(SECOND_US as usize / 4) {
        while let Some(charge) = slots.pop_if(|slot: &mut Charge| slot.at_us + HELD_S * SECOND_US <= now_us) {
            book.release(charge, now_us)?;
        }
        if let Some((_, member)) = requests.next_if(|request| request.0 == now_us) {
            let member = (policy.algorithm() == Algorithm::Distinct).then_some(member.as_str());
            let (passed, delay_us, charge) =
                book.check(&Ask { cost: 1, member, ..Ask::default() }, now_us)?;
            marks.push(Mark { at_s: seconds(now_us), passed, turn_s: seconds(now_us + delay_us) });
            if held && passed {
                slots.insert(0, charge);
            }
        }
        counted.push((seconds(now_us), book.counted(now_us)?));
    }
    Ok((marks, counted))
}

fn seconds(us: i64) -> f64 {
    us as f64 / SECOND_US as f64
}

/// A bucket with its whole ledger.
struct Book {
    version: [Version; 1],
    head: Head,
    holds: Vec<Hold>,
    rows: Vec<(i64, i64)>,
}

impl Book {
    fn bucket(&self) -> Bucket<'_> {
        Bucket { versions: &self.version, head: &self.head, holds: &self.holds }
    }

    /// Did it pass, how long does it wait for its turn, and what did it charge?
    fn check(&mut self, ask: &Ask<'_>, now_us: i64) -> Result<(bool, i64, Charge), Need> {
        let outcome = decide(self.bucket(), self, ask, now_us)?;
        self.head = outcome.head;
        self.rows.push((now_us, outcome.head.spent_total));
        self.holds.extend(outcome.hold(ask.member));
        let charge = Charge {
            seq: outcome.head.seq,
            at_us: now_us,
            spent: outcome.spent,
            blocked: outcome.blocked,
            reserved: false,
            taken: false,
            member: ask.member.is_some(),
            ends_us: outcome.ends_us,
        };
        Ok((!outcome.blocked, outcome.delay_us.unwrap_or(0), charge))
    }

    fn release(&mut self, charge: Charge, now_us: i64) -> Result<(), Need> {
        let happened = happen(self.bucket(), self, Event::Undo(Undo::Release, charge), now_us)?;
        self.head = happened.head;
        self.rows.push((now_us, happened.head.spent_total));
        self.holds.retain(|hold| hold.seq != charge.seq);
        Ok(())
    }

    /// The part of the limit that is taken. A level has fractions.
    fn counted(&self, now_us: i64) -> Result<f64, Need> {
        let policy = self.version[0].policy;
        let peek = decide(self.bucket(), self, &Ask::default(), now_us)?;
        Ok(match peek.head.level {
            // A token of six in a minute is ten seconds, in microseconds.
            Some(level) => policy.limit() as f64 - level as f64 / (policy.window_us() / policy.rate()) as f64,
            None => (policy.limit() - peek.remaining) as f64,
        })
    }
}

impl Ledger for Book {
    fn total_before(&self, at_us: i64) -> Result<i64, Need> {
        Ok(self.rows.iter().rev().find(|row| row.0 < at_us).map_or(0, |row| row.1))
    }

    fn reached(&self, total: i64) -> Result<Option<i64>, Need> {
        Ok(self.rows.iter().find(|row| row.1 >= total).map(|row| row.0))
    }

    fn strikes_before(&self, _: i64) -> Result<i64, Need> {
        Ok(0)
    }
}

// ---- what is drawn ----

fn draw(policy: Policy, terms: &str) -> Result<String, Box<dyn Error>> {
    let (marks, counted) =
        run(policy).map_err(|need| format!("a whole ledger knows everything, but not {need:?}"))?;
    let limit = policy.limit() as f64;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (760, 260)).into_drawing_area();
        root.fill(&PAPER)?;
        let text = |size: i32, color: &RGBColor, h| {
            ("sans-serif", size).into_font().color(color).pos(Pos::new(h, VPos::Center))
        };
        let passed = marks.iter().filter(|mark| mark.passed).count();
        let heading = format!("{}: {terms}", policy.algorithm());
        root.draw_text(&heading, &text(17, &INK, HPos::Left), (16, 20))?;
        let queue = policy.algorithm() == Algorithm::LeakyQueue;
        let outcome =
            format!("{passed} of {} pass{}", marks.len(), if queue { ", each in its turn" } else { "" });
        root.draw_text(&outcome, &text(14, &FAINT, HPos::Right), (744, 20))?;

        // Above the limit there is room for two rows of marks, and for one of turns.
        let row = |n: f64| limit * (1.0 + 0.2 * n);
        let rows = if queue { 3.0 } else { 2.0 };
        let mut chart = ChartBuilder::on(&root)
            .margin_top(36)
            .margin_bottom(34)
            .margin_left(70)
            .margin_right(34)
            .build_cartesian_2d(0.0..END_S as f64, 0.0..row(rows + 0.6))?;
        for minute in 0..=END_S / 60 {
            let at_s = (60 * minute) as f64;
            chart.draw_series(LineSeries::new([(at_s, 0.0), (at_s, row(rows + 0.6))], GRID))?;
            let (x, y) = chart.backend_coord(&(at_s, 0.0));
            root.draw_text(&format!("{minute}:00"), &text(13, &FAINT, HPos::Center), (x, y + 14))?;
        }
        chart.draw_series(AreaSeries::new(counted.iter().copied(), 0.0, COUNTED.mix(0.35)))?;
        chart.draw_series(LineSeries::new(counted, COUNTED.stroke_width(2)))?;
        chart.draw_series(LineSeries::new([(0.0, limit), (END_S as f64, limit)], FAINT))?;
        let at = |mark: &Mark| (mark.at_s, row(if mark.passed { 2.0 } else { 1.0 }));
        chart.draw_series(
            marks.iter().filter(|mark| mark.passed).map(|mark| Circle::new(at(mark), 3, PASSED.filled())),
        )?;
        chart.draw_series(
            marks
                .iter()
                .filter(|mark| !mark.passed)
                .map(|mark| Cross::new(at(mark), 3, BLOCKED.stroke_width(2))),
        )?;
        let turns = marks.iter().filter(|mark| queue && mark.passed && mark.turn_s <= END_S as f64);
        chart.draw_series(
            turns.map(|mark| TriangleMarker::new((mark.turn_s, row(3.0)), 5, PASSED.filled())),
        )?;

        let (_, top) = chart.backend_coord(&(0.0, limit));
        let labels =
            [("turn", row(3.0), PASSED), ("passes", row(2.0), PASSED), ("blocked", row(1.0), BLOCKED)];
        for (label, y, color) in labels.into_iter().skip(usize::from(!queue)) {
            let (x, y) = chart.backend_coord(&(0.0, y));
            root.draw_text(label, &text(13, &color, HPos::Right), (x - 8, y))?;
        }
        root.draw_text(&format!("limit {limit}"), &text(13, &FAINT, HPos::Right), (62, top + 6))?;
        let (x, bottom) = chart.backend_coord(&(0.0, 0.0));
        root.draw_text("counted", &text(13, &COUNTED, HPos::Right), (x - 8, (top + bottom) / 2 + 6))?;
        root.present()?;
    }
    Ok(svg)
}
