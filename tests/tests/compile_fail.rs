//! What must not compile, and in which words the compiler says so: rule and remedy.
//!
//! Each file holds the misuses of one topic, each in a function of its own, so that one cargo run checks them
//! all. The texts are those of the pinned toolchain: after a change of toolchain or of a text in core, run with
//! `TRYBUILD=overwrite` and read the difference. What each needs is built again, once: h24 and h26 are of efa-cuda.

#[test]
fn what_the_rules_forbid_does_not_compile_and_the_text_names_rule_and_remedy() {
    let cases = trybuild::TestCases::new();
    // A file that compiles makes trybuild build rather than check, and only a build evaluates every constant.
    cases.pass("compile-pass/*.rs");
    cases.compile_fail("compile-fail/*.rs");
}
