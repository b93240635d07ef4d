//! What the weight store promises.

mod routes;

use super::*;
use crate::dtype::{Calibration, DType, Granularity, Recipe, Rounding};
use crate::random::{Stream, Use};
use crate::simd::Cpu;
use crate::tensor::{Elements, TensorView};
use crate::{Error, Result};
use proptest::prelude::*;

fn store() -> Result<WeightStore> {
    let weight = ("weight", Layout::input_major([3, 5]), true);
    WeightStore::new::<f32>(&[weight, ("bias", Layout::plain([3]), false)])
}

#[test]
fn parameters_are_aligned_views_of_one_master() -> Result<()> {
    let store = store()?;
    assert_eq!(store.parameters()[1].offset, 64);
    assert_eq!((store.len(), store.parameter_count()), (128, 18));
    Ok(())
}

#[test]
fn a_stale_version_is_never_handed_out() -> Result<()> {
    let mut store = store()?;
    store.set_storage(0, &[0.5; 15])?;
    store.morph(Some(DType::Int8), None)?;
    assert!(store.version(DType::Int8, 0).is_ok());
    store.set_storage(0, &[0.25; 15])?;
    assert!(store.version(DType::Int8, 0).is_err());
    store.refresh(Cpu::global()?)?;
    assert_eq!(store.decoded(0)?.to_f32(), vec![0.25; 15]);
    Ok(())
}

#[test]
fn bad_values_leave_the_store_as_it_was() -> Result<()> {
    let mut store = store()?;
    let before = store.epoch();
    for bad in [f64::NAN, f64::INFINITY, 1e300] {
        let values = [bad; 15];
        assert!(store.set(0, &TensorView::new([3, 5], Elements::Float64(&values))?).is_err());
        assert!(store.set_storage(0, &values).is_err());
    }
    assert!(store.set(0, &TensorView::new([5, 3], Elements::Float32(&[0.0; 15]))?).is_err());
    assert!(store.set_storage(0, &[0.0; 14]).is_err());
    assert_eq!(store.epoch(), before);
    assert_eq!(store.get(0)?.to_f32(), [0.0; 15]);
    Ok(())
}

#[test]
fn a_refused_type_names_the_parameter_and_changes_nothing() -> Result<()> {
    let mut store = store()?;
    store.set_storage(0, &[1e6; 15])?;
    store.morph(Some(DType::Int8), None)?;
    let error = store.morph(Some(DType::Float16), None).unwrap_err();
    assert!(matches!(error, Error::Value(_)) && error.to_string().contains("\"weight\""), "{error}");
    let block = Some(Granularity::Block(2));
    assert!(matches!(store.morph(Some(DType::Q4_0), block), Err(Error::DType(_))));
    assert_eq!(store.dtype_of(0), Some(DType::Int8));
    assert!(store.version(DType::Int8, 0).is_ok());
    Ok(())
}

#[test]
fn versions_of_every_type_follow_the_master() -> Result<()> {
    let weights: Vec<f64> = (0..15).map(|i| f64::from(i) / 8.0 - 0.7).collect();
    for dtype in DType::all() {
        for asked in [None, Some(Granularity::Tensor), Some(Granularity::Block(2))] {
            if dtype.granularity(asked).is_err() {
                continue;
            }
            let mut store = store()?;
            store.morph(Some(dtype), asked)?;
            let (packing, packed, scales) = store.version(dtype, 0)?;
            assert_eq!(packing.granularity, dtype.granularity(asked)?);
            assert_eq!(packed.len() + size_of_val(scales) + 3 * 4, store.nbytes(dtype), "{dtype}");
            assert_eq!(store.active_bytes(), store.nbytes(dtype));
            store.set_storage(0, &weights)?;
            assert!(store.version(dtype, 0).is_err(), "{dtype}: a stale version was handed out");
            let told: Vec<_> =
                store.versions().map(|told| (told.parameter, told.packing, told.current)).collect();
            assert_eq!(told, [(0, packing, false)]);
            store.refresh(Cpu::global()?)?;
            let kept = store
                .version(dtype, 0)
                .map(|(packing, packed, scales)| (packing, packed.to_vec(), scales.to_vec()))?;
            assert_eq!(kept.0, packing);
            // Bytes that were saved make the same version.
            let mut other = self::store()?;
            other.set_version(dtype, Some(packing.granularity), 0, false, |bytes, scales| {
                bytes.copy_from_slice(&kept.1);
                scales.copy_from_slice(&kept.2);
                Ok(())
            })?;
            assert_eq!(other.decoded(0)?, store.decoded(0)?);
            assert_eq!(other.packing_of(0), Some(packing));
            if !kept.2.is_empty() {
                let refused = other.set_version(dtype, Some(packing.granularity), 0, false, |_, scales| {
                    scales.fill(f32::NAN);
                    Ok(())
                });
                assert!(matches!(refused, Err(Error::Serialization(_))));
            }
        }
    }
    Ok(())
}

#[test]
fn a_refused_granularity_leaves_the_version_readable() -> Result<()> {
    let mut store = store()?;
    store.morph(Some(DType::Int8), None)?;
    store.set_storage(0, &[1.0; 15])?;
    assert!(store.morph(Some(DType::Int8), Some(Granularity::Unscaled)).is_err());
    store.morph(Some(DType::Int8), Some(Granularity::Block(2)))?;
    assert_eq!(store.version(DType::Int8, 0)?.2.len(), 3 * 3);
    assert_eq!(store.decoded(0)?.to_f32(), [1.0; 15]);
    Ok(())
}

#[test]
fn bytes_are_those_of_the_packed_form() -> Result<()> {
    let mut store = store()?;
    assert_eq!(store.active_bytes(), 18 * 4);
    for (dtype, bytes) in [(DType::Int8, 15 + 3 * 4), (DType::BFloat16, 30), (DType::Ternary, 4 + 3 * 4)] {
        assert_eq!(store.nbytes(dtype), bytes + 3 * 4, "{dtype}");
    }
    store.morph(Some(DType::Int8), None)?;
    let (_, packed, scales) = store.version(DType::Int8, 0)?;
    assert_eq!(packed.len() + size_of_val(scales) + 3 * 4, store.active_bytes());
    Ok(())
}

#[test]
fn a_dropped_master_leaves_what_inference_reads() -> Result<()> {
    let mut store = store()?;
    let weights: Vec<f64> = (0..15).map(|i| f64::from(i) / 8.0).collect();
    store.set_storage(0, &weights)?;
    store.set_storage(1, &[1.0, 2.0, 3.0])?;
    assert!(matches!(store.drop_master(), Err(Error::State(_))));
    store.morph(Some(DType::Int8), None)?;
    let read = store.decoded(0)?;
    store.drop_master()?;
    assert!(store.is_dropped());
    assert_eq!(store.decoded(0)?, read);
    assert_eq!(store.get(1)?.to_f32(), [1.0, 2.0, 3.0]);
    assert_eq!(store.float_bytes(Some(1))?, bytemuck::cast_slice::<f32, u8>(&[1.0, 2.0, 3.0]));
    store.refresh(Cpu::global()?)?;
    store.drop_master()?;
    for refused in [
        store.check_master(),
        store.get(0).map(|_| ()),
        store.float_bytes(Some(0)).map(|_| ()),
        store.float_bytes(None).map(|_| ()),
        store.set_storage(1, &[0.0; 3]),
        store.master_buffer_mut().map(|_| ()),
        store.morph(None, None),
        store.morph(Some(DType::BFloat16), None),
    ] {
        assert!(matches!(refused, Err(Error::State(_))), "{refused:?}");
    }
    // The refusals have not made the version stale.
    assert_eq!(store.decoded(0)?, read);
    Ok(())
}

/// Each parameter in a type of its own: versions, bytes, and what is left of a dropped master.
#[test]
fn parameters_are_packed_one_by_one() -> Result<()> {
    let mut store = store()?;
    store.set_storage(0, &(0..15).map(|i| f64::from(i) / 8.0 - 0.7).collect::<Vec<_>>())?;
    store.set_storage(1, &[1.0, -0.5, 0.25])?;
    let int8 = Some((DType::Int8, Recipe::default()));
    let int4 = Some((DType::Int4, Recipe::default()));
    store.choose(&[int4, int8])?;
    assert_eq!([store.dtype_of(0), store.dtype_of(1)], [Some(DType::Int4), Some(DType::Int8)]);
    // A vector has one scale, as the inputs of one output do.
    let (packing, packed, scales) = store.version(DType::Int8, 1)?;
    assert_eq!((packing.rows, packing.channels, packed.len(), scales.len()), (3, 1, 3, 1));
    assert_eq!(store.active_bytes(), (8 + 3 * 4) + (3 + 4));
    assert_eq!(store.decoded(1)?.to_f32(), [127.0, -64.0, 32.0].map(|code| code * (1.0f32 / 127.0)));
    // What is not asked for again goes back to the master, and what was asked for stays as it is.
    store.choose(&[None, int8])?;
    assert_eq!((store.dtype_of(0), store.decoded(0)?), (None, store.get(0)?));
    let bias = store.decoded(1)?;
    store.drop_master()?;
    assert!(store.get(1).is_err() && store.get(0).is_ok());
    for refused in [[None, None], [int4, int8], [None, int4]] {
        assert!(matches!(store.choose(&refused), Err(Error::State(_))));
    }
    assert_eq!(store.decoded(1)?, bias);
    store.unpack()?;
    assert_eq!(store.get(1)?, bias);
    store.choose(&[None, None])?;
    assert!(!store.is_packed());
    Ok(())
}

proptest! {
    #[test]
    fn the_outside_layout_is_kept(out in 1usize..7, rest in 1usize..9, seed in 0u32..99) {
        let layout = Layout::input_major([out, rest]);
        let values: Vec<f32> = (0..out * rest).map(|i| (i as u32 * 7 + seed) as f32).collect();
        let stored = layout.to_storage(&values).unwrap();
        // Element (o, i) of the outside stands at (i, o) in storage.
        for o in 0..out {
            for i in 0..rest {
                prop_assert_eq!(stored[i * out + o], values[o * rest + i]);
            }
        }
        prop_assert_eq!(layout.to_outside(&stored).unwrap(), values);
    }

    #[test]
    fn what_is_set_is_read(out in 1usize..6, input in 1usize..4, kernel in 1usize..3, seed: u64) {
        let shape = [out, input, kernel, kernel];
        let layouts = [("bias", Layout::plain([out]), false), ("weight", Layout::input_major(shape), true)];
        let mut single = WeightStore::new::<f32>(&layouts).unwrap();
        let mut double = WeightStore::new::<f64>(&layouts).unwrap();
        let mut values = vec![0.0; out * input * kernel * kernel];
        Stream::new(seed, 0, 0, Use::Initialize).fill_normal(0, &mut values);
        let view = TensorView::new(shape, Elements::Float64(&values)).unwrap();
        for store in [&mut single, &mut double] {
            let epoch = store.epoch();
            store.set(1, &view).unwrap();
            prop_assert!(store.epoch() > epoch);
            prop_assert!(store.get(0).unwrap().to_f64().iter().all(|value| *value == 0.0));
        }
        prop_assert_eq!(double.get(1).unwrap().to_f64(), values.clone());
        let rounded: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        prop_assert_eq!(single.get(1).unwrap().to_f32(), rounded);
        for store in [&mut single, &mut double] {
            store.morph(Some(DType::Int8), None).unwrap();
            let master = store.get(1).unwrap().to_f64();
            let read = store.decoded(1).unwrap().to_f64();
            // Each output channel has a scale of its own.
            for (master, read) in master.chunks(master.len() / out).zip(read.chunks(master.len() / out)) {
                let largest = master.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
                for (value, read) in master.iter().zip(read) {
                    prop_assert!((value - read).abs() <= largest / 127.0 * 0.50001);
                }
            }
        }
    }
}
