//! Serves keys and values: `cargo run --release -p kv-server -- --listen 127.0.0.1:7171`.

#![expect(clippy::print_stdout, reason = "it says where it serves")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Parser;
use kv_server::{Store, server};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A key-value server. It serves until a line is entered, or standard input ends.
#[derive(Parser)]
struct Cli {
    /// The address.
    #[arg(long, default_value = "127.0.0.1:7171")]
    listen: SocketAddr,
    /// The number of clients at a time.
    #[arg(long, default_value_t = 1000)]
    clients: usize,
    /// The number of moves that wait for each shard.
    #[arg(long, default_value_t = 1000)]
    queue: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let cli = Cli::parse();
    let store = Arc::new(Store::new(cli.queue)?);
    let (stop, stopped) = watch::channel(());
    std::thread::spawn(move || {
        _ = io::stdin().read_line(&mut String::new());
        drop(stop);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(cli.listen).await?;
        println!("{}; press Enter to stop", listener.local_addr()?);
        server::serve(listener, Arc::clone(&store), cli.clients, stopped).await;
        io::Result::Ok(())
    })?;
    store.close();
    Ok(())
}
