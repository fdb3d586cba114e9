//! See [`efa_fuzz::frames`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| efa_fuzz::frames(data));
