//! Serves, or compares stores under load.
//!
//! ```sh
//! cargo run --release -p tenant-service -- serve --listen 127.0.0.1:8080
//! cargo run --release -p tenant-service -- load
//! ```

#![expect(clippy::print_stdout, reason = "it says what it found")]

mod compare;
mod heap;

use std::error::Error;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use tenant_service::measure::Memory;
use tenant_service::{OnDomains, OnMap, OnShards, Service, Store, router};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// A service for many tenants, and what its bookkeeping costs.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serves until it is stopped.
    Serve {
        /// Where.
        #[arg(long, default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
        /// On which store.
        #[arg(long, default_value = "coreline")]
        store: StoreName,
        #[command(flatten)]
        shape: Shape,
    },
    /// Serves on loopback, loads it, and says what came of it.
    Load(compare::Options),
    /// What a store's tenants take, in a process of its own: for `load`.
    #[command(hide = true)]
    Memory {
        #[arg(long)]
        store: StoreName,
        #[arg(long)]
        tenants: usize,
        #[arg(long)]
        body: usize,
    },
}

/// How large a service is.
#[derive(Args, Clone, Copy)]
struct Shape {
    /// How many tenants.
    #[arg(long, default_value_t = 1000, value_parser = number(1..=1_000_000))]
    tenants: usize,
    /// How many buffers each has.
    #[arg(long, default_value_t = 64, value_parser = number(1..=65_536))]
    buffers: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreName {
    Coreline,
    Dashmap,
    Sharded,
}

/// A number of these.
pub(crate) fn number(range: RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

/// How long a request waits for a buffer.
const PATIENCE: Duration = Duration::from_secs(10);

async fn serve<S: Store>(listen: SocketAddr, shape: Shape) -> Result<(), Box<dyn Error>> {
    let service = Arc::new(Service::<S>::new(shape.tenants, shape.buffers, PATIENCE)?);
    let listener = TcpListener::bind(listen).await?;
    println!("{} on http://{}/metrics", S::NAME, listener.local_addr()?);
    Ok(axum::serve(listener, router(service)).await?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = || Builder::new_multi_thread().enable_all().build();
    match Cli::parse().verb {
        Verb::Serve { listen, store, shape } => runtime()?.block_on(async {
            match store {
                StoreName::Coreline => serve::<OnDomains>(listen, shape).await,
                StoreName::Dashmap => serve::<OnMap>(listen, shape).await,
                StoreName::Sharded => serve::<OnShards>(listen, shape).await,
            }
        }),
        Verb::Load(options) => {
            let found = options.run(&runtime()?)?;
            if options.json {
                println!("{}", serde_json::to_string_pretty(&found)?);
            } else {
                print!("{found}");
            }
            Ok(())
        }
        Verb::Memory { store, tenants, body } => {
            let lines = compare::lines(body);
            heap::count();
            let memory = match store {
                StoreName::Coreline => Memory::measure::<OnDomains>(tenants, &lines, heap::bytes),
                StoreName::Dashmap => Memory::measure::<OnMap>(tenants, &lines, heap::bytes),
                StoreName::Sharded => Memory::measure::<OnShards>(tenants, &lines, heap::bytes),
            };
            println!("{}", serde_json::to_string(&memory)?);
            Ok(())
        }
    }
}
