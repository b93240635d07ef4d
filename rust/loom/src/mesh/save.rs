//! A mesh in a file, along with its network: it goes on bit for bit.

use super::tick::{HELD_INPUT, INPUT, carried_in, output_of};
use super::{Mesh, lost_ring};
use crate::io::{Extra, LoadOptions, SaveOptions, Source, bytes_with, from_source, write_with};
use crate::network::Network;
use crate::tensor::Buffer;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What stands in the metadata, as JSON under `loom.mesh`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    rows: usize,
    window: usize,
    training: bool,
    tick: u64,
    reach: usize,
}

/// The key of the metadata.
const KEY: &str = "loom.mesh";

impl Mesh {
    /// Saves the network with all that the mesh holds: input, ticks, and what layers held in the window.
    ///
    /// The file is one that [`Network::load`] reads, too, without the mesh. Tensors are named
    /// `mesh.input` and, by age in ticks, `mesh.input.<age>`, `mesh.<layer's number>.<age>` and, of what
    /// stateful layers carry, `mesh.<layer's number>.<name>.<age>`.
    ///
    /// # Errors
    /// As [`Network::save`]; [`Error::State`] for a network that has changed.
    pub fn save(
        &mut self,
        network: &mut Network,
        path: impl AsRef<Path>,
        options: SaveOptions,
    ) -> Result<()> {
        let extra = self.extra(network)?;
        write_with(network.settle()?, options, Some(extra), path.as_ref())
    }

    /// The bytes that [`save`](Self::save) writes.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub fn to_bytes(&mut self, network: &mut Network, options: SaveOptions) -> Result<Vec<u8>> {
        let extra = self.extra(network)?;
        bytes_with(network.settle()?, options, Some(extra))
    }

    fn extra(&mut self, network: &mut Network) -> Result<Extra> {
        self.check(network)?;
        let saved = Saved {
            rows: self.rows,
            window: self.window,
            training: self.training,
            tick: self.tick,
            reach: self.reach,
        };
        let json = serde_json::to_string(&saved)
            .map_err(|error| Error::Serialization(format!("the mesh could not be written: {error}")))?;
        let Some(ring) = &self.ring else { return Err(lost_ring()) };
        let mut extra = Extra::new(KEY, json);
        for (name, member, age) in self.kept() {
            let shape = [&[self.rows], &ring.shape(member)[..]].concat();
            extra.add(name, shape, ring.download(member, age)?);
        }
        Ok(extra)
    }

    /// Loads what [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read, [`Error::Serialization`] for one that is damaged,
    /// foreign, of a later format, or without a mesh.
    pub fn load(path: impl AsRef<Path>) -> Result<(Network, Self)> {
        from_source(path.as_ref(), LoadOptions::default(), |source| {
            let mut network = Network::restored(source)?;
            let mesh = Self::restored(&mut network, source)?;
            Ok((network, mesh))
        })
    }

    /// Makes a network and its mesh from the bytes of a file.
    ///
    /// # Errors
    /// [`Error::Serialization`] for bytes that are damaged, foreign, of a later format, or without a mesh.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Network, Self)> {
        let mut network = Network::from_bytes(bytes)?;
        let mesh = Self::restore(&mut network, bytes)?;
        Ok((network, mesh))
    }

    /// The mesh that was saved with a network, for that network, which may be on any device by now.
    ///
    /// # Errors
    /// [`Error::Serialization`] for bytes that hold no mesh, or that of another network.
    pub fn restore(network: &mut Network, bytes: &[u8]) -> Result<Self> {
        Self::restored(network, &Source::of_bytes(bytes, LoadOptions::default().verify)?)
    }

    fn restored(network: &mut Network, source: &Source<'_>) -> Result<Self> {
        let Some(saved) = source.metadata(KEY) else {
            return Err(Error::Serialization("the file holds a network, but no mesh".into()));
        };
        let saved: Saved = serde_json::from_str(saved)
            .map_err(|error| Error::Serialization(format!("the mesh in the file is damaged: {error}")))?;
        let foreign =
            |error: Error| Error::Serialization(format!("the mesh in the file is damaged: {error}"));
        // A mesh has room for as many rows as it holds, and of every layer for as many ticks as its window is long.
        let held = |name: String| match source.rows(&name) {
            Some(rows) if rows == saved.rows => Ok(()),
            _ => Err(Error::Serialization(format!("the mesh in the file is damaged: it lacks \"{name}\""))),
        };
        held("mesh.input".into())?;
        let layers = network.layers().count();
        for age in 0..=saved.window {
            (0..layers).try_for_each(|layer| held(format!("mesh.{layer}.{age}")))?;
        }
        let mut mesh = Self::new(network, saved.rows, saved.window).map_err(foreign)?;
        if saved.reach > saved.window || saved.reach as u64 > saved.tick {
            return Err(Error::Serialization(
                "the mesh in the file is damaged: its window is too long".into(),
            ));
        }
        if saved.window > 0 {
            mesh.set_training(saved.training)?;
        }
        (mesh.tick, mesh.reach) = (saved.tick, saved.reach);
        let kept = mesh.kept();
        let ring = mesh.ring_mut()?;
        ring.clock = saved.tick;
        for (name, member, age) in kept {
            let mut content = Buffer::zeroed(ring.bytes(member))?;
            source.read_into(&name, content.bytes_mut())?;
            ring.upload(member, age, content.bytes());
        }
        Ok(mesh)
    }

    /// What is saved: its name, its member in the ring, and its age.
    fn kept(&self) -> Vec<(String, usize, usize)> {
        let mut kept = vec![("mesh.input".to_string(), HELD_INPUT, 0)];
        // Of the oldest tick of a window layers are read, but compute nothing again.
        let inputs = self.window + usize::from(self.wiring.hands_on_input());
        kept.extend((0..inputs).map(|age| (format!("mesh.input.{age}"), INPUT, age)));
        // What came before the window is read no more; without one, the newest tick is all there is.
        for layer in 0..self.wiring.shapes.len() {
            kept.extend((0..=self.window).map(|age| (format!("mesh.{layer}.{age}"), output_of(layer), age)));
        }
        for (number, (layer, spec)) in self.wiring.carried.iter().enumerate() {
            let (name, member) = (&spec.name, carried_in(&self.wiring, number));
            let named = |age| (format!("mesh.{layer}.{name}.{age}"), member, age);
            kept.extend((0..=self.window).map(named));
        }
        kept
    }
}
