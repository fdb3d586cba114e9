//! See [`efa_fuzz::endpoint`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| efa_fuzz::endpoint(data));
