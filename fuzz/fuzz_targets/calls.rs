//! See [`efa_fuzz::calls`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    efa_fuzz::calls(data);
});
