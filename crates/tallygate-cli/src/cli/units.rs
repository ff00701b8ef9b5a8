//! Costs and rates: whole numbers. Their range is the library's to judge.

/// Reads a whole number, with a minus sign too, so that the refusal of -1 can say what is allowed.
pub fn parse(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("use a whole number up to {}", tallygate::policy::UNITS_MAX))
}
