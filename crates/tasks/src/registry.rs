//! Registries of kinds that configurations choose by name.
//!
//! Models and features are chosen by a `kind` in a configuration. A [`Registry`] maps each kind to the
//! type of its settings; a [`Choice`] is a kind with its settings. Built-in kinds and kinds from outside
//! are registered in the same way, by one line.

use crate::{Result, TaskError};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Key of the kind in a configuration table.
const KIND: &str = "kind";
/// The kind that a list of kinds stands for.
pub(crate) const COMBINED: &str = "combined";

/// Settings of one kind: a struct with defaults that serde reads and writes. `#[serde(default,
/// deny_unknown_fields)]` is recommended.
pub trait Settings: Serialize + DeserializeOwned + Default + Send + Sync + 'static {
    /// Name in configurations.
    const KIND: &'static str;
}

/// A trait object that configurations choose by name.
pub trait Chosen: fmt::Debug + Send + Sync + 'static {
    /// The registry of all kinds.
    fn registry() -> &'static Registry<Self>;
}

/// Reads settings; returns them with defaults filled in, and the trait object.
type Parse<C> = fn(Value) -> Result<(Map<String, Value>, Arc<C>), serde_json::Error>;

/// The kinds that a configuration can choose.
pub struct Registry<C: ?Sized> {
    /// The table in configurations, for messages.
    what: &'static str,
    kinds: RwLock<BTreeMap<&'static str, Parse<C>>>,
}

impl<C: Chosen + ?Sized> Registry<C> {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, kinds: RwLock::default() }
    }

    /// Adds a kind. It replaces an earlier one of the same name.
    pub(crate) fn add(&self, kind: &'static str, parse: Parse<C>) {
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        kinds.insert(kind, parse);
    }

    /// Names of all kinds, in alphabetical order.
    pub fn kinds(&self) -> Vec<&'static str> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        kinds.keys().copied().collect()
    }

    /// Names of the kinds that a name alone can choose: all but that of a list.
    pub fn named_kinds(&self) -> Vec<&'static str> {
        let mut kinds = self.kinds();
        kinds.retain(|&kind| kind != COMBINED);
        kinds
    }

    /// `KIND:NAME` stands for the kind with the setting `name`.
    fn parse(&self, kind: &str, mut settings: Map<String, Value>) -> Result<Choice<C>> {
        let kind = match kind.split_once(':') {
            Some((kind, name)) => {
                settings.entry("name").or_insert_with(|| name.into());
                kind
            }
            None => kind,
        };
        let found = {
            let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
            kinds.get_key_value(kind).map(|(&kind, &parse)| (kind, parse))
        };
        let Some((kind, parse)) = found else {
            return Err(TaskError::setting(
                self.what,
                format!("`{kind}` is not a registered kind; the kinds are {}", self.named_kinds().join(", ")),
            ));
        };
        let (settings, value) = parse(Value::Object(settings.clone())).map_err(|error| {
            let problem = in_words(&error);
            // A setting that is wrong is so on its own.
            let is_wrong = |(name, value): &(&String, &Value)| {
                let alone = Map::from_iter([((*name).clone(), (*value).clone())]);
                parse(Value::Object(alone)).is_err_and(|alone| in_words(&alone) == problem)
            };
            let wrong = settings.iter().find(is_wrong).filter(|_| problem.starts_with("invalid"));
            let what = wrong.map_or(String::new(), |(name, _)| format!(": {name}"));
            TaskError::setting(format!("{} `{kind}`{what}", self.what), problem)
        })?;
        Ok(Choice { kind, settings, value })
    }
}

/// The problem with the type of a setting, without names of types of the program.
fn in_words(error: &serde_json::Error) -> String {
    let mut problem = error.to_string();
    for (word, meaning) in [("usize", "a whole number"), ("u64", "a whole number"), ("f64", "a number")] {
        if problem.ends_with(&format!("expected {word}")) {
            problem.truncate(problem.len() - word.len());
            problem += meaning;
        }
    }
    problem
}

/// Reads the settings `S` of a kind and makes a `C` from them.
macro_rules! parser {
    ($settings:ty, $chosen:ty) => {
        |value| {
            let settings: $settings = serde_json::from_value(value)?;
            let all = $crate::registry::filled(&settings)?;
            let made: std::sync::Arc<$chosen> = std::sync::Arc::new(settings);
            Ok((all, made))
        }
    };
}
pub(crate) use parser;

/// Declares settings: a struct with the default of each field and, for a kind, its name in configurations.
macro_rules! settings {
    ($(#[$docs:meta])* $name:ident $(= $kind:literal)? {
        $($(#[$field_docs:meta])* $field:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$docs])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_docs])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        $(impl $crate::Settings for $name {
            const KIND: &'static str = $kind;
        })?
    };
}
pub(crate) use settings;

/// Declares the built-in kinds of a trait and registers them: for each module, the settings that it holds. `$what` is
/// the table in configurations.
macro_rules! kinds {
    ($what:literal: $chosen:ident { $($module:ident: $($kind:ident),+;)+ }) => {
        $(mod $module;
        pub use $module::{$($kind),+};)+

        impl Chosen for dyn $chosen {
            fn registry() -> &'static Registry<Self> {
                static KINDS: LazyLock<Registry<dyn $chosen>> = LazyLock::new(|| {
                    let kinds = Registry::new($what);
                    $($(kinds.add($kind::KIND, parser!($kind, dyn $chosen));)+)+
                    kinds
                });
                &KINDS
            }
        }

        impl<S: $chosen + Settings> From<S> for Choice<dyn $chosen> {
            fn from(settings: S) -> Self {
                Self::from_parts(S::KIND, filled(&settings).unwrap_or_default(), Arc::new(settings))
            }
        }
    };
}
pub(crate) use kinds;

/// Settings with their defaults filled in.
pub(crate) fn filled(settings: &impl Serialize) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::to_value(settings)? {
        Value::Object(settings) => Ok(settings),
        _ => Err(serde_json::Error::custom("settings must be a struct")),
    }
}

/// A kind with its settings. Two choices are equal if their kinds and settings are.
#[derive(Debug)]
pub struct Choice<C: ?Sized> {
    kind: &'static str,
    settings: Map<String, Value>,
    value: Arc<C>,
}

impl<C: Chosen + ?Sized> Choice<C> {
    pub(crate) fn from_parts(kind: &'static str, settings: Map<String, Value>, value: Arc<C>) -> Self {
        Self { kind, settings, value }
    }

    /// A kind with default settings.
    ///
    /// # Errors
    /// A kind that is not registered; the message lists those that are.
    pub fn of_kind(kind: &str) -> Result<Self> {
        C::registry().parse(kind, Map::new())
    }

    /// A kind with default settings, or several, separated by commas.
    pub fn of_kinds(names: &str) -> Result<Self> {
        match names.contains(',') {
            false => Self::of_kind(names.trim()),
            true => {
                let names = names.split(',').map(|name| Value::from(name.trim()));
                let of = Map::from_iter([("of".into(), Value::from_iter(names))]);
                C::registry().parse(COMBINED, of)
            }
        }
    }

    /// Name of the kind.
    pub fn name(&self) -> &'static str {
        self.kind
    }
}

impl<C: ?Sized> std::ops::Deref for Choice<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.value
    }
}

impl<C: ?Sized> Clone for Choice<C> {
    fn clone(&self) -> Self {
        Self { kind: self.kind, settings: self.settings.clone(), value: Arc::clone(&self.value) }
    }
}

impl<C: ?Sized> PartialEq for Choice<C> {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.settings) == (other.kind, &other.settings)
    }
}

impl<C: ?Sized> Serialize for Choice<C> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let kind = (KIND.to_owned(), Value::from(self.kind));
        let settings = self.settings.iter().map(|(k, v)| (k.clone(), v.clone()));
        to.collect_map([kind].into_iter().chain(settings))
    }
}

impl<'de, C: Chosen + ?Sized> Deserialize<'de> for Choice<C> {
    /// A table with a `kind`; the name of a kind, with default settings; or a list of these, which the kind `combined`
    /// takes together.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut settings = match Value::deserialize(from)? {
            Value::Object(settings) => settings,
            Value::String(kind) => Map::from_iter([(KIND.into(), kind.into())]),
            list @ Value::Array(_) => Map::from_iter([(KIND.into(), COMBINED.into()), ("of".into(), list)]),
            _ => return Err(D::Error::custom("must be a table, a name or a list")),
        };
        let kind = match settings.remove(KIND) {
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(D::Error::custom("`kind` must be a string")),
            None => return Err(D::Error::missing_field(KIND)),
        };
        let choice = C::registry().parse(&kind, settings);
        choice.map_err(|error| D::Error::custom(error.to_string()))
    }
}

/// True for settings that are not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
