//! A lost wake-up, found by its seed and run again by its line: the second example of
//! docs/simulating.md.
//!
//! ```sh
//! cargo run --release -p coreline-sim --example lost_wake_up
//! ```

mod gate;

use std::error::Error;

use coreline_sim::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", gate::story()?);
    Ok(())
}
