//! Developer commands of coreline: `cargo xtask ci`, `tidy`, `docs`, `golden`, `packed`, `msrv`,
//! `figures`, `tables`, `header`, `advisories`, `guest`, `guests`, `hosts`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to its user")]

mod advisories;
mod alone;
mod ci;
mod error;
mod figures;
mod golden;
mod guest;
mod header;
mod hosts;
mod msrv;
mod packed;
mod pages;
mod python;
mod tables;
mod target;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Developer commands of coreline")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the steps of CI in order; stop at the first that fails
    Ci(ci::Choice),
    /// Check the rules of the house that neither rustc nor clippy knows
    Tidy {
        /// Print the rules instead
        #[arg(long)]
        list: bool,
        /// List the links of documents to other sites instead
        #[arg(long, conflicts_with = "list")]
        links: bool,
    },
    /// Make the documentation, and follow its links
    Docs,
    /// Check that fast paths compile to what hand-written code compiles to
    Golden {
        /// Write the table of instruction counts instead of comparing with it
        #[arg(long)]
        bless: bool,
    },
    /// Pack what is published, and build and run the programs of README and guide with that
    Packed,
    /// Compile what is published with the Rust that it says it needs
    Msrv,
    /// Measure this processor's figures; write them to docs/figures.md, README.md and lib.rs
    Figures {
        /// Few short samples, not optimised and only printed: that it works, nothing to quote
        #[arg(long)]
        quick: bool,
    },
    /// Regenerate the tables of figures in docs/, each with the command in its block
    Tables(tables::Choice),
    /// Generate the C header and its manual pages, from the sources of crates/capi
    Header {
        /// Only check that the committed files are those that would be generated
        #[arg(long)]
        check: bool,
    },
    /// Look up what is known against the packages that we build with, by cargo-deny
    Advisories,
    /// Run the native tests under Debian's kernel, on an emulated machine with many CPUs
    Guest(guest::Options),
    /// Run them under several kernels, each with several C libraries
    Guests(guest::Choice),
    /// Run the native tests on hosts that look unlike this one; for root
    Hosts(hosts::Choice),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Ci(choice) => ci::run(&choice),
        Verb::Tidy { links: true, .. } => tidy::list_links(),
        Verb::Tidy { list: true, .. } => {
            tidy::list();
            Ok(())
        }
        Verb::Tidy { .. } => tidy::run(),
        Verb::Docs => alone::docs(),
        Verb::Golden { bless } => golden::run(bless),
        Verb::Packed => packed::run(),
        Verb::Msrv => msrv::run(),
        Verb::Figures { quick } => figures::run(quick),
        Verb::Tables(choice) => tables::run(&choice),
        Verb::Header { check } => header::run(check),
        Verb::Advisories => advisories::run(),
        Verb::Hosts(choice) => hosts::run(&choice),
        Verb::Guest(options) => guest::run(&options),
        Verb::Guests(choice) => guest::run_pairs(&choice),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
