//! Activation functions: inside the nonlinearities, and as operators on scalars.
//!
//! An activation is applied to every value of a buffer. The backward pass needs the input only and
//! evaluates the derivative again.

pub mod cuda;
mod fast;

pub(crate) use fast::{Slopes, Values};

use crate::Real;
use crate::arguments::arguments;
use pulp::Simd;

const OPERATOR: &str = "activation";

/// An activation function.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Activation {
    /// `x`.
    Identity,
    /// `max(x, 0)`, with derivative 0 at 0.
    #[default]
    Relu,
    /// `x` above 0, `exp(x) - 1` below.
    Elu,
    /// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`: the hyperbolic-tangent form.
    Gelu,
    /// `tanh(x)`.
    Tanh,
    /// `c_0 + c_1 x + c_2 x^2 + ...` of the coefficients starting at `c_0`.
    Polynomial(Vec<f64>),
}

const GELU_CUBE: f64 = 0.044715;

impl Activation {
    /// The value at `x`.
    ///
    /// ```
    /// use gemcnn_kernels::Activation;
    /// assert_eq!(Activation::Relu.value(-2.0), 0.0);
    /// assert_eq!(Activation::Polynomial(vec![1.0, 0.0, 3.0]).value(2.0), 13.0);
    /// ```
    #[inline]
    pub fn value<T: Real>(&self, x: T) -> T {
        match self {
            Self::Identity => x,
            Self::Relu => {
                if x < T::zero() {
                    T::zero()
                } else {
                    x
                }
            }
            Self::Elu => {
                if x > T::zero() {
                    x
                } else {
                    x.exp_m1()
                }
            }
            Self::Gelu => {
                let (inner, _) = gelu_inner(x);
                T::of(0.5) * x * (T::one() + inner.tanh())
            }
            Self::Tanh => x.tanh(),
            Self::Polynomial(coefficients) => coefficients.iter().rev().fold(T::zero(), |sum, &c| sum * x + T::of(c)),
        }
    }

    /// The derivative at `x`.
    #[inline]
    pub fn slope<T: Real>(&self, x: T) -> T {
        let one = T::one();
        match self {
            Self::Identity => one,
            Self::Relu => {
                if x > T::zero() {
                    one
                } else {
                    T::zero()
                }
            }
            Self::Elu => {
                if x > T::zero() {
                    one
                } else {
                    x.exp()
                }
            }
            Self::Gelu => {
                let (inner, inner_slope) = gelu_inner(x);
                let tanh = inner.tanh();
                T::of(0.5) * (one + tanh + x * (one - tanh * tanh) * inner_slope)
            }
            Self::Tanh => {
                let tanh = x.tanh();
                one - tanh * tanh
            }
            Self::Polynomial(coefficients) => coefficients
                .iter()
                .enumerate()
                .skip(1)
                .rev()
                .fold(T::zero(), |sum, (degree, &c)| sum * x + T::of(c * degree as f64)),
        }
    }

    /// The value in every lane.
    #[inline(always)]
    pub(crate) fn values<T: Real, S: Simd>(&self, simd: S, x: T::Vector<S>) -> T::Vector<S> {
        match self {
            Self::Identity => x,
            Self::Relu => T::without_negative(simd, x),
            Self::Polynomial(coefficients) => coefficients
                .iter()
                .rev()
                .fold(T::splat(simd, T::zero()), |sum, &c| T::times_plus(simd, sum, x, T::splat(simd, T::of(c)))),
            Self::Elu | Self::Gelu | Self::Tanh => {
                let mut lanes = x;
                let each = bytemuck::cast_slice_mut(std::slice::from_mut(&mut lanes));
                simd.vectorize(|| self.value_each::<T>(each));
                lanes
            }
        }
    }

    /// `gradient` times the derivative, in every lane.
    #[inline(always)]
    pub(crate) fn slopes_times<T: Real, S: Simd>(
        &self,
        simd: S,
        x: T::Vector<S>,
        gradient: T::Vector<S>,
    ) -> T::Vector<S> {
        match self {
            Self::Identity => gradient,
            Self::Relu => T::where_positive(simd, x, gradient),
            Self::Polynomial(coefficients) => {
                let derivative = coefficients
                    .iter()
                    .enumerate()
                    .skip(1)
                    .rev()
                    .fold(T::splat(simd, T::zero()), |sum, (degree, &c)| {
                        T::times_plus(simd, sum, x, T::splat(simd, T::of(c * degree as f64)))
                    });
                T::times(simd, derivative, gradient)
            }
            Self::Elu | Self::Gelu | Self::Tanh => {
                let mut lanes = x;
                let each = bytemuck::cast_slice_mut(std::slice::from_mut(&mut lanes));
                simd.vectorize(|| self.slope_each::<T>(each));
                T::times(simd, lanes, gradient)
            }
        }
    }

    /// Replaces each `x` by its value, for the functions that use exponentials. Called through `vectorize`,
    /// so that it is not inlined: next to exponentials a call is cheap, and each copy of them costs build
    /// time.
    #[inline(always)]
    fn value_each<T: Real>(&self, lanes: &mut [T]) {
        match self {
            Self::Elu => lanes.iter_mut().for_each(|x| {
                let below = x.min(T::zero()).exp_m1_of_negative();
                // Compared this way round, NaN stays NaN.
                *x = if *x <= T::zero() { below } else { *x };
            }),
            Self::Gelu => lanes.iter_mut().for_each(|x| {
                let (inner, _) = gelu_inner(*x);
                *x = T::of(0.5) * *x * (T::one() + inner.fast_tanh());
            }),
            Self::Tanh => lanes.iter_mut().for_each(|x| *x = x.fast_tanh()),
            _ => lanes.iter_mut().for_each(|x| *x = self.value(*x)),
        }
    }

    /// Replaces each `x` by its derivative, likewise.
    #[inline(always)]
    fn slope_each<T: Real>(&self, lanes: &mut [T]) {
        let one = T::one();
        match self {
            Self::Elu => lanes.iter_mut().for_each(|x| {
                let below = x.min(T::zero()).exp_of_negative();
                *x = if *x > T::zero() { one } else { below };
            }),
            Self::Gelu => lanes.iter_mut().for_each(|x| {
                let (inner, inner_slope) = gelu_inner(*x);
                let tanh = inner.fast_tanh();
                *x = T::of(0.5) * (one + tanh + *x * (one - tanh * tanh) * inner_slope);
            }),
            Self::Tanh => lanes.iter_mut().for_each(|x| {
                let tanh = x.fast_tanh();
                *x = one - tanh * tanh;
            }),
            _ => lanes.iter_mut().for_each(|x| *x = self.slope(*x)),
        }
    }
}

/// The argument of the hyperbolic tangent in GELU, and its slope.
#[inline(always)]
fn gelu_inner<T: Real>(x: T) -> (T, T) {
    let scale = T::of((2.0 / std::f64::consts::PI).sqrt());
    let square = x * x;
    (scale * x * (T::one() + T::of(GELU_CUBE) * square), scale * (T::one() + T::of(3.0 * GELU_CUBE) * square))
}

arguments! {
    /// `y = f(x)` for every value.
    Forward = forward(OPERATOR) {
        activation: &'a Activation;
        x: read,
        y: write[x.len()],
    }

    /// `dx = f'(x) dy` for every value.
    Backward = backward(OPERATOR) {
        activation: &'a Activation;
        x: read,
        dy: read[x.len()],
        dx: write[x.len()],
    }
}

/// One of each, for the tests of the operators that take an activation.
#[cfg(test)]
pub(crate) fn examples() -> [Activation; 6] {
    [
        Activation::Identity,
        Activation::Relu,
        Activation::Elu,
        Activation::Gelu,
        Activation::Tanh,
        Activation::Polynomial(vec![0.3, -0.5, 0.25, 0.125]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_close, check_gradient, check_threads, random, wrong_length};

    #[test]
    fn values_follow_their_definitions() {
        let at = |activation: Activation, x: f64| activation.value(x);
        assert_eq!(at(Activation::Identity, -1.5), -1.5);
        assert_eq!(at(Activation::Relu, 1.5), 1.5);
        assert_eq!(Activation::Relu.slope(0.0), 0.0);
        assert!(at(Activation::Relu, f64::NAN).is_nan());
        assert!((at(Activation::Elu, -1.0) - ((-1f64).exp() - 1.0)).abs() < 1e-16);
        // x Phi(x) at 1 is 0.841345; the hyperbolic-tangent form differs in the fourth digit.
        assert!((at(Activation::Gelu, 1.0) - 0.841_191_990_6).abs() < 1e-10);
        assert!((at(Activation::Tanh, 0.5) - 0.462_117_157_26).abs() < 1e-10);
    }

    fn vectors_agree<T: Real>(tolerance: f64) {
        for activation in examples() {
            for count in [0, 1, 3, 33, 9001] {
                let x: Vec<T> = random(count, 1);
                let dy: Vec<T> = random(count, 2);
                let (mut y, mut dx) = (vec![T::one(); count], vec![T::one(); count]);
                Forward { activation: &activation, x: &x[..], y: &mut y[..] }.on_host().unwrap();
                Backward { activation: &activation, x: &x[..], dy: &dy[..], dx: &mut dx[..] }.on_host().unwrap();
                let values: Vec<T> = x.iter().map(|&x| activation.value(x)).collect();
                let slopes = x.iter().zip(&dy).map(|(&x, &dy)| activation.slope(x) * dy);
                check_close(&y, &values, tolerance, "values");
                check_close(&dx, &slopes.collect::<Vec<T>>(), tolerance, "slopes");
            }
        }
    }

    #[test]
    fn vectors_agree_with_single_numbers() {
        vectors_agree::<f32>(1e-6);
        vectors_agree::<f64>(1e-14);
        let mut y = [0f32; 3];
        Forward { activation: &Activation::Relu, x: &[f32::NAN, -1.0, 2.0][..], y: &mut y[..] }.on_host().unwrap();
        assert!(y[0].is_nan() && y[1..] == [0.0, 2.0]);
    }

    #[test]
    fn slopes_are_those_of_the_values() {
        let x: Vec<f64> = random(40, 3);
        let dy: Vec<f64> = random(40, 4);
        for activation in examples() {
            let mut dx = vec![0.0; 40];
            Backward { activation: &activation, x: &x[..], dy: &dy[..], dx: &mut dx[..] }.on_host().unwrap();
            check_gradient(&x, &dx, |x| x.iter().zip(&dy).map(|(&x, dy)| activation.value(x) * dy).sum());
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let x: Vec<f32> = random(20_000, 5);
        check_threads(|| {
            let mut y = vec![0.0; x.len()];
            Forward { activation: &Activation::Gelu, x: &x[..], y: &mut y[..] }.on_host().unwrap();
            y
        });
    }

    #[test]
    fn lengths_are_checked() {
        let (activation, x, none) = (&Activation::Relu, &[1f32][..], &[][..]);
        let error = Forward { activation, x, y: &mut [][..] }.on_host().unwrap_err();
        assert_eq!(wrong_length(error), ("y", 0, 1));
        assert!(Backward { activation, x, dy: none, dx: &mut [0.0][..] }.on_host().is_err());
    }
}
