//! What is done to images, and what they are made of.

use std::fmt::Debug;

/// What is done to an image, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Left and right change places.
    pub mirrored: bool,
    /// Top and bottom change places.
    pub upside_down: bool,
    /// By how many pixels it is moved downwards; zeros where it was.
    pub down: i64,
    /// By how many pixels to the right.
    pub right: i64,
    /// Sine and cosine of the angle it is turned by around its middle; zeros come in from outside.
    pub turn: Option<[f32; 2]>,
    /// Factors of brightness, contrast and saturation.
    pub colours: Option<[f32; 3]>,
    /// Top, left, height and width of what becomes zeros.
    pub erased: Option<[usize; 4]>,
}

impl Change {
    /// Nothing.
    pub const NONE: Self = Self {
        mirrored: false,
        upside_down: false,
        down: 0,
        right: 0,
        turn: None,
        colours: None,
        erased: None,
    };
}

/// Extents of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Colours.
    pub channels: usize,
    /// Rows of pixels.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
}

impl Extents {
    pub(super) fn plane(self) -> usize {
        self.height * self.width
    }

    pub(super) fn elements(self) -> usize {
        self.channels * self.plane()
    }
}

/// What colours are computed in.
pub trait Number:
    Copy
    + Debug
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
{
    /// A constant.
    fn of(value: f64) -> Self;
}

impl Number for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Number for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

/// An element of an image: a byte from 0 to 255, or a real number from 0 to 1.
pub trait Pixel: Copy + Default + Send + Sync {
    /// What it is computed with.
    type Number: Number;
    /// What stands for white.
    const WHITE: f64;

    /// The number that it is.
    fn number(self) -> Self::Number;
    /// The nearest to a number between 0 and [`WHITE`](Self::WHITE).
    fn nearest(number: Self::Number) -> Self;
}

impl Pixel for u8 {
    type Number = f32;
    const WHITE: f64 = 255.0;

    fn number(self) -> f32 {
        f32::from(self)
    }

    fn nearest(number: f32) -> Self {
        number.round_ties_even() as u8
    }
}

macro_rules! real_pixel {
    ($($real:ty),*) => {$(
        impl Pixel for $real {
            type Number = $real;
            const WHITE: f64 = 1.0;

            fn number(self) -> $real {
                self
            }

            fn nearest(number: $real) -> Self {
                number
            }
        }
    )*};
}

real_pixel!(f32, f64);
