//! The trace that a request is part of, by the W3C's recommendation Trace Context.

use axum::http::HeaderMap;

/// The header `traceparent`, which was looked at: digits and hyphens, each in its place.
#[derive(Clone, Copy)]
pub(crate) struct Parent<'h>(&'h str);

impl<'h> Parent<'h> {
    /// None where there is no one header that is well-formed. Another one is passed over, as the recommendation says.
    pub fn of(headers: &'h HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all("traceparent").iter();
        let parent = parents.next().filter(|_| parents.next().is_none())?.to_str().ok()?;
        let (version, trace) = (parent.get(..3)?, parent.get(3..36)?);
        let (span, flags, rest) = (parent.get(36..53)?, parent.get(53..55)?, parent.get(55..)?);
        let is_id = |field: &str| {
            field.strip_suffix('-').is_some_and(|id| is_hex(id) && id.bytes().any(|digit| digit != b'0'))
        };
        // Later versions may have more behind the flags.
        let is_known = match version {
            "00-" => rest.is_empty(),
            "ff-" => false,
            _ => version.strip_suffix('-').is_some_and(is_hex) && (rest.is_empty() || rest.starts_with('-')),
        };
        (is_known && is_id(trace) && is_id(span) && is_hex(flags)).then_some(Self(parent))
    }

    /// The id of the trace: 32 digits and nothing else, so that it can stand in a log.
    pub fn trace(self) -> &'h str {
        &self.0[3..35]
    }

    /// Makes a span the caller's child, for whoever sends it to a collector.
    #[cfg(feature = "otlp")]
    pub fn adopt(self, span: &tracing::Span) {
        use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
        use tracing_opentelemetry::OpenTelemetrySpanExt;

        let parent = SpanId::from_hex(&self.0[36..52]);
        let (Ok(trace), Ok(parent), Ok(flags)) =
            (TraceId::from_hex(self.trace()), parent, u8::from_str_radix(&self.0[53..55], 16))
        else {
            return;
        };
        let caller = SpanContext::new(trace, parent, TraceFlags::new(flags), true, TraceState::default());
        // Where nothing is sent, no layer is there to take it.
        span.set_parent(opentelemetry::Context::new().with_remote_span_context(caller)).ok();
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn of(values: &[&[u8]]) -> Option<String> {
        let values = values.iter().filter_map(|value| HeaderValue::from_bytes(value).ok());
        let headers = values.map(|value| ("traceparent".parse().unwrap(), value)).collect();
        Parent::of(&headers).map(|parent| parent.trace().to_owned())
    }

    #[test]
    fn a_well_formed_one_is_taken_over() {
        for (version, end) in [("00", ""), ("cc", ""), ("cc", "-what-comes-later"), ("01", "-")] {
            let parent = format!("{version}-{TRACE}-00f067aa0ba902b7-01{end}");
            assert_eq!(of(&[parent.as_bytes()]).as_deref(), Some(TRACE), "{parent}");
        }
    }

    #[test]
    fn a_malformed_one_is_passed_over() {
        let good = format!("00-{TRACE}-00f067aa0ba902b7-01");
        for bad in [
            String::new(),
            "00".to_owned(),
            TRACE.to_owned(),
            good.replace("00-4", "ff-4"),
            good.replace("00-4", "0-4"),
            good.replace("00-4", "000-4"),
            good.replace("4bf9", "4BF9"),
            good.replace("4bf9", "4bg9"),
            good.replace(TRACE, &"0".repeat(32)),
            good.replace(TRACE, &TRACE[1..]),
            good.replace("00f067aa0ba902b7", "0000000000000000"),
            good.replace("00f067aa0ba902b7", "00f067aa0ba902b"),
            good.replace("-01", ""),
            good.replace("-01", "-1"),
            good.replace("-01", "-0x"),
            format!("{good}-more"),
            format!("{good} "),
            format!(" {good}"),
            format!("{good},{good}"),
            good.replace('-', "_"),
        ] {
            assert_eq!(of(&[bad.as_bytes()]), None, "{bad:?}");
        }
        assert_eq!(of(&[good.as_bytes(), good.as_bytes()]), None, "two of them");
        assert_eq!(of(&[]), None);
    }

    proptest! {
        #[test]
        fn nothing_but_an_id_comes_out(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(of(&[&value]).is_none_or(|id| id.len() == 32 && is_hex(&id)));
        }

        #[test]
        fn what_is_almost_one_is_no_other(value in "[0-9a-fA-F]{2}-[0-9a-f]{31,33}-[0-9a-f]{15,17}-[0-9a-f]{1,3}(-.{0,5})?") {
            prop_assert!(of(&[value.as_bytes()]).is_none_or(|id| is_hex(&id) && value[3..].starts_with(&id)));
        }
    }
}
