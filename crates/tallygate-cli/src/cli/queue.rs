//! `tallygate queue`: the items that wait to be worked off, and the workers that have them.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;
use tallygate::Reason;
use tallygate::page::many;
use tallygate::policy::parse_units;
use tallygate::queue::{Item, Noted, Offer, Offered, Payload, Receipt, Size, Take, Taken, Work, parse_band};
use uuid::Uuid;

use super::clock::Clock;
use super::exit::Exit;
use super::failure::Failure;
use super::output::{Answer, dim, plain};
use super::{Result, duration, open, txn, who};

const EXAMPLES: &str = "\
Examples:
  tallygate zone set mail --algorithm queue --rate 10 --per 1s --backlog 1000
  tallygate queue offer mail out --payload '{\"to\":42}' --deadline 10m
  tallygate queue take mail out --for 30s --worker w1
  tallygate queue done mail out RECEIPT
  tallygate queue show mail out --txn TXN

An item that was taken waits again after its time, unless it is done; a receipt is worth nothing once somebody else has taken the item. \
An offer that there is no room for, and a take that takes nothing, are answers with the exit code 1.";

/// Offers items to queues, takes them and works them off
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Offers an item, which waits if there is room
    Offer(Offering),
    /// Takes the next items, as far as the pace allows
    Take(Taking),
    /// Keeps an item for longer
    Extend(Extending),
    /// Says that an item is worked off
    Done(Said),
    /// Gives an item back
    Release(Releasing),
    /// Shows the size of a queue, or the state of an item
    Show(Show),
    /// Lists the items that were taken too often
    Dead(Dead),
    /// Tries a dead item again, as if it had never been taken
    Redrive(Redriving),
}

/// The queue that is meant.
#[derive(clap::Args)]
pub struct Of {
    /// Name of the zone
    zone: String,
    /// The queue
    #[arg(allow_negative_numbers = true)]
    queue: String,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

#[derive(clap::Args)]
pub struct Offering {
    #[command(flatten)]
    of: Of,
    /// The cost of the item, in units
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_units, allow_negative_numbers = true)]
    cost: i64,
    /// The importance: 0, the most, to 255; or critical-plus, critical, sheddable-plus, sheddable
    #[arg(long, value_name = "BAND", default_value = "0", value_parser = parse_band, allow_negative_numbers = true)]
    band: u8,
    /// The time after which nobody waits for it any longer [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    deadline: Option<Duration>,
    /// The payload for the worker, as JSON of at most 8 KiB
    #[arg(long, value_name = "JSON", value_parser = json, allow_hyphen_values = true)]
    payload: Option<Payload>,
    /// The transaction; the same again is answered as it was [default: a new one]
    #[arg(long, value_name = "UUID", value_parser = txn::parse)]
    txn: Option<Uuid>,
}

#[derive(clap::Args)]
pub struct Taking {
    #[command(flatten)]
    of: Of,
    /// The time after which it waits again
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    visible: Duration,
    /// The most items to take, up to 100
    #[arg(long, value_name = "N", default_value_t = 1)]
    most: u32,
    /// The worker that takes them
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Wait at most this long for the next item
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    wait: Option<Duration>,
}

/// The take of an item that something is said about.
#[derive(clap::Args)]
pub struct Said {
    #[command(flatten)]
    of: Of,
    /// The receipt that came with the item
    receipt: Receipt,
}

#[derive(clap::Args)]
pub struct Extending {
    #[command(flatten)]
    said: Said,
    /// The time for which the worker keeps it, from now on
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    visible: Duration,
}

#[derive(clap::Args)]
pub struct Releasing {
    #[command(flatten)]
    said: Said,
    /// The time after which it can be taken again [default: at once]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    delay: Option<Duration>,
}

#[derive(clap::Args)]
pub struct Show {
    #[command(flatten)]
    of: Of,
    /// The item: the transaction that offered it
    #[arg(long, value_name = "UUID", value_parser = txn::parse)]
    txn: Option<Uuid>,
}

#[derive(clap::Args)]
pub struct Dead {
    #[command(flatten)]
    of: Of,
    /// The most items to list, up to 1000
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
    /// List only the items behind this one
    #[arg(long, value_name = "UUID", value_parser = txn::parse)]
    after: Option<Uuid>,
}

#[derive(clap::Args)]
pub struct Redriving {
    #[command(flatten)]
    of: Of,
    /// The item: the transaction that offered it
    #[arg(long, value_name = "UUID", value_parser = txn::parse)]
    txn: Uuid,
    /// The person who does it, which is kept in the ledger [default: $USER]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
}

pub async fn run(url: &str, command: Command) -> Result {
    let queues = open(url).await?.queues();
    match command {
        Command::Offer(Offering { of, cost, band, deadline, payload, txn }) => {
            let offer = Offer::new(&of.zone, &of.queue).cost(cost).band(band);
            let offer = deadline.into_iter().fold(offer, Offer::deadline);
            let offer = payload.iter().fold(offer, |offer, payload| offer.payload(payload));
            let offered = queues.offer(txn.into_iter().fold(offer, Offer::txn)).await?;
            say(of.format, &offered, offer_line)?;
            Ok(Exit::of_blocked(offered.blocked).into())
        }
        Command::Take(Taking { of, visible, most, worker, wait }) => {
            let take = Take::new(&of.zone, &of.queue, visible).most(most);
            let take = worker.into_iter().fold(take, Take::worker);
            let taken = match wait {
                Some(wait) => queues.next(take, wait).await?,
                None => queues.take(take).await?,
            };
            say(of.format, &taken, take_lines)?;
            Ok(Exit::of_blocked(taken.items.is_empty()).into())
        }
        Command::Extend(Extending { said: Said { of, receipt }, visible }) => {
            say(of.format, &queues.extend(&of.zone, &of.queue, receipt, visible).await?, noted_line)
        }
        Command::Done(Said { of, receipt }) => {
            say(of.format, &queues.done(&of.zone, &of.queue, receipt).await?, noted_line)
        }
        Command::Release(Releasing { said: Said { of, receipt }, delay }) => {
            let delay = delay.unwrap_or_default();
            say(of.format, &queues.release(&of.zone, &of.queue, receipt, delay).await?, noted_line)
        }
        Command::Show(Show { of, txn: None }) => {
            say(of.format, &queues.size(&of.zone, &of.queue).await?, size_line)
        }
        Command::Show(Show { of, txn: Some(txn) }) => {
            let item = queues.item(&of.zone, &of.queue, txn).await?;
            let unknown = || Failure::new(format!("transaction {txn} offered nothing to this queue"));
            say(of.format, &item.ok_or_else(unknown)?, item_line)
        }
        Command::Dead(Dead { of, limit, after }) => {
            let items = queues.dead(&of.zone, &of.queue, after, limit).await?;
            let lines = |items: &Vec<Item>| items.iter().map(item_line).collect::<Vec<_>>().join("\n");
            if items.is_empty() && of.format == Answer::Text {
                return Ok(ExitCode::SUCCESS);
            }
            say(of.format, &items, lines)
        }
        Command::Redrive(Redriving { of, txn, by }) => {
            say(of.format, &queues.redrive(&of.zone, &of.queue, txn, &who(by)).await?, noted_line)
        }
    }
}

fn json(text: &str) -> std::result::Result<Payload, String> {
    serde_json::from_str(text).map_err(|error| format!("use JSON, like '{{\"to\":42}}': {error}"))
}

fn say<T: Serialize>(format: Answer, told: &T, line: impl Fn(&T) -> String) -> Result {
    let mut out = stdout().lock();
    match format {
        Answer::Json => writeln!(out, "{}", serde_json::to_string(told)?)?,
        Answer::Text => writeln!(out, "{}", line(told))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `waits  7 left  txn …`; `over_limit  0 left  room after 2s at the earliest  txn …`
fn offer_line(offered: &Offered) -> String {
    let state = if offered.blocked { offered.reason.as_str() } else { "waits" };
    let wait = offered.retry_after_us.map(duration::show_wait);
    let wait = match (offered.reason, wait) {
        (Reason::ExceedsLimit, _) => "  costs more than may wait, or can be taken at once".to_owned(),
        (Reason::Banned, Some(wait)) => format!("  for {wait}"),
        (_, Some(wait)) => format!("  room after {wait} at the earliest"),
        (_, None) => String::new(),
    };
    let evicted = match offered.evicted.len() {
        0 => String::new(),
        count => format!("  {count} evicted"),
    };
    let replayed = if offered.replayed { "  offered before" } else { "" };
    let txn = dim(&format!("txn {}", offered.txn_id));
    format!("{state}  {} left{wait}{evicted}{replayed}  {txn}", offered.remaining)
}

fn take_lines(taken: &Taken) -> String {
    let wait = taken.retry_after_us.map(duration::show_wait);
    match (&taken.items[..], wait) {
        ([], Some(wait)) => format!("nothing yet: the pace lets the next one be taken after {wait}"),
        ([], None) => "nothing waits".to_owned(),
        (items, _) => items.iter().map(work_line).collect::<Vec<_>>().join("\n"),
    }
}

/// `57-0199…  3 units  band 2  take 1  {"to":42}`
fn work_line(work: &Work) -> String {
    let payload = work.payload.as_ref().map(|payload| format!("  {}", plain(&payload.to_string())));
    let Work { receipt, cost, band, takes, .. } = work;
    let cost = many(cost, "unit");
    format!("{receipt}  {cost}  band {band}  take {takes}{}", payload.unwrap_or_default())
}

fn noted_line(noted: &Noted) -> String {
    let until = noted.until.map(|until| format!(" until {}", Clock::UTC.show_end(until)));
    let replayed = if noted.replayed { "  said before" } else { "" };
    let txn = dim(&format!("txn {}", noted.txn_id));
    format!("{}{}  {} left{replayed}  {txn}", noted.state, until.unwrap_or_default(), noted.remaining)
}

fn size_line(size: &Size) -> String {
    let waiting = many(size.waiting, "unit");
    format!("{waiting} waiting  {} taken or delayed  backlog {}", size.away, size.backlog)
}

fn item_line(item: &Item) -> String {
    let Item { txn_id, state, cost, band, takes, .. } = item;
    let payload = item.payload.as_ref().map(|payload| format!("  {}", plain(&payload.to_string())));
    let by = item.evicted_by.map(|by| format!(" for {by}")).unwrap_or_default();
    let until = item.until.map(|until| format!(" until {}", Clock::UTC.show_end(until))).unwrap_or_default();
    let (cost, takes) = (many(cost, "unit"), many(takes, "take"));
    format!("{txn_id}  {state}{until}{by}  {cost}  band {band}  {takes}{}", payload.unwrap_or_default())
}
