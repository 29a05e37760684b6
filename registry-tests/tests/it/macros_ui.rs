//! What the macros refuse, and what they say.

#[test]
fn mistakes_are_errors_on_the_offending_token() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
