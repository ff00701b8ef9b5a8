//! The cost of requests of a shape: a moving average against a naive count, and how far one settlement can move
//! it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tallygate::decide::{SHAPE_AGE_US, SHAPES_MAX, SHARED_SHAPE, Shape, learn, predict};

/// The average of one shape, in 256ths: how many, how much, and when.
type Known = (i128, i128, i64);

/// The same without any cleverness.
#[derive(Default)]
struct Naive(BTreeMap<String, Known>);

impl Naive {
    fn learn(&mut self, name: &str, cost: i64, now_us: i64) {
        self.0.retain(|_, (_, _, at_us)| now_us - *at_us < SHAPE_AGE_US);
        let others = self.0.keys().filter(|other| *other != name && *other != SHARED_SHAPE).count();
        let name = if self.0.contains_key(name) || others < SHAPES_MAX { name } else { SHARED_SHAPE };
        let cost = i128::from(cost.max(1)) * 256;
        let known = self.0.get(name).map_or((1, cost, now_us), |&(samples, average, _)| {
            let counts = if cost > average * 2 {
                average * 2
            } else if cost < average / 2 {
                average / 2
            } else {
                cost
            };
            let weight = if samples + 1 > 8 { 8 } else { samples + 1 };
            (samples + 1, (average * (weight - 1) + counts) / weight, now_us)
        });
        self.0.insert(name.to_owned(), known);
    }

    fn cost(&self, name: &str, now_us: i64) -> Option<i128> {
        let known = |name| self.0.get(name).filter(|(_, _, at_us)| now_us - at_us < SHAPE_AGE_US);
        let (_, average, _) = known(name).or_else(|| known(SHARED_SHAPE))?;
        Some(average / 256 + i128::from(average % 256 > 0))
    }
}

fn costs() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0..2_000_i64, 1 => 0..=1_i64 << 40, 1 => Just(1 << 40)]
}

proptest! {
    /// Any settlements of any shapes at any times: what is predicted is what the naive count says, and no more is kept than there
    /// is room for.
    #[test]
    fn what_is_learned_is_the_naive_average(
        steps in prop::collection::vec((0..45_u8, costs(), 0..SHAPE_AGE_US / 20), 1..400),
    ) {
        let (mut naive, mut shapes, mut now_us) = (Naive::default(), Vec::new(), 0);
        for (name, cost, later_us) in steps {
            let name = format!("/route/{name}");
            now_us += later_us;
            let told = predict(&shapes, &name, now_us).map(Shape::cost);
            prop_assert_eq!(told.map(i128::from), naive.cost(&name, now_us));
            learn(&mut shapes, &name, cost, now_us);
            naive.learn(&name, cost, now_us);
            prop_assert!(shapes.len() <= SHAPES_MAX + 1);
            let told: BTreeMap<_, _> = shapes.iter().map(|shape| (shape.name.clone(), shape.clone())).collect();
            let naive = naive.0.iter().map(|(name, &(samples, average, at_us))| {
                let [samples, average] = [samples, average].map(|number| i64::try_from(number).unwrap());
                (name.clone(), Shape { name: name.clone(), samples, average, learned_us: at_us })
            });
            prop_assert_eq!(told, naive.collect());
        }
    }

    /// One settlement, however far off, moves an average by half of it at most, and by an eighth once there were eight.
    #[test]
    fn one_settlement_moves_it_by_half_at_most(before in prop::collection::vec(costs(), 1..30), cost in costs()) {
        let mut shapes = Vec::new();
        for (n, &cost) in before.iter().enumerate() {
            learn(&mut shapes, "chat", cost, n as i64);
        }
        let was = shapes[0].average;
        learn(&mut shapes, "chat", cost, 1_000);
        let is = shapes[0].average;
        let most = if before.len() >= 8 { was / 8 } else { was / 2 };
        prop_assert!((is - was).abs() <= most + 1, "{} became {}", was, is);
    }

    /// A cost that is always the same is predicted to the unit, wherever the average began.
    #[test]
    fn what_always_costs_the_same_is_predicted_exactly(first in costs(), cost in 1..=1_i64 << 40) {
        let mut shapes = Vec::new();
        learn(&mut shapes, "chat", first, 0);
        for n in 0..600 {
            learn(&mut shapes, "chat", cost, n);
        }
        prop_assert_eq!(shapes[0].cost(), cost);
    }

    /// Numbers that only a changed row could have are no reason to panic.
    #[test]
    fn any_numbers_will_do(samples: i64, average: i64, learned_us: i64, cost: i64, now_us: i64) {
        let mut shapes = vec![Shape { name: "chat".to_owned(), samples, average, learned_us }];
        learn(&mut shapes, "chat", cost, now_us);
        prop_assert!(shapes.iter().all(|shape| shape.cost() >= 1));
    }
}

#[test]
fn it_is_forgotten_15_minutes_after_the_last_settlement() {
    let mut shapes = Vec::new();
    learn(&mut shapes, "chat", 70, 0);
    learn(&mut shapes, "chat", 80, 10);
    let cost = |shapes: &[Shape], now_us| predict(shapes, "chat", now_us).map(Shape::cost);
    assert_eq!(cost(&shapes, 10), Some(75));
    assert_eq!(cost(&shapes, 9 + SHAPE_AGE_US), Some(75));
    assert_eq!(cost(&shapes, 10 + SHAPE_AGE_US), None);
    // The first one after that sets it, however far it is from what was known.
    learn(&mut shapes, "chat", 9_000, 10 + SHAPE_AGE_US);
    assert_eq!(cost(&shapes, 10 + SHAPE_AGE_US), Some(9_000));
    assert_eq!(shapes[0].samples, 1);
}

#[test]
fn what_costs_nothing_is_predicted_to_cost_one() {
    let mut shapes = Vec::new();
    (0..20).for_each(|n| learn(&mut shapes, "chat", 0, n));
    assert_eq!(shapes[0].cost(), 1);
    // And it finds its way up again.
    (0..150).for_each(|n| learn(&mut shapes, "chat", 500, 20 + n));
    assert_eq!(shapes[0].cost(), 500);
}
