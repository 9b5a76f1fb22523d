//! The attribute `coreline_sim::test`. It is documented where it is used: in `coreline_sim`.

mod expansion;

use proc_macro::TokenStream;

/// See `coreline_sim::test`.
#[proc_macro_attribute]
pub fn test(settings: TokenStream, function: TokenStream) -> TokenStream {
    let test = expansion::expand(settings.into(), function.into());
    test.unwrap_or_else(|error| error.to_compile_error()).into()
}
