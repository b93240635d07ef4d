//! The Python face of loom.
