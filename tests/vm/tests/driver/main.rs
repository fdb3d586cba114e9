//! What the kernel's driver does with a function, done without a kernel.

mod hostile;
mod machine;
mod probe;
mod traffic;
