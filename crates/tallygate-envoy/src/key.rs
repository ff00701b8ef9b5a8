//! The key of a bucket, of what a descriptor says.

use sha2::{Digest, Sha256};

/// The longest key that a bucket has.
const KEY_BYTES: usize = 255;

/// The key of these entries, names and values: `remote_address=203.0.113.9`, `plan=free&user=alice`, and `all` of none.
///
/// Different entries have different keys: what parts them is written as in URLs. A key that is too long is its SHA-256, which no
/// other key looks like, since names have no colon.
pub(crate) fn key(entries: &[(&str, &str)]) -> String {
    if entries.is_empty() {
        return "all".to_owned();
    }
    let mut key = String::new();
    for (name, value) in entries {
        if !key.is_empty() {
            key.push('&');
        }
        escape(name, &['%', '&', '=', ':'], &mut key);
        key.push('=');
        escape(value, &['%', '&'], &mut key);
    }
    if key.len() <= KEY_BYTES {
        return key;
    }
    let hash = Sha256::digest(key.as_bytes());
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn escape(text: &str, parting: &[char], into: &mut String) {
    for c in text.chars() {
        if c.is_control() || parting.contains(&c) {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| *into += &format!("%{byte:02X}"));
        } else {
            into.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tallygate::Check;

    use super::*;

    #[test]
    fn keys_are_read_by_people() {
        let table: [(&[(&str, &str)], &str); 7] = [
            (&[], "all"),
            (&[("remote_address", "2001:db8::1")], "remote_address=2001:db8::1"),
            (&[("plan", "free"), ("user", "alice=1")], "plan=free&user=alice=1"),
            (&[("plan", "free&user=alice")], "plan=free%26user=alice"),
            (&[("user", "")], "user="),
            (&[("erased:x", "100%\n\u{85}")], "erased%3Ax=100%25%0A%C2%85"),
            (&[("name", "Zoë 猫")], "name=Zoë 猫"),
        ];
        for (entries, expected) in table {
            assert_eq!(key(entries), expected);
        }
        let long = key(&[("user", &"a".repeat(251))]);
        assert_eq!((long.len(), &long[..7]), (71, "sha256:"));
        assert_eq!(key(&[("user", &"a".repeat(250))]).len(), 255);
    }

    /// Texts out of what parts keys, so that it is met often.
    fn text() -> impl Strategy<Value = String> {
        let of = |text: &'static str| prop::sample::select(text.chars().collect::<Vec<_>>());
        let c = prop_oneof![6 => of("ab%&=:2635DA"), 1 => of("\n\u{7f}\u{85}é"), 1 => any::<char>()];
        prop::collection::vec(c, 0..8).prop_map(String::from_iter)
    }

    fn entries() -> impl Strategy<Value = Vec<(String, String)>> {
        prop::collection::vec((text(), text()), 0..4)
    }

    /// Parted first, and then unescaped: where that gives the entries, no others have the key.
    fn read_back(key: &str) -> Vec<(String, String)> {
        let text = |escaped: &str| {
            let mut parts = escaped.split('%');
            let mut bytes = parts.next().unwrap().as_bytes().to_vec();
            for part in parts {
                bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            String::from_utf8(bytes).unwrap()
        };
        if key == "all" {
            return Vec::new();
        }
        let pairs = key.split('&').map(|pair| pair.split_once('=').unwrap());
        pairs.map(|(name, value)| (text(name), text(value))).collect()
    }

    proptest! {
        #![proptest_config(crate::tests::cases())]

        #[test]
        fn the_entries_are_read_back_from_the_key(entries in entries()) {
            let pairs: Vec<_> = entries.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let key = key(&pairs);
            if !key.starts_with("sha256:") {
                prop_assert_eq!(read_back(&key), entries, "{}", key);
            }
        }

        #[test]
        fn long_keys_are_apart(entries in entries(), long in "[a-z]{256,300}", end in "[a-z]", other in "[A-Z]") {
            let with = |end: &str| {
                let value = format!("{long}{end}");
                let more = [("user", value.as_str())];
                key(&entries.iter().map(|(k, v)| (k.as_str(), v.as_str())).chain(more).collect::<Vec<_>>())
            };
            prop_assert!(with(&end).starts_with("sha256:"));
            prop_assert_ne!(with(&end), with(&other));
        }

        #[test]
        fn every_key_can_be_stored(entries in entries(), times in 1_usize..40) {
            let long: Vec<_> = entries.iter().map(|(k, v)| (k.as_str(), v.repeat(times))).collect();
            let pairs: Vec<_> = long.iter().map(|(k, v)| (*k, v.as_str())).collect();
            let key = key(&pairs);
            prop_assert!(Check::new("z", &key).validate().is_ok(), "{key:?}");
        }
    }
}
