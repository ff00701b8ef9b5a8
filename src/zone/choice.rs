//! The choices of a policy, each by its name.

use crate::names::names;

/// The algorithms by which a zone counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// At most `rate` units in any window, exactly: what was spent at t is free again at t + window.
    SlidingLog,
    /// At most `rate` units in each window of a row of windows: multiples of its length since 1970, or the periods
    /// of a calendar.
    FixedWindow,
    /// At most about `rate` units in any window: what was spent in the slot that the window has begun to leave counts
    /// by the share of the slot that is still in it.
    SlidingCounter,
    /// A store of `burst` tokens that fills at `rate` per window; a check takes its cost from it.
    TokenBucket,
    /// A bucket that holds `burst` units and drains at `rate` per window; a check that would overflow it is blocked.
    LeakyBucket,
    /// A queue that holds `burst` units and is served at `rate` per window; a check that finds room is told when its
    /// turn is.
    LeakyQueue,
    /// One unit at a time, `rate` of them per window at even distances.
    Uniform,
    /// At most `rate` different members in a window that begins with each one's first check.
    Distinct,
    /// At most `rate` units held at once, each until it is released or its time, the window, is over.
    Concurrency,
    /// At most `rate` units handed out at a time, in leases that end after the window unless they are refreshed.
    Capacity,
    /// Items wait in a queue of bounded size and are taken at `rate` units per window, up to `burst` at once.
    Queue,
}

/// The wait of an answer for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// The answer waits until the decision is on the disk.
    #[default]
    Durable,
    /// Not at all: a crash of the server can forget the last decisions together with what they spent.
    Relaxed,
}

/// The rows that a flood of blocked checks leaves in the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockedRows {
    /// A row for every check.
    #[default]
    Each,
    /// One row may stand for many checks.
    Coalesced,
}

/// The use that is made of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// It holds.
    #[default]
    Enforce,
    /// It is recorded with its reason, but everything passes: to try a policy on real traffic.
    Shadow,
    /// Nothing is decided or spent; everything passes.
    Off,
}

/// The answer that is given while the database does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnOutage {
    /// An error: nothing passes unchecked.
    #[default]
    Closed,
    /// Allowed, and written to a local journal, from which the ledger learns of it afterwards.
    Open,
}

/// The effect of a change of policy on the buckets that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunningBuckets {
    /// Windows judge what was spent by the new policy; a level keeps its tokens, up to the new capacity.
    #[default]
    AsIs,
    /// The used part of the old limit is used of the new one in the same proportion. A window takes that as one charge,
    /// made at the time of the change. Members and slots that are held stay as they are.
    Proportional,
    /// It is as if nothing had been spent before.
    Reset,
}

/// From when a ban is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BanFrom {
    /// From the blocked check that brought it about.
    #[default]
    Block,
    /// From the time at which that check could have passed.
    Window,
}

/// The period of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From :00 to :00 seconds.
    Minute,
    /// From :00 to :00 minutes.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From the first to the first.
    Month,
}

names!(
    Algorithm, "algorithm",
    SlidingLog "sliding-log", FixedWindow "fixed-window", SlidingCounter "sliding-counter", TokenBucket "token-bucket",
    LeakyBucket "leaky-bucket", LeakyQueue "leaky-queue", Uniform "uniform", Distinct "distinct",
    Concurrency "concurrency", Capacity "capacity",
    Queue "queue",
);
names!(Durability, "durability", Durable "durable", Relaxed "relaxed");
names!(BlockedRows, "choice of blocked rows", Each "each", Coalesced "coalesced");
names!(Mode, "mode", Enforce "enforce", Shadow "shadow", Off "off");
names!(OnOutage, "choice for an outage", Closed "closed", Open "open");
names!(
    RunningBuckets, "choice for running buckets",
    AsIs "as-is", Proportional "proportional", Reset "reset"
);
names!(BanFrom, "beginning of bans", Block "block", Window "window");
names!(CalendarUnit, "calendar unit", Minute "minute", Hour "hour", Day "day", Month "month");

/// The kinds of state that algorithms keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Nothing but the ledger: sums over times.
    Window,
    /// A level in the bucket's head.
    Level,
    /// Holds are counted, each with an end of its own.
    Held,
}

impl Algorithm {
    pub(crate) fn family(self) -> Family {
        match self {
            Self::SlidingLog | Self::FixedWindow | Self::SlidingCounter => Family::Window,
            Self::TokenBucket | Self::LeakyBucket | Self::LeakyQueue | Self::Uniform | Self::Queue => {
                Family::Level
            }
            Self::Distinct | Self::Concurrency | Self::Capacity => Family::Held,
        }
    }

    /// The way in which its buckets are asked, for those who tried another one.
    pub(crate) fn is_asked_by(self) -> &'static str {
        match self {
            Self::Capacity => "take a lease of it",
            Self::Queue => "offer an item to it",
            _ => "use a check",
        }
    }
}
