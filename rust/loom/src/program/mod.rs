//! (see the module's items)
