//! Serves links: `cargo run --release -p web-metrics -- --listen 127.0.0.1:8080`.

#![expect(clippy::print_stdout, reason = "it says where it serves")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use coreline_metrics::Recorder;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use web_metrics::{BOUNDS, Links, router, serve};

/// A link shortener. It serves until a line is entered, or standard input ends.
#[derive(Parser)]
struct Cli {
    /// The address.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The number of links for which there is room.
    #[arg(long, default_value_t = 1_000_000)]
    links: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let cli = Cli::parse();
    let metrics = Recorder::builder().bounds(&BOUNDS)?.install()?;
    let router = router(Links::new(cli.links), move || metrics.render());
    let (stop, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        _ = io::stdin().read_line(&mut String::new());
        _ = stop.send(());
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(cli.listen).await?;
        println!("http://{}/metrics; press Enter to stop", listener.local_addr()?);
        Ok(serve(listener, router, stopped, Duration::from_secs(10)).await?)
    })
}
