//! See [`efa_fuzz::link`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    efa_fuzz::link(data);
});
