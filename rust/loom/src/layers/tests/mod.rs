//! What is proved of layers, and not of one file alone.
//!
//! - `conformance`: every registered layer on every sample that it names: shapes, gradients, the same bits
//!   everywhere, devices, configs, files, resumed trainings, learning by targets;
//! - `numeric_types`, `parameter_types`: weights in every numeric type, parameters each in one of their own;
//! - `learning_types`: every layer with weights learns through every numeric type;
//! - `diverging`: a step lands whole and finite, or nothing of it does;
//! - `looking`: what is shown of a layer is the newest pass's, and showing it moves nothing;
//! - `golden`: outputs and gradients are those of other frameworks;
//! - `targets`, `feedback`: rules for targets against the plain formulas, and feedback maps that lead back;
//! - `attention`, `recurrent`: sessions, states that are carried, configs and errors of these layers.
//!
//! `setup` puts a layer into a network, `trial` lowers one by itself.

mod attention;
mod conformance;
mod diverging;
mod feedback;
mod golden;
mod learning_types;
mod looking;
mod numeric_types;
mod parameter_types;
mod recurrent;
mod setup;
pub(super) mod single_layer;
mod targets;
