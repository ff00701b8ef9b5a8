//! The predicted cost of requests of one shape: an average of what those came to that settled lately.
//!
//! An exponentially weighted moving average (Roberts 1959) in whole numbers, so that every database learns the same. The first
//! [`RECENT`] settlements weigh equally, and each later one an eighth. Its influence is bounded, as robust statistics call it:
//! one that is far off counts as half of the average, or as twice.

/// The number of shapes of a bucket that are kept apart; all further ones share one. Routes are few; whoever makes a
/// shape of each request must not fill the bucket's row.
pub const SHAPES_MAX: usize = 32;

/// For how long a shape is known after its last settlement, in microseconds: 15 minutes. Its cost before that tells
/// little of the load of now.
pub const SHAPE_AGE_US: i64 = 900_000_000;

/// The shape that stands for all that are not kept apart. No caller can name it.
pub const SHARED_SHAPE: &str = "*";

/// The parts of a unit in which averages are kept, so that an eighth of a small difference is not lost. A cost of 2^40 leaves
/// room for a product with [`RECENT`].
const PARTS: i64 = 256;

/// The number of settlements that the average is about: enough to even out single ones, few enough to follow
/// a change.
const RECENT: i64 = 8;

/// The knowledge of the requests of one shape in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Its name, as callers give it.
    pub name: String,
    /// The number of settlements that have taught it.
    pub samples: i64,
    /// The average, in 256ths of a unit.
    pub average: i64,
    /// The time of the last of them.
    pub learned_us: i64,
}

impl Shape {
    /// The cost that is predicted: the average, rounded up; at least 1.
    #[must_use]
    pub fn cost(&self) -> i64 {
        (self.average.saturating_add(PARTS - 1) / PARTS).max(1)
    }

    /// Is it still known at a time?
    #[must_use]
    pub fn is_known(&self, now_us: i64) -> bool {
        now_us.saturating_sub(self.learned_us) < SHAPE_AGE_US
    }
}

/// The knowledge, at a time, of the requests of a shape: of its own, or of all that are not kept apart. None when
/// nothing is.
#[must_use]
pub fn predict<'s>(shapes: &'s [Shape], name: &str, now_us: i64) -> Option<&'s Shape> {
    let known = |name| shapes.iter().find(move |shape| shape.name == name && shape.is_known(now_us));
    known(name).or_else(|| known(SHARED_SHAPE))
}

/// Learns what a request of a shape came to. A shape that is not known any more is forgotten first.
pub fn learn(shapes: &mut Vec<Shape>, name: &str, cost: i64, now_us: i64) {
    shapes.retain(|shape| shape.is_known(now_us));
    let apart = shapes.iter().filter(|shape| shape.name != SHARED_SHAPE).count();
    let is_kept = apart < SHAPES_MAX || shapes.iter().any(|shape| shape.name == name);
    let name = if is_kept { name } else { SHARED_SHAPE };
    let sample = cost.max(1).saturating_mul(PARTS);
    match shapes.iter_mut().find(|shape| shape.name == name) {
        Some(shape) => {
            let sample = sample.max(shape.average / 2).min(shape.average.saturating_mul(2));
            shape.samples = shape.samples.saturating_add(1);
            let weight = shape.samples.clamp(1, RECENT);
            shape.average = shape.average.saturating_mul(weight - 1).saturating_add(sample) / weight;
            shape.learned_us = now_us;
        }
        None => {
            let name = name.to_owned();
            shapes.push(Shape { name, samples: 1, average: sample, learned_us: now_us });
        }
    }
}
