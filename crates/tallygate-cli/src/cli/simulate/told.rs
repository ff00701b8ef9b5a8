//! The requests that got through, for people and for programs.

use serde::Serialize;
use tallygate::backtest::{Got, Simulation};

use crate::cli::duration;
use crate::cli::output::{bold, plain, render, table};

/// Traffic, and the requests that each policy let through of it.
#[derive(Serialize)]
pub struct Played {
    pub traffic: String,
    pub policies: Vec<Told>,
}

/// The requests that a policy let through.
#[derive(Serialize)]
pub struct Told {
    pub name: String,
    #[serde(flatten)]
    pub figures: Simulation,
}

/// The names of the columns of [`Told::row`].
pub const HEADER: [&str; 7] = ["policy", "passed", "blocked", "delayed", "wait", "in a window", "in 1s"];

impl Told {
    pub fn row(&self) -> [String; 7] {
        let Simulation { passed, blocked, delayed, longest_wait_us, worst_window, peak_per_second, .. } =
            self.figures;
        let wait = if delayed > 0 { duration::show_wait(longest_wait_us) } else { "-".to_owned() };
        let [passed, blocked, delayed, window, second] =
            [passed, blocked, delayed, worst_window, peak_per_second].map(|count| count.to_string());
        [plain(&self.name), passed, blocked, delayed, wait, window, second]
    }

    /// The part that each client got of what it asked for, and how fair that is.
    pub fn shares(&self) -> Option<String> {
        let got =
            |(client, got): (&String, &Got)| format!("{} {} of {}", plain(client), got.passed, got.offered);
        let clients: Vec<String> = self.figures.clients.iter().map(got).collect();
        let fairness = self.figures.fairness.map(|index| format!(", fairness {index:.2}"));
        (!clients.is_empty()).then(|| clients.join(", ") + &fairness.unwrap_or_default())
    }
}

impl Played {
    /// `border: 72 offered`.
    pub fn title(&self) -> String {
        let offered = self.policies.first().map_or(0, |told| told.figures.offered);
        format!("{}: {offered} offered", plain(&self.traffic))
    }

    /// The policies with the part that each client got, a row for each.
    pub fn shares(&self) -> Vec<Vec<String>> {
        let row = |told: &Told| Some(vec![plain(&told.name), told.shares()?]);
        self.policies.iter().filter_map(row).collect()
    }
}

/// A table for each traffic, and one of the clients' parts where they share a bucket.
pub fn text(played: &[Played]) -> String {
    let one = |played: &Played| {
        let mut policies = table(&HEADER);
        policies.add_rows(played.policies.iter().map(Told::row));
        let mut text = format!("{}\n{}", bold(&played.title()), render(&policies, 0));
        let shares = played.shares();
        if !shares.is_empty() {
            let mut clients = table(&["policy", "what each got"]);
            clients.add_rows(shares);
            text += &format!("\n{}", render(&clients, 0));
        }
        text
    };
    played.iter().map(one).collect::<Vec<_>>().join("\n")
}
