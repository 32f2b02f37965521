//! Names of the choices of experiments.

/// Names the variants of an enum: makes `ALL`, `name`, `Display` and `FromStr`.
macro_rules! names {
    ($choice:ident, $what:literal, { $($variant:ident: $name:literal),+ $(,)? }) => {
        impl $choice {
            /// All of them, in order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $choice {
            type Err = gemcnn_tasks::TaskError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|choice| choice.name() == text);
                found.ok_or_else(|| {
                    let names = Self::ALL.map(Self::name).join(", ");
                    gemcnn_tasks::TaskError::setting($what, format!("`{text}` is not one of {names}"))
                })
            }
        }
    };
}
pub(crate) use names;
