//! Unit tests as a part of the library that they test.
//!
//! `cargo test` compiles a library twice: as what others link, and once more with its unit tests. Here a
//! function under `#[test]` is registered in `crate::unit_tests::CASES`, a slice that the linker puts together,
//! so that one build of the library serves the tests, too. The attribute takes the built-in one's place where a
//! crate says `#[macro_use(test)] extern crate loom_nn_tests;`.

use proc_macro::{TokenStream, TokenTree};

/// Registers a function without arguments as a test, under its path.
///
/// `#[ignore]` is understood, `#[should_panic]` refused.
#[proc_macro_attribute]
pub fn test(_: TokenStream, function: TokenStream) -> TokenStream {
    let mut name = None;
    let mut ignored = false;
    let mut tokens = function.clone().into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(attribute) => {
                let text = attribute.to_string();
                ignored |= text.starts_with("[ignore") || text.starts_with("[ ignore");
                if text.contains("should_panic") {
                    return refused("should_panic is not known here: catch the panic and look at it");
                }
            }
            TokenTree::Ident(word) if word.to_string() == "fn" => {
                name = tokens.next();
                break;
            }
            _ => {}
        }
    }
    let Some(TokenTree::Ident(name)) = name else {
        return refused("#[test] stands on a function");
    };
    let registration = format!(
        "const _: () = {{
            #[::linkme::distributed_slice(crate::unit_tests::CASES)]
            static CASE: crate::unit_tests::Case = crate::unit_tests::Case {{
                name: ::core::concat!(::core::module_path!(), \"::{name}\"),
                run: || crate::unit_tests::outcome({name}()),
                ignored: {ignored},
            }};
        }};"
    );
    function
        .into_iter()
        .chain(registration.parse::<TokenStream>().unwrap_or_else(|_| refused("not a test")))
        .collect()
}

fn refused(why: &str) -> TokenStream {
    format!("::core::compile_error!({why:?});").parse().unwrap_or_default()
}
