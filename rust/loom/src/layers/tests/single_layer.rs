//! Lowering one layer by itself in tests: on the CPU in f64, and on a GPU.

use crate::dtype::DType;
use crate::layers::*;
use crate::ops::StepValues;
use crate::ops::testing::assert_close;
use crate::ops::testing::numbers;
use crate::program::Access;
use crate::program::{Builder, Kind, LayerPath, ParameterRef, Phase, Rewrites, Value};
use crate::simd::Real;
use crate::tensor::{Precision, Tensor};
use crate::{Network, tensor_view};
use std::sync::Arc;

/// One layer and what goes into it.
pub(in crate::layers) struct SingleLayer {
    pub layer: Arc<dyn Layer>,
    network: Network,
    pub input: Shape,
    pub output: Shape,
    pub rows: usize,
    pub x: Vec<f64>,
    /// What comes from above: a target, or a gradient.
    pub above: Vec<f64>,
    /// 0 where a step of a row is padding.
    pub mask: Option<Vec<f64>>,
    /// The packed type that the forward pass reads.
    pub active: Option<DType>,
}

/// What a trial lowers after the forward pass: from the layer, its input, its forward lowering and what comes
/// from above to the values that are looked at.
pub(in crate::layers) type Lower<'a> =
    &'a dyn Fn(&dyn Layer, &mut Builder, &Context, Value, &Forward, Value) -> Option<Vec<Value>>;

impl SingleLayer {
    pub fn new(layer: impl Layer + 'static, input: impl Into<Shape>, rows: usize) -> Self {
        Self::of(Arc::new(layer), input.into(), rows)
    }

    pub fn of(layer: Arc<dyn Layer>, input: Shape, rows: usize) -> Self {
        let output = layer.output_shape(std::slice::from_ref(&input)).unwrap();
        let (x, above) = (numbers(1, rows * input.len()), numbers(2, rows * output.len()));
        // What is f32 stays the same number in f64.
        let [x, above] = [x, above].map(|x| x.into_iter().map(|x: f64| f64::from(x as f32)).collect());
        let network = network(&layer, &input, Precision::Float64);
        Self { layer, network, input, output, rows, x, above, mask: None, active: None }
    }

    /// With padding at the end of some rows, and within one.
    pub fn masked(mut self) -> Self {
        let steps = self.input[0];
        let real = |i: usize| i % steps < steps - (i / steps).min(steps - 1) && i != 1;
        self.mask = Some((0..self.rows * steps).map(|i| f64::from(u8::from(real(i)))).collect());
        self
    }

    pub fn is_real(&self, step: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask[step] != 0.0)
    }

    /// A parameter as the outside sees it.
    pub fn parameter(&self, name: &str) -> Vec<f64> {
        self.network.parameter([0, 0, 0], 0, name).unwrap().to_f64()
    }

    pub fn set(&mut self, name: &str, values: &[f64]) {
        let shape = self.network.parameter([0, 0, 0], 0, name).unwrap().shape().to_vec();
        self.network.set_parameter([0, 0, 0], 0, name, tensor_view(&shape, values).unwrap()).unwrap();
    }

    /// A network of nothing but the layer, with the trial's parameters.
    pub fn copy<T: Real>(&self) -> Network {
        let mut copy = network(&self.layer, &self.input, T::PRECISION);
        for name in copy.parameter_names([0, 0, 0], 0).unwrap() {
            let values = self.network.parameter([0, 0, 0], 0, &name).unwrap();
            let elements: Vec<T> = values.to_f64().into_iter().map(T::from_f64).collect();
            let values = Tensor::new(values.shape().to_vec(), elements).unwrap();
            copy.set_parameter([0, 0, 0], 0, &name, values.view()).unwrap();
        }
        copy
    }

    pub fn run_on<T: Real>(&self, network: &mut Network, lower: Lower<'_>) -> Option<Vec<Vec<f64>>> {
        let mut b = Builder::new(T::PRECISION);
        b.set_phase(Phase::Forward);
        let x = b.input("input", self.input.clone(), Kind::Real);
        let above = b.input("above", self.output.clone(), Kind::Real);
        let mask = self.mask.as_ref().map(|_| b.input("mask", Shape::from([self.input[0]]), Kind::Real));
        let stores = network.registry.stores.iter().enumerate();
        let parameters = stores.flat_map(|(store, content)| {
            content.parameters().iter().enumerate().map(move |(number, info)| BoundParameter {
                name: info.name.clone(),
                reference: ParameterRef { store, parameter: Some(number) },
                shape: info.layout.storage_shape(),
                active: self.active.filter(|_| info.morphable),
                reads_packed: info.morphable,
                quantized: false,
                by_rows: false,
                trained: true,
                made: None,
            })
        });
        let parameters = parameters.collect();
        let path = LayerPath::new(0, 0, 0, 0);
        let cx = Context { path, training: true, keeps: true, parameters, mask, ..Context::default() };
        let forward = self.layer.forward(&mut b, &cx, &[x]).unwrap();
        b.set_phase(Phase::Backward);
        let made = lower(&*self.layer, &mut b, &cx, x, &forward, above)?;
        made.iter().for_each(|value| b.pin(*value));
        let mut run =
            network.device.run(Arc::new(b.finish(self.rows, &Rewrites::default()).unwrap())).unwrap();
        run.rows = self.rows;
        let given = [Some((x, &self.x)), Some((above, &self.above)), mask.zip(self.mask.as_ref())];
        for (value, numbers) in given.into_iter().flatten() {
            let numbers: Vec<T> = numbers.iter().map(|x| T::from_f64(*x)).collect();
            run.write::<T>(value).copy_from_slice(&numbers);
        }
        let access = Access::Exclusive(&mut network.registry);
        run.execute(access, Phase::Forward..=Phase::Backward, &StepValues::default()).unwrap();
        run.fetch(&made).unwrap();
        let read = |value: Value| run.read::<T>(value).iter().map(|x| x.to_f64()).collect();
        Some(made.into_iter().map(read).collect())
    }

    /// The values on the CPU in f64, with which a GPU must agree.
    pub fn run(&self, lower: Lower<'_>) -> Vec<Vec<f64>> {
        let made = self.run_on::<f64>(&mut self.copy::<f64>(), lower).unwrap();
        if crate::device::testing::gpu().is_some() {
            let mut network = self.copy::<f32>();
            network.to("gpu:0").unwrap();
            let found = self.run_on::<f32>(&mut network, lower).unwrap();
            for (found, expected) in found.iter().zip(&made) {
                assert_close(found, expected, 1e-4);
            }
        }
        made
    }
}

fn network(layer: &Arc<dyn Layer>, input: &Shape, precision: Precision) -> Network {
    let mut network = Network::with_options(input.clone(), [1, 1, 1], precision, 5).unwrap();
    network.add_arc([0, 0, 0], layer.clone()).unwrap();
    network.build().unwrap();
    network
}
