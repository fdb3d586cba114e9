//! Which device runs, in a line of text.

use core::fmt;

use efa_core::{Context, Provider};

/// Which device runs, as a line of text: name, address, capabilities and data path.
#[derive(Debug)]
pub struct Description<'c, P>(pub &'c Context<P>);

impl<P: Provider> fmt::Display for Description<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(context) = self;
        let (name, gid, path) = (context.name(), context.gid(), context.data_path());
        write!(f, "device {name} at {gid}, data path {path}, capabilities")?;
        let caps = context.caps();
        if caps.is_empty() {
            return f.write_str(" none");
        }
        caps.iter_names().try_for_each(|(name, _)| write!(f, " {name}"))
    }
}
