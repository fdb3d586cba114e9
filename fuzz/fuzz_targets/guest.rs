//! See [`efa_fuzz::guest`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    efa_fuzz::guest(data);
});
