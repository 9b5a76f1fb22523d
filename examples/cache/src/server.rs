//! The cache behind a socket. A request is a line, and so is its answer:
//!
//! | request | answer |
//! |---|---|
//! | `get KEY` | `hit VALUE` or `miss` |
//! | `set KEY VALUE` | `ok` |
//! | `del KEY` | `ok` or `miss` |
//! | `stats` | `hits 3 misses 1 lost 0` |
//! | anything else | `error` and the reason |

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Cache;

/// The cache of a server.
pub type Lines = Cache<String, Arc<str>>;

/// The longest line, in bytes.
const LONGEST: u64 = 4096;

/// How long a client may take to send a line, or to read an answer. Else clients that do neither
/// would in time be all that are served.
const IDLE: Duration = Duration::from_secs(60);

/// How long the server waits, after an error, before it accepts again.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a client has to read its last answer when the server stops.
const GRACE: Duration = Duration::from_secs(1);

/// Serves at most so many connections at a time, until the sender of `stop` sends or drops. Then
/// requests that are being answered have a second to end. Those that were not read have no answer.
#[expect(clippy::print_stderr, reason = "it goes on after an error, and says so")]
pub async fn serve(
    listener: TcpListener,
    cache: Arc<Lines>,
    most: usize,
    mut stop: watch::Receiver<()>,
) {
    let mut clients = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
        };
        let mut client = match accepted {
            Ok((client, _)) => client,
            // It went away before it was accepted.
            Err(why) if why.kind() == io::ErrorKind::ConnectionAborted => continue,
            // Too many files are open, perhaps. That passes when other clients go away.
            Err(why) => {
                eprintln!("cannot accept a connection: {why}");
                tokio::select! {
                    () = sleep(PAUSE) => continue,
                    _ = stop.changed() => break,
                }
            }
        };
        while clients.try_join_next().is_some() {}
        if clients.len() < most {
            clients.spawn(converse(client, Arc::clone(&cache), stop.clone()));
        } else {
            _ = client.try_write(b"error too many connections, try again later\n");
            _ = client.shutdown().await;
        }
    }
    let all = async { while clients.join_next().await.is_some() {} };
    _ = timeout(GRACE, all).await;
    clients.shutdown().await;
}

/// Answers until the client goes away, or takes too long.
async fn converse(
    mut client: TcpStream,
    cache: Arc<Lines>,
    mut stop: watch::Receiver<()>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (reads, mut writes) = client.split();
    let mut reads = BufReader::new(reads);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut reads).take(LONGEST);
        tokio::select! {
            biased;
            read = timeout(IDLE, bounded.read_until(b'\n', &mut line)) => {
                read??;
            }
            _ = stop.changed() => return Ok(()),
        }
        if line.last() != Some(&b'\n') {
            // Its rest would be taken for a request.
            let why: &[u8] = if line.is_empty() { b"" } else { b"error the line has no end\n" };
            return timeout(IDLE, writes.write_all(why)).await?;
        }
        let request = str::from_utf8(&line).unwrap_or_default();
        timeout(IDLE, writes.write_all(answer(&cache, request).as_bytes())).await??;
    }
}

/// The answer to a line.
pub fn answer(cache: &Lines, request: &str) -> String {
    let words: Vec<&str> = request.split_whitespace().collect();
    match words[..] {
        ["get", key] => {
            cache.read(key, |value| format!("hit {value}\n")).unwrap_or("miss\n".into())
        }
        ["set", key, value] => {
            cache.insert(key.to_owned(), value.into());
            "ok\n".into()
        }
        ["del", key] => if cache.remove(key) { "ok\n" } else { "miss\n" }.into(),
        ["stats"] => {
            let [hits, misses, lost] = cache.stats();
            format!("hits {hits} misses {misses} lost {lost}\n")
        }
        _ => "error not one of: get KEY, set KEY VALUE, del KEY, stats\n".into(),
    }
}
