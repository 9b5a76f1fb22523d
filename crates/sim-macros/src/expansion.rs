//! The expansion of the attribute.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Ident, LitBool, LitInt, LitStr, ReturnType, Token, Visibility};

/// The test, or what is wrong with it.
pub(crate) fn expand(settings: TokenStream, function: TokenStream) -> Result<TokenStream, Error> {
    let settings: Settings = syn::parse2(settings)?;
    let Function { attributes, name, output, body } = syn::parse2(function)?;
    let fields = settings.0;
    Ok(quote! {
        #[::core::prelude::v1::test]
        #(#attributes)*
        fn #name() {
            fn program() #output #body
            ::coreline_sim::testing::run(
                &::coreline_sim::testing::Test {
                    #(#fields,)*
                    ..::coreline_sim::testing::Test::new(
                        ::core::env!("CARGO_PKG_NAME"),
                        ::core::env!("CARGO_MANIFEST_DIR"),
                        ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name)),
                    )
                },
                program,
            );
        }
    })
}

/// The settings in the attribute, as fields of `coreline_sim::testing::Test`.
struct Settings(Vec<TokenStream>);

/// One of them.
struct Setting(Ident, TokenStream);

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let settings = Punctuated::<Setting, Token![,]>::parse_terminated(input)?;
        let mut seen: Vec<&Ident> = Vec::new();
        for Setting(name, _) in &settings {
            if seen.contains(&name) {
                return Err(Error::new(name.span(), format!("`{name}` is given twice")));
            }
            seen.push(name);
        }
        let is_there = |name: &str| seen.iter().any(|seen| *seen == name);
        if !is_there("machine") {
            return Err(input.error(
                "which machine? `machine = \"epyc-9654-2s\"`: a preset, or the path of a machine \
                 file from the package's root on",
            ));
        }
        Ok(Settings(settings.into_iter().map(|Setting(_, field)| field).collect()))
    }
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let field = match name.to_string().as_str() {
            "machine" | "schedule" | "faults" | "memory" => {
                let text: LitStr = input.parse()?;
                quote!(#name: #text)
            }
            "band" => {
                let text: LitStr = input.parse()?;
                if !["quick", "whole"].contains(&text.value().as_str()) {
                    return Err(Error::new(text.span(), "a band is \"quick\" or \"whole\""));
                }
                quote!(#name: #text)
            }
            "seed" | "seeds" | "steps" => {
                let number: LitInt = input.parse()?;
                if name != "seed" && number.base10_parse::<u64>()? == 0 {
                    return Err(Error::new(number.span(), "0 would run nothing"));
                }
                quote!(#name: #number)
            }
            "races" | "leaks" | "determinism" => {
                let is_wanted: LitBool = input.parse()?;
                quote!(#name: #is_wanted)
            }
            _ => {
                return Err(Error::new(
                    name.span(),
                    "a setting is `machine`, `seeds`, `seed`, `band`, `schedule`, `faults`, \
                     `steps`, `races`, `memory`, `leaks` or `determinism`",
                ));
            }
        };
        Ok(Setting(name, field))
    }
}

/// A function without arguments. (`syn` parses functions with its feature `full` alone, which
/// everybody who simulates would have to compile.)
struct Function {
    attributes: Vec<Attribute>,
    name: Ident,
    output: ReturnType,
    body: Group,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        if input.peek(Token![async]) {
            return Err(input.error(
                "simulated tests are plain functions; run a future by \
                 `coreline_sim::task::block_on`",
            ));
        }
        input.parse::<Token![fn]>()?;
        let name = input.parse()?;
        if input.peek(Token![<]) {
            return Err(input.error("a test has no parameters"));
        }
        let arguments: Group = input.parse()?;
        if arguments.delimiter() != Delimiter::Parenthesis || !arguments.stream().is_empty() {
            return Err(Error::new(arguments.span(), "a test has no arguments"));
        }
        let output = input.parse()?;
        match input.parse()? {
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                Ok(Function { attributes, name, output, body })
            }
            other => Err(Error::new(other.span(), "expected the body of the test")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(settings: &str, function: &str) -> String {
        let parsed = |text: &str| text.parse().expect("tokens");
        expand(parsed(settings), parsed(function)).expect_err("it is wrong").to_string()
    }

    #[test]
    fn what_is_wrong_is_said() {
        let good = "machine = \"host-2c\"";
        for (settings, function, complaint) in [
            ("", "fn f() {}", "which machine?"),
            ("machine = 3", "fn f() {}", "expected string literal"),
            ("machine = \"a\", machine = \"b\"", "fn f() {}", "`machine` is given twice"),
            ("machine = \"a\", band = \"wide\"", "fn f() {}", "\"quick\" or \"whole\""),
            ("machine = \"a\", seeds = 0", "fn f() {}", "0 would run nothing"),
            ("machine = \"a\", sedes = 2", "fn f() {}", "a setting is `machine`, `seeds`"),
            (good, "async fn f() {}", "block_on"),
            (good, "fn f(x: u8) {}", "no arguments"),
            (good, "fn f<T>() {}", "no parameters"),
            (good, "struct S;", "expected `fn`"),
        ] {
            let said = refused(settings, function);
            assert!(said.contains(complaint), "{settings}; {function}: {said}");
        }
    }

    #[test]
    fn attributes_and_the_result_are_kept() {
        let settings = "machine = \"host-2c\", seeds = 3".parse().expect("tokens");
        let function =
            "#[should_panic] fn f() -> Result<(), u8> { Ok(()) }".parse().expect("tokens");
        let text = expand(settings, function).expect("a test").to_string();
        for part in
            ["# [should_panic]", "fn program () -> Result < () , u8 > { Ok (()) }", "seeds : 3"]
        {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
}
