//! Values that have a name each: the same in SQL, in JSON and on the command line.

/// Gives each value of an enum its name, there and back: `as_str`, `Display`, `FromStr`, `Serialize`, `Deserialize`,
/// as a schema, and on command lines.
///
/// An unknown name is the caller's error, which lists the known ones; with `ledger` in front it is a newer program's.
macro_rules! names {
    (ledger $choice:ident, $what:literal, $($value:ident $name:literal),+ $(,)?) => {
        $crate::names::names!(@ $choice, $($value $name),+; |name: &str| $crate::error::Error::schema(format!(
            "unknown {} {name:?} in the ledger; upgrade tallygate", $what
        )));
    };
    ($choice:ident, $what:literal, $($value:ident $name:literal),+ $(,)?) => {
        $crate::names::names!(@ $choice, $($value $name),+; |name: &str| {
            let names = [$($name),+].join(", ");
            $crate::error::Error::invalid(format!("unknown {} {name:?}; there are {names}", $what))
        });
    };
    (@ $choice:ident, $($value:ident $name:literal),+; $unknown:expr) => {
        impl $choice {
            /// Each of them.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// Its name in SQL, in JSON and on the command line.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        #[cfg(feature = "clap")]
        impl clap::ValueEnum for $choice {
            fn value_variants<'a>() -> &'a [Self] {
                Self::ALL
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                Some(clap::builder::PossibleValue::new(self.as_str()))
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $choice {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($choice).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($name),+] })
            }
        }

        impl std::fmt::Display for $choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $choice {
            type Err = $crate::error::Error;

            fn from_str(name: &str) -> $crate::error::Result<Self> {
                match name {
                    $($name => Ok(Self::$value),)+
                    _ => Err($unknown(name)),
                }
            }
        }

        impl serde::Serialize for $choice {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $choice {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <std::borrow::Cow<'de, str>>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use names;
