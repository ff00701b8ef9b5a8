//! JSON that every reader takes for the same.

use std::fmt;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A payload as somebody wrote it, for [`Offer::payload`](crate::queue::Offer::payload): no name is there twice, of which readers
/// take one or the other, and no whole number is beyond 64 bits, which readers round.
///
/// ```
/// use tallygate::queue::Payload;
/// assert!(serde_json::from_str::<Payload>(r#"{"id":18446744073709551615}"#).is_ok());
/// assert!(serde_json::from_str::<Payload>(r#"{"id":18446744073709551616}"#).is_err());
/// assert!(serde_json::from_str::<Payload>(r#"{"id":1,"id":2}"#).is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Payload(Value);

impl Deref for Payload {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reading).map(Self)
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // Integers of more than 64 bits come as this too, rounded.
        let is_whole = value.fract() == 0.0 && value.abs() >= u64::MAX as f64;
        match Number::from_f64(value).filter(|_| !is_whole) {
            Some(number) => Ok(number.into()),
            None => Err(E::custom(format!("the number {value} is beyond 64 bits; make it a string"))),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Payload(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((name, Payload(value))) = fields.next_entry::<String, _>()? {
            if values.contains_key(&name) {
                return Err(A::Error::custom(format!("the name {name:?} is there twice; keep one")));
            }
            values.insert(name, value);
        }
        Ok(values.into())
    }
}
