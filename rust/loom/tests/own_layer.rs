//! A layer of a user's own, made of loom's operations and of one that loom does not have: known by
//! name, trained, saved and loaded like any other, on the CPU and on a GPU.

use loom::layers::{
    Configured, Context, Dense, Forward, Layer, ParameterSpec, Sample, Want, from_config, register,
};
use loom::ops::{Custom, CustomExtents, CustomOperation, CustomWgsl, Scale};
use loom::program::{Builder, Value};
use loom::train::{Examples, Initializer, LossConfig, TrainingConfig, train};
use loom::weights::Layout;
use loom::{Network, Result, Shape, tensor_view};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `strength * x^3`, by an operation of its own and one of loom's, plus a trained shift.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cubic {
    strength: f64,
}

/// `x^3`, or its gradient from x and dy.
#[derive(Clone, Copy, Debug)]
struct Cube {
    gradient: bool,
}

impl Cube {
    fn run<T: loom::simd::Real>(self, args: &mut loom::ops::Args<'_>) {
        let x = args.read::<T>(0);
        let three = T::from_f64(3.0);
        if self.gradient {
            let dy = args.read::<T>(1);
            for ((x, dy), dx) in x.iter().zip(dy).zip(args.write::<T>(0)) {
                *dx = three * *x * *x * *dy;
            }
        } else {
            for (x, y) in x.iter().zip(args.write::<T>(0)) {
                *y = *x * *x * *x;
            }
        }
    }
}

impl CustomOperation for Cube {
    fn name(&self) -> &str {
        if self.gradient { "cube_gradient" } else { "cube" }
    }

    fn run_f32(&self, args: &mut loom::ops::Args<'_>) -> Result<()> {
        self.run::<f32>(args);
        Ok(())
    }

    fn run_f64(&self, args: &mut loom::ops::Args<'_>) -> Result<()> {
        self.run::<f64>(args);
        Ok(())
    }

    fn wgsl(&self, extents: &CustomExtents) -> Option<CustomWgsl> {
        let (operand, value) = if self.gradient {
            ("@group(0) @binding(1) var<storage, read> dy: array<f32>;", "3.0 * x[i] * x[i] * dy[i]")
        } else {
            ("", "x[i] * x[i] * x[i]")
        };
        let last = extents.reads.len();
        let source = format!(
            "@group(0) @binding(0) var<storage, read> x: array<f32>;\n{operand}\n\
             @group(0) @binding({last}) var<storage, read_write> y: array<f32>;\n\
             struct Constants {{ step: u32, count: u32 }}\n\
             var<immediate> constants: Constants;\n\
             @compute @workgroup_size(64)\n\
             fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,\n\
                     @builtin(local_invocation_index) thread: u32) {{\n\
                 let i = group_index(group, groups) * 64u + thread;\n\
                 if (i < constants.count) {{ y[i] = {value}; }}\n\
             }}\n"
        );
        let count = extents.writes[0];
        Some(CustomWgsl { source, constants: vec![count as u32], groups: count.div_ceil(64) })
    }
}

impl Configured for Cubic {
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self { strength: 0.5 }, [3])]
    }
}

impl Layer for Cubic {
    fn kind(&self) -> &'static str {
        "cubic"
    }

    fn config(&self) -> serde_json::Value {
        serde_json::json!({ "type": "cubic", "strength": self.strength })
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        Ok(inputs[0].clone())
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let count = inputs[0].len();
        vec![ParameterSpec {
            name: "shift".into(),
            layout: Layout::plain([count]),
            initializer: Initializer::Zeros,
            fan_in: count,
            fan_out: count,
            morphable: false,
            decay_exempt: false,
            adaptable: false,
        }]
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let shape = b.shape(inputs[0]).clone();
        let cube = Custom(Arc::new(Cube { gradient: false }));
        let cubed = b.apply(cube, inputs, "cubed", shape.clone());
        let scaled = b.apply(Scale { factor: self.strength }, &[cubed], "scaled", shape.clone());
        let shift = cx.read(b, "shift")?;
        let channels = shape.len();
        let add = loom::ops::BiasAdd { outer: 1, channels, inner: 1 };
        Ok(Forward::new(b.apply(add, &[scaled, shift], "y", shape)))
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let shape = b.shape(inputs[0]).clone();
        if want.parameters {
            let sum = loom::ops::BiasGradient { outer: 1, channels: shape.len(), inner: 1 };
            cx.contribute(b, "shift", sum, &[gradient])?;
        }
        if !want.inputs {
            return Ok(vec![None]);
        }
        let scaled = b.apply(Scale { factor: self.strength }, &[gradient], "ds", shape.clone());
        let cube = Custom(Arc::new(Cube { gradient: true }));
        Ok(vec![Some(b.apply(cube, &[inputs[0], scaled], "dx", shape))])
    }
}

fn trained(device: &str) -> Result<(Network, f64)> {
    let input: Vec<f32> = (0..60).map(|i| ((i as f32 + 1.0) * 0.618).fract() * 2.0 - 1.0).collect();
    let target: Vec<f32> = input.chunks(2).map(|x| x[0] * x[0] * x[0] - x[1]).collect();
    let mut network = Network::sequential([2])?;
    network.add([0, 0, 0], Dense::new(4))?;
    let layer = from_config(&serde_json::json!({ "type": "cubic", "strength": 0.5 }))?;
    network.add_arc([0, 0, 0], layer.into())?;
    network.add([0, 0, 0], Dense::new(1))?;
    network.to(device)?;
    let examples = Examples::regression(tensor_view(&[30, 2], &input)?, tensor_view(&[30, 1], &target)?);
    let config = TrainingConfig {
        epochs: 150,
        batch_size: 10,
        learning_rate: 0.02,
        loss: LossConfig::parse("mse")?,
        ..TrainingConfig::default()
    };
    let loss = train(&mut network, &examples, &config)?.final_loss;
    Ok((network, loss))
}

#[test]
fn a_layer_of_ones_own_is_a_layer_like_any_other() -> Result<()> {
    register::<Cubic>("cubic")?;
    assert!(register::<Cubic>("cubic").is_err(), "a name can be taken once");
    let (mut network, loss) = trained("cpu")?;
    assert!(loss < 0.02, "loss {loss}");

    let copy = Network::from_bytes(&network.to_bytes(Default::default())?)?;
    let input = [0.25f32, -0.5];
    let view = || tensor_view(&[1, 2], &input);
    assert_eq!(copy.predict(view()?)?.to_f32(), network.predict(view()?)?.to_f32());

    if cfg!(feature = "gpu") {
        match trained("gpu:0") {
            Ok((_, found)) => assert!((found - loss).abs() < 1e-3 + 0.1 * loss, "{found} and {loss}"),
            Err(error) if std::env::var("LOOM_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
                panic!("{error}")
            }
            Err(error) => eprintln!("skipped on a GPU: {error}"),
        }
    }
    Ok(())
}
