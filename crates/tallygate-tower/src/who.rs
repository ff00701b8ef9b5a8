//! The subject of a limit: the part of a request that names the bucket.

use std::borrow::Cow;
use std::future::{Future, ready};
use std::pin::Pin;

use http::request::Parts;
use http::{HeaderName, StatusCode, header};

/// The words of a request about whom it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// The bucket of this key.
    Key(String),
    /// It does not say: [`Limit::nobody`](crate::Limit::nobody) decides what that means.
    Nobody,
    /// This limit is not about it.
    Skip,
    /// It is answered with this status at once, and nothing is asked.
    Refuse(StatusCode),
}

/// The answer of [`Who::who`].
pub type Answer<'p> = Pin<Box<dyn Future<Output = Subject> + Send + 'p>>;

/// The way in which a limit finds whom a request is about.
///
/// Ready ones are the functions of this module and [`ClientAddress`](crate::ClientAddress). A closure over the head of the
/// request is one too; one that has to wait for something is made by [`later`].
///
/// ```
/// use http::request::Parts;
/// use tallygate_tower::ClientAddress;
/// use tallygate_tower::who::{self, Subject};
///
/// #[derive(Clone)]
/// struct UserId(u64); // put there by the layer that authenticates
/// let user = |parts: &Parts| match parts.extensions.get::<UserId>() {
///     Some(UserId(id)) => Subject::Key(format!("user:{id}")),
///     None => Subject::Nobody,
/// };
/// let each_method = who::both(user, who::method());
/// let from_there = who::both(each_method, ClientAddress::of_peer());
/// # let _ = from_there;
/// ```
pub trait Who: Send + Sync + 'static {
    /// Reads the subject from the head of a request.
    fn who<'p>(&'p self, parts: &'p Parts) -> Answer<'p>;
}

impl<F: Fn(&Parts) -> Subject + Send + Sync + 'static> Who for F {
    fn who<'p>(&'p self, parts: &'p Parts) -> Answer<'p> {
        Box::pin(ready(self(parts)))
    }
}

/// Everybody together: one bucket.
pub fn everybody() -> impl Who {
    |_: &Parts| Subject::Key("all".to_owned())
}

/// The client that sends this value in a header. A request with several lines of it says nothing: which of them holds
/// is a riddle.
pub fn header(name: HeaderName) -> impl Who {
    move |parts: &Parts| {
        let mut lines = parts.headers.get_all(&name).iter();
        let (Some(value), None) = (lines.next(), lines.next()) else { return Subject::Nobody };
        named("header", [name.as_str().as_bytes(), value.as_bytes()])
    }
}

/// The client that sends this cookie; `%61` is `a`, as for whoever reads it. Of several with the name the request
/// says nothing.
pub fn cookie(name: impl Into<String>) -> impl Who {
    let name = name.into();
    move |parts: &Parts| {
        let lines = parts.headers.get_all(header::COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        let pairs = pairs.filter_map(|pair| {
            let pair = pair.trim_ascii();
            let at = pair.iter().position(|byte| *byte == b'=')?;
            Some((decoded(&pair[..at]), decoded(&pair[at + 1..])))
        });
        only("cookie", &name, pairs)
    }
}

/// The client that sends this parameter in the query; `%61` is `a`, and `+` a space, as for whoever reads it. Of
/// several with the name the request says nothing.
pub fn query(name: impl Into<String>) -> impl Who {
    let name = name.into();
    move |parts: &Parts| {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes());
        let bytes = |text: Cow<'_, str>| Cow::Owned(text.into_owned().into_bytes());
        only("query", &name, pairs.map(|(name, value)| (bytes(name), bytes(value))))
    }
}

/// Each path by itself: the route that it matched, where axum tells it, so that `/users/1` and `/users/2` are one.
pub fn path() -> impl Who {
    |parts: &Parts| {
        #[cfg(feature = "axum")]
        if let Some(route) = parts.extensions.get::<axum::extract::MatchedPath>() {
            return named("path", [route.as_str().as_bytes()]);
        }
        named("path", [parts.uri.path().as_bytes()])
    }
}

/// Each method by itself.
pub fn method() -> impl Who {
    |parts: &Parts| named("method", [parts.method.as_str().as_bytes()])
}

/// A subject that has to be waited for, such as by a look-up. It takes what it needs of the request with it.
pub fn later<F, W>(find: F) -> impl Who
where
    F: Fn(&Parts) -> W + Send + Sync + 'static,
    W: Future<Output = Subject> + Send + 'static,
{
    Later(find)
}

struct Later<F>(F);

impl<F, W> Who for Later<F>
where
    F: Fn(&Parts) -> W + Send + Sync + 'static,
    W: Future<Output = Subject> + Send + 'static,
{
    fn who<'p>(&'p self, parts: &'p Parts) -> Answer<'p> {
        Box::pin((self.0)(parts))
    }
}

/// The two together: a bucket for each pair. Where one of them says no key, that is what the pair says.
pub fn both(one: impl Who, other: impl Who) -> impl Who {
    Both(one, other)
}

struct Both<A, B>(A, B);

impl<A: Who, B: Who> Who for Both<A, B> {
    fn who<'p>(&'p self, parts: &'p Parts) -> Answer<'p> {
        Box::pin(async move {
            let one = match self.0.who(parts).await {
                Subject::Key(key) => key,
                otherwise => return otherwise,
            };
            match self.1.who(parts).await {
                // The last + parts them: there is none in the second.
                Subject::Key(other) => {
                    Subject::Key(format!("{one}+{}", other.replace('%', "%25").replace('+', "%2B")))
                }
                otherwise => otherwise,
            }
        })
    }
}

/// The one value of this name.
fn only<'v>(kind: &str, name: &str, pairs: impl Iterator<Item = (Cow<'v, [u8]>, Cow<'v, [u8]>)>) -> Subject {
    let mut values = pairs.filter(|(of, _)| **of == *name.as_bytes()).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(value), None) => named(kind, [name.as_bytes(), &value]),
        _ => Subject::Nobody,
    }
}

fn decoded(bytes: &[u8]) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode(bytes).into()
}

/// A key that is different for each kind, name and value. A character that is no printable ASCII, or that parts keys,
/// is written as in URLs.
pub(crate) fn named<const N: usize>(kind: &str, words: [&[u8]; N]) -> Subject {
    let mut key = kind.to_owned();
    for (n, word) in words.iter().enumerate() {
        key.push(':');
        for &byte in *word {
            match byte {
                b'%' | b'+' => key.push_str(&format!("%{byte:02X}")),
                // The last word may have it: none comes after.
                b':' if n + 1 < N => key.push_str("%3A"),
                0x21..=0x7e => key.push(char::from(byte)),
                _ => key.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    Subject::Key(key)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::task::{Context, Poll, Waker};

    use http::Request;
    use proptest::prelude::*;

    use super::*;

    fn said(by: &impl Who, request: http::request::Builder) -> Subject {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let Poll::Ready(said) = by.who(&parts).as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it waits");
        };
        said
    }

    fn key(text: &str) -> Subject {
        Subject::Key(text.to_owned())
    }

    #[test]
    fn a_request_says_what_names_it() {
        let get = |uri: &str| Request::get(uri);
        let name = HeaderName::from_static("x-api-key");
        for (said, expected) in [
            (said(&everybody(), get("/")), key("all")),
            (said(&method(), Request::post("/")), key("method:POST")),
            (said(&path(), get("/a%20b?c")), key("path:/a%2520b")),
            (
                said(&header(name.clone()), get("/").header("x-api-key", "a+b 1%")),
                key("header:x-api-key:a%2Bb%201%25"),
            ),
            (said(&header(name.clone()), get("/").header("x-api-key", "")), key("header:x-api-key:")),
            (said(&header(name.clone()), get("/")), Subject::Nobody),
            (
                said(&header(name.clone()), get("/").header("x-api-key", "1").header("x-api-key", "2")),
                Subject::Nobody,
            ),
            (said(&cookie("id"), get("/").header("cookie", "a=1; id=x=y;b=2")), key("cookie:id:x=y")),
            (
                said(&cookie("id"), get("/").header("cookie", "id=1").header("cookie", "id=2")),
                Subject::Nobody,
            ),
            (said(&cookie("id"), get("/").header("cookie", "xid=1; id")), Subject::Nobody),
            (said(&query("id"), get("/?id=a:b&x=1")), key("query:id:a:b")),
            (said(&query("id"), get("/?id=1&id=2")), Subject::Nobody),
            // However it is spelt, it is one for whoever reads it.
            (said(&query("id"), get("/?id=%61l%69ce+b")), key("query:id:alice%20b")),
            (said(&query("id"), get("/?id=1&%69d=2")), Subject::Nobody),
            (said(&cookie("id"), get("/").header("cookie", "%69d=%61")), key("cookie:id:a")),
            (said(&query("a:b"), get("/?a:b=c")), key("query:a%3Ab:c")),
            (said(&both(method(), query("id")), get("/?id=7")), key("method:GET+query:id:7")),
            (said(&both(method(), query("id")), get("/")), Subject::Nobody),
            (said(&later(|_: &Parts| async { Subject::Skip }), get("/")), Subject::Skip),
        ] {
            assert_eq!(said, expected);
        }
    }

    proptest! {
        #![proptest_config(crate::tests::cases())]

        /// Two requests have one key where they say the same, and only there.
        #[test]
        fn different_values_have_different_keys(
            values in proptest::collection::vec(("[a+%:]{0,3}", "[a+%:]{0,3}", "[a+%:]{0,3}"), 2..40),
        ) {
            let mut seen = HashMap::new();
            for value in values {
                let (one, two, three) = value.clone();
                let free = |text: String| move |_: &Parts| Subject::Key(text.clone());
                let three = both(both(free(one), free(two)), free(three));
                let said = said(&three, Request::get("/"));
                if let Some(other) = seen.insert(said.clone(), value.clone()) {
                    prop_assert_eq!(other, value, "{:?}", said);
                }
            }
        }

        #[test]
        fn different_words_have_different_keys(
            words in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..4), proptest::collection::vec(any::<u8>(), 0..4)), 2..40),
        ) {
            let mut seen = HashMap::new();
            for (name, value) in words {
                let said = named("k", [&name, &value]);
                if let Some(other) = seen.insert(said, (name.clone(), value.clone())) {
                    prop_assert_eq!(other, (name, value));
                }
            }
        }
    }
}
