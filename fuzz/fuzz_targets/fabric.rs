//! See [`efa_fuzz::fabric`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    efa_fuzz::fabric(data);
});
