//! What must not compile, and in which words the compiler says so. As the tests of core: after a change of toolchain or of a text, run
//! with `TRYBUILD=overwrite` and read the difference.
#![allow(missing_docs)]

#[test]
fn what_loses_the_order_does_not_compile_and_the_text_names_the_way_out() {
    trybuild::TestCases::new().compile_fail("tests/compile-fail/*.rs");
}
