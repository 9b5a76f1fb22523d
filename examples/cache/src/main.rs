//! Serves a cache: `cargo run --release -p cache -- --listen 127.0.0.1:7070`.

#![expect(clippy::print_stdout, reason = "it says where it serves")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use cache::{Cache, server};
use clap::Parser;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A cache of lines. It serves until a line is entered, or standard input ends.
#[derive(Parser)]
struct Cli {
    /// The address.
    #[arg(long, default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// The number of entries.
    #[arg(long, default_value = "100000")]
    entries: NonZeroU32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let cli = Cli::parse();
    let cache = Arc::new(Cache::new(cli.entries)?);
    let (stop, stopped) = watch::channel(());
    std::thread::spawn(move || {
        _ = io::stdin().read_line(&mut String::new());
        drop(stop);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(cli.listen).await?;
        println!("{}; press Enter to stop", listener.local_addr()?);
        server::serve(listener, cache, 1000, stopped).await;
        Ok(())
    })
}
