//! Feature types: direct sums of irreps of SO(2), and their layout in memory.
//!
//! Irreps are `rho_0(g) = 1` and `rho_n(g) = [[cos ng, -sin ng], [sin ng, cos ng]]`. The features of
//! one vertex lie in memory by **order, then component, then channel**: the block `16x1` is 16
//! cosine coefficients, then 16 sine coefficients.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Highest order that can be parsed: a guard against typing errors such as `16x100`.
const HIGHEST_ORDER: usize = 64;
/// Largest multiplicity that can be parsed.
const LARGEST_MULTIPLICITY: usize = 1 << 20;

/// A direct sum of irreps with multiplicities, written `16x0 + 16x1 + 16x2`, or for short
/// `16x(0,1,2)`.
///
/// ```
/// use gemcnn_kernels::FeatureType;
/// let hidden: FeatureType = "16x0 + 16x1 + 8x3".parse()?;
/// assert_eq!(hidden.dimension(), 16 + 2 * 16 + 2 * 8);
/// assert_eq!(hidden.multiplicity(2), 0);
/// assert_eq!(hidden.range(1), 16..48);
/// assert_eq!(hidden.to_string(), "16x0 + 16x1 + 8x3");
/// # Ok::<(), gemcnn_kernels::ParseTypeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FeatureType {
    /// Multiplicity of each order, the last one not zero.
    multiplicities: Vec<usize>,
}

/// The error of parsing a feature type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a feature type: {problem}; write for example `16x0 + 16x1 + 16x2`")]
pub struct ParseTypeError {
    text: String,
    problem: String,
}

impl FeatureType {
    /// The type with the given multiplicity for each order from 0.
    pub fn new(multiplicities: &[usize]) -> Self {
        let end = multiplicities.iter().rposition(|&m| m > 0).map_or(0, |n| n + 1);
        Self { multiplicities: multiplicities[..end].to_vec() }
    }

    /// `channels` scalars: `channels x 0`.
    pub fn scalars(channels: usize) -> Self {
        Self::new(&[channels])
    }

    /// The same multiplicity for every order up to `band_limit`.
    pub fn uniform(channels: usize, band_limit: usize) -> Self {
        Self::new(&vec![channels; band_limit + 1])
    }

    /// Multiplicity of each order from 0; the last one is not zero.
    pub fn multiplicities(&self) -> &[usize] {
        &self.multiplicities
    }

    /// Multiplicity of an order.
    pub fn multiplicity(&self, order: usize) -> usize {
        self.multiplicities.get(order).copied().unwrap_or(0)
    }

    /// Highest order that occurs; 0 for the empty type.
    pub fn highest_order(&self) -> usize {
        self.multiplicities.len().saturating_sub(1)
    }

    /// Orders that occur, with their multiplicities.
    pub fn orders(&self) -> impl Iterator<Item = (usize, usize)> + Clone + '_ {
        self.multiplicities.iter().copied().enumerate().filter(|&(_, multiplicity)| multiplicity > 0)
    }

    /// Length of a feature vector; the largest number there is if it is larger.
    pub fn dimension(&self) -> usize {
        self.range_start(self.multiplicities.len())
    }

    /// Range of the block of an order in a feature vector.
    pub fn range(&self, order: usize) -> Range<usize> {
        self.range_start(order)..self.range_start(order + 1)
    }

    fn range_start(&self, order: usize) -> usize {
        let below = self.multiplicities.iter().take(order).enumerate();
        let sizes = below.map(|(n, &m)| irrep_dimension(n).saturating_mul(m));
        sizes.fold(0, usize::saturating_add)
    }

    /// True if all features are scalars.
    pub fn is_scalar(&self) -> bool {
        self.multiplicities.len() <= 1
    }

    /// The common multiplicity of all orders up to the highest, if they have one.
    pub fn uniform_multiplicity(&self) -> Option<usize> {
        let first = *self.multiplicities.first()?;
        let same = self.multiplicities.iter().all(|&m| m == first);
        same.then_some(first)
    }

    /// The direct sum of both types.
    pub fn concatenated(&self, other: &Self) -> Self {
        let orders = self.multiplicities.len().max(other.multiplicities.len());
        let sums: Vec<usize> =
            (0..orders).map(|n| self.multiplicity(n).saturating_add(other.multiplicity(n))).collect();
        Self::new(&sums)
    }
}

/// Dimension of the irrep of an order: 1 for order 0, else 2.
pub const fn irrep_dimension(order: usize) -> usize {
    if order == 0 { 1 } else { 2 }
}

impl fmt::Display for FeatureType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.multiplicities.is_empty() {
            return f.write_str("0x0");
        }
        for (place, (order, multiplicity)) in self.orders().enumerate() {
            let plus = if place == 0 { "" } else { " + " };
            write!(f, "{plus}{multiplicity}x{order}")?;
        }
        Ok(())
    }
}

impl FromStr for FeatureType {
    type Err = ParseTypeError;

    fn from_str(text: &str) -> Result<Self, ParseTypeError> {
        let error = |problem: String| ParseTypeError { text: text.into(), problem };
        let mut multiplicities = Vec::new();
        for term in text.split('+') {
            let term = term.trim();
            let Some((multiplicity, order)) = term.split_once('x') else {
                return Err(error(format!("`{term}` has no `x`")));
            };
            let number = |what: &str, digits: &str, most: usize| match digits.trim().parse() {
                Ok(value) if value <= most => Ok(value),
                Ok(_) => Err(error(format!("the {what} in `{term}` is over {most}"))),
                Err(_) => Err(error(format!("the {what} in `{term}` is no whole number"))),
            };
            let multiplicity: usize = number("multiplicity", multiplicity, LARGEST_MULTIPLICITY)?;
            let list = order.trim();
            let list = list.strip_prefix('(').and_then(|l| l.strip_suffix(')'));
            let orders = match list {
                Some(list) => list.split(',').collect(),
                None => vec![order],
            };
            for order in orders {
                let order = number("order", order, HIGHEST_ORDER)?;
                if multiplicities.len() <= order {
                    multiplicities.resize(order + 1, 0);
                }
                multiplicities[order] += multiplicity;
            }
        }
        Ok(Self::new(&multiplicities))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout_is_order_then_component_then_channel() {
        let kind: FeatureType = "3x0 + 2x2".parse().unwrap();
        assert_eq!(kind.multiplicities(), [3, 0, 2]);
        assert_eq!(kind.range(0), 0..3);
        assert_eq!(kind.range(1), 3..3);
        assert_eq!(kind.range(2), 3..7);
        assert_eq!(kind.range(9), 7..7);
        assert_eq!(kind.dimension(), 7);
        assert_eq!(kind.uniform_multiplicity(), None);
        assert_eq!(FeatureType::uniform(16, 2).uniform_multiplicity(), Some(16));
        assert_eq!(FeatureType::uniform(16, 2).dimension(), 80);
    }

    #[test]
    fn terms_add_up_and_typing_errors_are_named() {
        let kind: FeatureType = "1x0+1x1 + 1x1".parse().unwrap();
        assert_eq!(kind.to_string(), "1x0 + 2x1");
        let short: FeatureType = "2x(0, 1,3) + 1x1".parse().unwrap();
        assert_eq!(short.to_string(), "2x0 + 3x1 + 2x3");
        assert_eq!("0x0".parse::<FeatureType>().unwrap(), FeatureType::default());
        for (text, problem) in [
            ("", "`` has no `x`"),
            ("16", "`16` has no `x`"),
            ("16x", "the order in `16x` is no whole number"),
            ("-1x0", "the multiplicity in `-1x0` is no whole number"),
            ("1x0 + ", "`` has no `x`"),
            ("2x65", "the order in `2x65` is over 64"),
            ("2x(0,)", "the order in `2x(0,)` is no whole number"),
            ("2x0,1", "the order in `2x0,1` is no whole number"),
            ("99999999x1", "is over 1048576"),
        ] {
            let message = text.parse::<FeatureType>().unwrap_err().to_string();
            assert!(message.contains(problem), "{message}");
        }
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_print(multiplicities in prop::collection::vec(0usize..100, 0..6)) {
            let kind = FeatureType::new(&multiplicities);
            prop_assert_eq!(kind.to_string().parse::<FeatureType>().unwrap(), kind);
        }
    }
}
