//! Traffic that is made up, the same each time.

use fastrand::Rng;

use crate::error::{Error, Result};
use crate::names::names;

/// The most requests that are made or simulated.
pub(super) const REQUESTS_MAX: usize = 1_000_000;

/// A hundred years.
const LENGTH_US_MAX: i64 = 3_155_760_000_000_000;

/// A flood is this many times the traffic around it.
const FLOOD: i64 = 10;

/// A request, as a check asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its time, in microseconds since 1970 in UTC.
    pub at_us: i64,
    /// The bucket that is asked.
    pub key: String,
    /// Its cost in units, 0 to 2^40.
    pub cost: i64,
    /// The member that it is about, where members are counted; left aside elsewhere.
    pub member: Option<String>,
    /// May it take from the reserve?
    pub critical: bool,
    /// The client that asks, where several share one bucket.
    pub client: Option<String>,
}

/// The way in which traffic comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shape {
    /// At even distances.
    Steady,
    /// In the first tenth of every second window, twice as much as elsewhere in a window, then nothing.
    Burst,
    /// A burst just before every second border of a window and one just after it, each as much as comes elsewhere in a
    /// window.
    Border,
    /// Swelling to twice the rate and ebbing to nothing, once in two windows.
    Sine,
    /// At even distances, but in the middle third of the time ten times as much.
    Flood,
    /// Two clients of one bucket: a polite one at a quarter of the rate and even distances, a greedy one at the whole
    /// rate and any time.
    TwoClients,
}

names!(
    Shape, "shape of traffic",
    Steady "steady", Burst "burst", Border "border", Sine "sine", Flood "flood", TwoClients "two-clients",
);

/// Traffic of one bucket from the beginning of 1970 on, where windows begin, so that a border is a border of each policy
/// with this window. The same fields make the same requests, on each machine.
///
/// ```
/// use tallygate::backtest::{Shape, Traffic};
/// let minute_us = 60_000_000;
/// let traffic = Traffic {
///     shape: Shape::Steady,
///     rate: 6,
///     window_us: minute_us,
///     length_us: 2 * minute_us,
///     members: 1,
///     seed: 1,
/// };
/// let requests = traffic.requests()?;
/// assert_eq!(requests.len(), 12);
/// assert_eq!(requests[1].at_us - requests[0].at_us, 10_000_000);
/// # Ok::<(), tallygate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The way in which it comes.
    pub shape: Shape,
    /// The rate that the shape goes by: requests in a window, from 1; each costs 1.
    pub rate: i64,
    /// The window's length in microseconds: 1 to a hundred years.
    pub window_us: i64,
    /// The traffic's length in microseconds: 1 to a hundred years.
    pub length_us: i64,
    /// The number of different members that the requests are about, from 1.
    pub members: u32,
    /// The seed of random times and members: another seed, other ones.
    pub seed: u64,
}

impl Traffic {
    /// The requests in the order of their times, at most 1,000,000.
    ///
    /// # Errors
    /// Invalid: a field is out of its range, or the requests would be too many.
    pub fn requests(&self) -> Result<Vec<Request>> {
        self.validate()?;
        let mut rng = Rng::with_seed(self.seed);
        let (window_us, length_us) = (self.window_us, self.length_us);
        let mut times: Vec<(i64, Option<&str>)> = match self.shape {
            Shape::Steady => alone(self.even(self.rate, 0..length_us)),
            Shape::Burst => {
                let starts_us = (0..length_us).step_by(step(window_us.saturating_mul(2)));
                let tenth_us = (window_us / 10).max(1);
                alone(starts_us.flat_map(|at_us| random(2 * self.rate, at_us, tenth_us, &mut rng)))
            }
            Shape::Border => {
                let borders_us = (window_us..length_us).step_by(step(window_us.saturating_mul(2)));
                let near_us = (window_us / 20).max(1);
                let sides_us = borders_us.flat_map(|at_us| [at_us - near_us, at_us]);
                alone(sides_us.flat_map(|at_us| random(self.rate, at_us, near_us, &mut rng)))
            }
            Shape::Sine => {
                let swells =
                    |at_us: &i64| rng.i64(0..2_000) < 1_000 + sine(*at_us, window_us.saturating_mul(2));
                alone(self.even(2 * self.rate, 0..length_us).filter(swells))
            }
            Shape::Flood => {
                let (from_us, to_us) = (length_us / 3, length_us - length_us / 3);
                let before = self.even(self.rate, 0..from_us);
                let flood = self.even(FLOOD * self.rate, from_us..to_us);
                alone(before.chain(flood).chain(self.even(self.rate, to_us..length_us)))
            }
            Shape::TwoClients => {
                let polite = self.even((self.rate / 4).max(1), 0..length_us);
                let greedy = random(self.in_all(), 0, length_us, &mut rng);
                let polite = polite.map(|at_us| (at_us, Some("polite")));
                polite.chain(greedy.into_iter().map(|at_us| (at_us, Some("greedy")))).collect()
            }
        };
        times.retain(|(at_us, _)| *at_us < length_us);
        times.sort_unstable();
        let request = |(at_us, client): (i64, Option<&str>)| Request {
            at_us,
            key: "simulated".to_owned(),
            cost: 1,
            member: Some(format!("m{}", rng.u32(0..self.members))),
            critical: false,
            client: client.map(str::to_owned),
        };
        Ok(times.into_iter().map(request).collect())
    }

    fn validate(&self) -> Result<()> {
        for (name, value, most) in [
            ("rate", self.rate, REQUESTS_MAX as i64),
            ("window in microseconds", self.window_us, LENGTH_US_MAX),
            ("length in microseconds", self.length_us, LENGTH_US_MAX),
            ("number of members", self.members.into(), u32::MAX.into()),
        ] {
            if !(1..=most).contains(&value) {
                return Err(Error::invalid(format!("the traffic's {name} is {value}; use 1 to {most}")));
            }
        }
        // The most that a shape makes of the rate: a flood lasts a third of the time.
        let times = if self.shape == Shape::Flood { (FLOOD + 2) / 3 } else { 2 };
        let windows = i128::from(self.length_us / self.window_us) + 2;
        let many = i128::from(self.rate) * i128::from(times) * windows;
        if many > REQUESTS_MAX as i128 {
            return Err(Error::invalid(format!(
                "{} in each of {windows} windows can be {many} requests, which are too many; use a lower rate or a \
                 shorter time, for up to {REQUESTS_MAX}",
                self.rate
            )));
        }
        Ok(())
    }

    /// Times at even distances.
    fn even(&self, rate: i64, us: std::ops::Range<i64>) -> impl Iterator<Item = i64> {
        let (window_us, start_us) = (i128::from(self.window_us), us.start);
        // Bounded by the validation, so that it fits.
        let at = move |n: i64| start_us + (i128::from(n) * window_us / i128::from(rate)) as i64;
        (0..).map(at).take_while(move |at_us| *at_us < us.end)
    }

    /// The rate over the whole length.
    fn in_all(&self) -> i64 {
        (i128::from(self.rate) * i128::from(self.length_us) / i128::from(self.window_us)) as i64
    }
}

/// A number of times, each anywhere in a span.
fn random(many: i64, from_us: i64, span_us: i64, rng: &mut Rng) -> Vec<i64> {
    (0..many).map(|_| from_us.saturating_add(rng.i64(0..span_us))).collect()
}

fn alone<'c>(times: impl Iterator<Item = i64>) -> Vec<(i64, Option<&'c str>)> {
    times.map(|at_us| (at_us, None)).collect()
}

fn step(us: i64) -> usize {
    usize::try_from(us).unwrap_or(usize::MAX)
}

/// A thousand times the sine of a place in a period, by Bhaskara's fraction: the same on each machine.
fn sine(at_us: i64, period_us: i64) -> i64 {
    let turn = (i128::from(at_us.rem_euclid(period_us)) * 2_000 / i128::from(period_us)) as i64;
    let x = turn % 1_000;
    let part = x * (1_000 - x);
    let half = 1_000 * 16 * part / (5_000_000 - 4 * part);
    if turn < 1_000 { half } else { -half }
}
