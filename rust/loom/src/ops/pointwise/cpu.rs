//! The CPU kernels of activations, over slices, on the calling thread.

use super::{Activation, Function, FunctionVisitor};
use crate::simd::{Isa, Kernel, LANES, Real, Vector};
use std::marker::PhantomData;

/// Writes `y = f(x)`; the two must be equally long.
pub fn forward<T: Real>(isa: Isa, activation: Activation, x: &[T], y: &mut [T]) {
    T::dispatch(isa, Forward { activation, x, y });
}

/// Writes `dx = dy f'`, with the derivative from `saved`, which is the input or
/// the output as [`Activation::saved`] says; the three must be equally long.
pub fn backward<T: Real>(isa: Isa, activation: Activation, saved: &[T], dy: &[T], dx: &mut [T]) {
    T::dispatch(isa, Backward { activation, saved, dy, dx });
}

/// Elements whose gradient is kept aside while they are multiplied by the derivative.
const DERIVED: usize = 64;

/// Multiplies a gradient by the derivative: for one that has just been made, still in the cache.
///
/// Has the bits of [`backward`].
pub fn derive_in_place<T: Real>(isa: Isa, activation: Activation, saved: &[T], gradient: &mut [T]) {
    for (saved, piece) in saved.chunks(DERIVED).zip(gradient.chunks_mut(DERIVED)) {
        let mut gradient = [T::ZERO; DERIVED];
        let gradient = &mut gradient[..piece.len()];
        gradient.copy_from_slice(piece);
        backward(isa, activation, saved, gradient, piece);
    }
}

/// Replaces each element by its activation: for a tile of a product, still in
/// cache, inside a kernel that already runs on `V`'s instruction set.
///
/// Has the bits of [`forward`].
#[inline(always)]
pub fn apply_in_place<V: Vector>(activation: Activation, tile: &mut [V::Element]) {
    if activation != Activation::Linear {
        activation.visit(InPlace::<V>(tile));
    }
}

/// The activation of a vector still in registers.
///
/// Chooses the row at each call; a loop should choose it once, through
/// [`Activation::visit`] and [`Function::value`], or use [`apply_in_place`].
#[inline(always)]
pub fn apply<V: Vector>(activation: Activation, x: V) -> V {
    activation.visit(Value(x))
}

impl Activation {
    /// Replaces each element by its activation, on the calling thread; has the bits of [`forward`].
    pub fn apply<T: Real>(self, isa: Isa, elements: &mut [T]) {
        T::dispatch(isa, Tile { activation: self, elements });
    }

    /// The value at one number, in the bits that every kernel gives.
    pub fn value<T: Real>(self, x: T) -> T {
        self.visit(Value(x))
    }

    /// The derivative from one number, the input or the output as
    /// [`Activation::saved`] says, in the bits that every kernel gives.
    pub fn derivative<T: Real>(self, saved: T) -> T {
        self.visit(Derivative(saved))
    }
}

/// The value at one number or vector.
struct Value<A>(A);

impl<A: super::Arithmetic> FunctionVisitor for Value<A> {
    type Output = A;

    #[inline(always)]
    fn visit<F: Function>(self, function: F) -> A {
        function.value(self.0)
    }
}

/// The derivative from one number or vector.
struct Derivative<A>(A);

impl<A: super::Arithmetic> FunctionVisitor for Derivative<A> {
    type Output = A;

    #[inline(always)]
    fn visit<F: Function>(self, function: F) -> A {
        function.derivative(self.0)
    }
}

struct Tile<'a, T> {
    activation: Activation,
    elements: &'a mut [T],
}

impl<T: Real> Kernel<T> for Tile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        apply_in_place::<V>(self.activation, self.elements);
    }
}

struct Forward<'a, T> {
    activation: Activation,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        debug_assert_eq!(self.x.len(), self.y.len());
        if self.activation == Activation::Linear {
            self.y.copy_from_slice(self.x);
        } else {
            self.activation.visit(ForwardLoop::<V> { x: self.x, y: self.y, vector: PhantomData });
        }
    }
}

struct ForwardLoop<'a, V: Vector> {
    x: &'a [V::Element],
    y: &'a mut [V::Element],
    vector: PhantomData<V>,
}

impl<V: Vector> FunctionVisitor for ForwardLoop<'_, V> {
    type Output = ();

    #[inline(always)]
    fn visit<F: Function>(self, function: F) {
        let (x, x_rest) = self.x.as_chunks::<LANES>();
        let (y, y_rest) = self.y.as_chunks_mut::<LANES>();
        for (x, y) in x.iter().zip(y) {
            function.value(V::load(x)).store(y);
        }
        if !x_rest.is_empty() {
            function.value(V::load_partial(x_rest)).store_partial(y_rest);
        }
    }
}

struct InPlace<'a, V: Vector>(&'a mut [V::Element]);

impl<V: Vector> FunctionVisitor for InPlace<'_, V> {
    type Output = ();

    #[inline(always)]
    fn visit<F: Function>(self, function: F) {
        let (whole, rest) = self.0.as_chunks_mut::<LANES>();
        for lanes in whole {
            function.value(V::load(lanes)).store(lanes);
        }
        if !rest.is_empty() {
            function.value(V::load_partial(rest)).store_partial(rest);
        }
    }
}

struct Backward<'a, T> {
    activation: Activation,
    saved: &'a [T],
    dy: &'a [T],
    dx: &'a mut [T],
}

impl<T: Real> Kernel<T> for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        debug_assert_eq!(self.saved.len(), self.dx.len());
        debug_assert_eq!(self.dy.len(), self.dx.len());
        if self.activation == Activation::Linear {
            self.dx.copy_from_slice(self.dy);
        } else {
            let Self { activation, saved, dy, dx } = self;
            activation.visit(BackwardLoop::<V> { saved, dy, dx, vector: PhantomData });
        }
    }
}

struct BackwardLoop<'a, V: Vector> {
    saved: &'a [V::Element],
    dy: &'a [V::Element],
    dx: &'a mut [V::Element],
    vector: PhantomData<V>,
}

impl<V: Vector> FunctionVisitor for BackwardLoop<'_, V> {
    type Output = ();

    #[inline(always)]
    fn visit<F: Function>(self, function: F) {
        let (saved, saved_rest) = self.saved.as_chunks::<LANES>();
        let (dy, dy_rest) = self.dy.as_chunks::<LANES>();
        let (dx, dx_rest) = self.dx.as_chunks_mut::<LANES>();
        for ((saved, dy), dx) in saved.iter().zip(dy).zip(dx) {
            (V::load(dy) * function.derivative(V::load(saved))).store(dx);
        }
        if !saved_rest.is_empty() {
            let derivative = function.derivative(V::load_partial(saved_rest));
            (V::load_partial(dy_rest) * derivative).store_partial(dx_rest);
        }
    }
}
