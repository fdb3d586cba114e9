//! See [`efa_fuzz::completions`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    efa_fuzz::completions(data);
});
