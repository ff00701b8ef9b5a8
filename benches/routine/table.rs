//! One engine's columns as text.

use std::fmt;

use crate::client::Way;
use crate::measure::{Column, Keys, Rate};

#[derive(Default)]
pub struct Table {
    pub columns: Vec<Column>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = [(Keys::Distinct, "distinct keys"), (Keys::Hot, "one hot key"), (Keys::New, "new keys")];
        for (keys, title) in titles {
            let columns = self.columns.iter().filter(|column| column.keys == keys).collect::<Vec<_>>();
            write!(f, "{title:<22}{:>12}{:>22}", "p50 alone", "server alone")?;
            for column in &columns {
                let clients = if column.clients == 1 { "client" } else { "clients" };
                write!(f, "{:>22}", format!("{} {clients}", column.clients))?;
            }
            writeln!(f)?;
            for way in Way::ALL {
                let Some(alone) = columns.first().and_then(|column| column.rate(way)) else { continue };
                write!(f, "  {:<20}{:>9} µs", way.describe(), alone.median.as_micros())?;
                let seed = columns[0].rate(Way::Seed).and_then(|seed| seed.server_us);
                match alone.server_us.zip(seed) {
                    Some((us, seed)) => write!(f, "{us:>9.0} µs ({:.2} ×)", us / seed)?,
                    None => write!(f, "{:>22}", "")?,
                }
                for (this, bare) in columns.iter().filter_map(|c| c.rate(way).zip(c.rate(Way::Bare))) {
                    write!(f, "{:>12.0}/s ({:.2} ×)", this.per_s, this.per_s / bare.per_s)?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl Column {
    fn rate(&self, way: Way) -> Option<Rate> {
        self.rates.iter().find(|(other, _)| *other == way).map(|(_, rate)| *rate)
    }
}
