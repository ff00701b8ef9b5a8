//! `tallygate lease`: the part of a capacity that a client may use, and its end.

use std::io::{Write, stdout};
use std::process::ExitCode;

use chrono::{DateTime, Utc};
use clap::Subcommand;
use serde::Serialize;
use tallygate::Reason;
use tallygate::capacity::{Lease, Want, parse_band};
use tallygate::decide::Standing;
use tallygate::policy::parse_units;
use uuid::Uuid;

use super::clock::Clock;
use super::output::{Answer, Format, dim, plain, render, table};
use super::{Result, duration, open, spreadsheet, txn};

const EXAMPLES: &str = "\
Examples:
  tallygate zone set render --algorithm capacity --rate 100 --per 60s --share fair
  tallygate lease get render gpu --client worker-1 --wants 80
  tallygate lease get render gpu --client worker-2 --wants 80 --band sheddable
  tallygate lease list render gpu
  tallygate lease release render gpu --client worker-1

A client that asks again before its lease ends keeps its share; one that does not loses it at the end. A service does this in the \
library (Tenant) or over HTTP; the command is for trying and for scripts. A client that runs twice under one name is \
noticed with --after, the seq of the lease that it has.";

/// Takes, refreshes and gives back leases of a zone's capacity
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Takes a lease, or refreshes the one that the client has
    Get(Get),
    /// Gives a lease back before it ends
    Release(Of),
    /// Shows the leases of a resource, with their shares and ends
    List(List),
}

/// The client of a lease, and the resource.
#[derive(clap::Args)]
pub struct Of {
    /// Name of the zone
    zone: String,
    /// The resource that is shared
    #[arg(allow_negative_numbers = true)]
    resource: String,
    /// The client that asks
    #[arg(long, value_name = "NAME")]
    client: String,
    /// Refuse where another lease of the client runs than this one
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Get {
    #[command(flatten)]
    of: Of,
    /// The units that it wants
    #[arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true)]
    wants: i64,
    /// The number of clients that it stands for
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    weight: i32,
    /// The importance: 0, the most, to 255; or critical-plus, critical, sheddable-plus, sheddable
    #[arg(long, value_name = "BAND", default_value = "0", value_parser = parse_band, allow_negative_numbers = true)]
    band: u8,
    /// The transaction; the same again is answered as it was [default: a new one]
    #[arg(long, value_name = "UUID", value_parser = txn::parse)]
    txn: Option<Uuid>,
}

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct List {
    /// Name of the zone
    zone: String,
    /// The resource that is shared
    #[arg(allow_negative_numbers = true)]
    resource: String,
    /// The form of the list
    #[arg(long, default_value = "text")]
    format: Format,
}

/// The fields of a lease, in the order in which serde writes them.
const FIELDS: [&str; 8] = ["client", "has", "wants", "weight", "band", "seq", "since", "ends_at"];

/// A lease that has not ended.
#[derive(Serialize)]
struct Held {
    client: String,
    has: i64,
    wants: i64,
    weight: i32,
    band: u8,
    seq: i64,
    since: DateTime<Utc>,
    ends_at: DateTime<Utc>,
}

impl From<Standing> for Held {
    fn from(lease: Standing) -> Self {
        let Standing { seq, since_us, client, wants, weight, band, has, ends_us } = lease;
        let [since, ends_at] =
            [since_us, ends_us].map(|us| DateTime::from_timestamp_micros(us).unwrap_or_default());
        Self { client, has, wants, weight, band, seq, since, ends_at }
    }
}

pub async fn run(url: &str, command: Command) -> Result {
    let (want, format) = match command {
        Command::List(args) => return list(url, args).await,
        Command::Get(Get { of, wants, weight, band, txn }) => {
            let want = of.want(wants).weight(weight).band(band);
            (txn.map_or(want.clone(), |txn| want.txn(txn)), of.format)
        }
        Command::Release(of) => (of.want(0), of.format),
    };
    let lease = open(url).await?.leases().get(want).await?;
    let mut out = stdout().lock();
    match format {
        Answer::Json => writeln!(out, "{}", serde_json::to_string(&lease)?)?,
        Answer::Text => writeln!(out, "{}", line(&lease))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(url: &str, List { zone, resource, format }: List) -> Result {
    let standing = open(url).await?.leases().standing(&zone, &resource).await?;
    let held: Vec<_> = standing.into_iter().map(Held::from).collect();
    let mut out = stdout().lock();
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string(&held)?)?,
        Format::Csv => out.write_all(spreadsheet::list(&FIELDS, &held)?.as_bytes())?,
        Format::Text if held.is_empty() => writeln!(out, "nobody has a lease of {}", plain(&resource))?,
        Format::Text => out.write_all(held_table(&held).as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn held_table(held: &[Held]) -> String {
    let mut table = table(&["client", "has", "wants", "weight", "band", "ends at", "seq"]);
    for Held { client, has, wants, weight, band, ends_at, seq, .. } in held {
        let ends_at = Clock::UTC.show_end(*ends_at);
        let numbers = [has, wants, &i64::from(*weight), &i64::from(*band)].map(i64::to_string);
        table.add_row([plain(client)].into_iter().chain(numbers).chain([ends_at, seq.to_string()]));
    }
    render(&table, 0)
}

impl Of {
    fn want(&self, wants: i64) -> Want {
        let want = Want::new(&self.zone, &self.resource, &self.client, wants);
        self.after.map_or(want.clone(), |seq| want.follows(seq))
    }
}

/// `worker-1  40 of 100  for 60s, again after 15s  60 left  seq 3  txn …`
fn line(lease: &Lease) -> String {
    let Lease { has, capacity, remaining, seq, .. } = *lease;
    let until = if lease.wants == 0 {
        "given back".to_owned()
    } else {
        let [length, refresh] = [lease.length_us, lease.refresh_us].map(duration::show);
        let banned = if lease.reason == Reason::Banned { "banned, " } else { "" };
        format!("{banned}for {length}, again after {refresh}")
    };
    let replayed = if lease.replayed { "  granted before" } else { "" };
    let txn = dim(&format!("seq {seq}  txn {}", lease.txn_id));
    format!("{}  {has} of {capacity}  {until}  {remaining} left{replayed}  {txn}", plain(&lease.client))
}
