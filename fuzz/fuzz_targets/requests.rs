//! See [`efa_fuzz::requests`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    efa_fuzz::requests(data);
});
