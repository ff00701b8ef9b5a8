//! The shapes of a bucket as its head has them: one text, a list of lists.

use super::list::{List, Value};
use crate::decide::Shape;
use crate::error::{Error, Result};

/// As one text; None for none.
pub(super) fn text_of(shapes: &[Shape]) -> Option<String> {
    let rows = shapes.iter().map(|shape| {
        let Shape { name, samples, average, learned_us } = shape;
        [Value::Text(name), (*samples).into(), (*average).into(), (*learned_us).into()]
    });
    (!shapes.is_empty()).then(|| List::of(rows).json())
}

/// From one text.
pub(super) fn shapes_of(text: Option<&str>) -> Result<Vec<Shape>> {
    let rows: Vec<(String, i64, i64, i64)> = serde_json::from_str(text.unwrap_or("[]"))
        .map_err(|error| Error::database("\"shapes\": they cannot be read").caused_by(error))?;
    let shape = |(name, samples, average, learned_us)| Shape { name, samples, average, learned_us };
    Ok(rows.into_iter().map(shape).collect())
}
