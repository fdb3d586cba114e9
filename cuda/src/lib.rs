//! GPU memory for EFA: the CUDA driver, found when the program runs, and the order between its work and the device's.
//!
//! It is to hold a loader with one table of symbols, device memory registered as a dma-buf, and types that tell
//! memory whose producer was not waited for, or whose arrival the GPU may not see yet, from memory that is ready.
//! Until that work is done it holds only this text.
#![forbid(unsafe_code)]
