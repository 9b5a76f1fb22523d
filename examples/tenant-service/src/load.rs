//! Clients of the service, over TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::http::router;
use crate::measure::Tenants;
use crate::service::Service;
use crate::store::Store;

/// Serves on a free port of loopback, until the runtime ends. Where.
///
/// # Errors
///
/// If there is no such port.
pub async fn serve<S: Store>(service: Arc<Service<S>>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async { axum::serve(listener, router(service)).await });
    Ok(address)
}

/// A connection to a service.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
    line: Vec<u8>,
}

/// What a service answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

fn strange(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("an answer with a strange {what}"))
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// As everything here: what the connection says, and if an answer is none of HTTP.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream), line: Vec::new() })
    }

    /// Has a tenant's lines sorted.
    ///
    /// # Errors
    ///
    /// As [`connect`](Client::connect).
    pub async fn sort(&mut self, tenant: usize, lines: &[u8]) -> io::Result<Answer> {
        self.send(head(tenant, lines.len()).as_bytes(), lines).await?;
        self.answer().await
    }

    /// Sends the head of a request for a body of this many bytes, and some of it.
    ///
    /// # Errors
    ///
    /// As [`connect`](Client::connect).
    pub async fn begin(&mut self, tenant: usize, length: usize, part: &[u8]) -> io::Result<()> {
        self.send(head(tenant, length).as_bytes(), part).await
    }

    /// Sends the rest of the body, and waits for the answer.
    ///
    /// # Errors
    ///
    /// As [`connect`](Client::connect).
    pub async fn finish(&mut self, rest: &[u8]) -> io::Result<Answer> {
        self.send(b"", rest).await?;
        self.answer().await
    }

    /// Reads a page.
    ///
    /// # Errors
    ///
    /// As [`connect`](Client::connect).
    pub async fn get(&mut self, path: &str) -> io::Result<Answer> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: loopback\r\n\r\n");
        self.send(head.as_bytes(), b"").await?;
        self.answer().await
    }

    async fn send(&mut self, head: &[u8], body: &[u8]) -> io::Result<()> {
        // At once: a packet less.
        self.stream.get_mut().write_all(&[head, body].concat()).await
    }

    /// The next line of the head, without its end.
    async fn line(&mut self) -> io::Result<&str> {
        self.line.clear();
        if self.stream.read_until(b'\n', &mut self.line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        str::from_utf8(&self.line).map(str::trim_end).map_err(|_| strange("head"))
    }

    async fn answer(&mut self) -> io::Result<Answer> {
        let status = self.line().await?.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| strange("status"))?;
        let mut length = None;
        loop {
            let line = self.line().await?;
            match line.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().ok();
                }
                Some(_) => {}
                None if line.is_empty() => break,
                None => return Err(strange("head")),
            }
        }
        let mut body = vec![0; length.ok_or_else(|| strange("length"))?];
        self.stream.read_exact(&mut body).await?;
        Ok(Answer { status, body })
    }
}

fn head(tenant: usize, length: usize) -> String {
    format!(
        "POST /tenants/{tenant}/sort HTTP/1.1\r\nhost: loopback\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// What clients do at the same time.
#[derive(Debug, Clone)]
pub struct Load {
    /// Of which each request is one's, all equally often.
    pub tenants: usize,
    /// Connections, each with one request at a time.
    pub concurrency: usize,
    /// What each request has sorted.
    pub lines: Arc<[u8]>,
}

/// What came of a load.
#[derive(Debug, Default)]
pub struct Round {
    /// Of each request, in nanoseconds.
    pub latencies: Vec<u64>,
    /// How long it took.
    pub span: Duration,
}

impl Load {
    /// Loads the service at this address for this long.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`]; and if a request is not answered as it should be.
    pub async fn run(&self, address: SocketAddr, span: Duration, seed: u64) -> io::Result<Round> {
        let mut clients = Vec::new();
        for _ in 0..self.concurrency {
            clients.push(Client::connect(address).await?);
        }
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for (number, mut client) in clients.into_iter().enumerate() {
            let mut tenants = Tenants::new(self.tenants, seed ^ (number as u64) << 32);
            let lines = Arc::clone(&self.lines);
            tasks.spawn(async move {
                let mut latencies = Vec::new();
                // Once at least, however late the task gets a CPU.
                while latencies.is_empty() || begun.elapsed() < span {
                    let sent = Instant::now();
                    let answer = client.sort(tenants.draw(), &lines).await?;
                    latencies.push(sent.elapsed().as_nanos() as u64);
                    if answer.status != 200 || answer.body.len() != lines.len() {
                        return Err(strange("status or length"));
                    }
                }
                Ok(latencies)
            });
        }
        let mut round = Round::default();
        while let Some(latencies) = tasks.join_next().await {
            round.latencies.extend(latencies??);
        }
        round.span = begun.elapsed();
        Ok(round)
    }
}
