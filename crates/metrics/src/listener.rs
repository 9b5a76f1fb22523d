//! An endpoint that Prometheus scrapes.

use std::convert::Infallible;
use std::future;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::runtime::{self, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time;

use crate::{Format, Handle};

/// The reason why the endpoint was not started.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address or port")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A thread or an event queue for the endpoint could not be created.
    #[error("cannot start the thread of the endpoint: {0}; raise the limits of this process")]
    Start(#[source] io::Error),
}

/// An endpoint. It serves until [`shutdown`](Listener::shutdown), or until the process ends.
/// Dropping the listener does not end it.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Listener {
    /// Returns the address, with the port that the system chose if port 0 was requested.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Ends the endpoint, with all its connections, and waits for its thread. On Linux, a child
    /// that was forked meanwhile, and has the socket, takes no connections either.
    pub fn shutdown(self) {
        // It may have ended by a panic.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// How long a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// How many connections are served at a time. Others wait in the system's queue.
const CONNECTIONS: usize = 64;
/// How long the endpoint waits after it could not take a connection, such as without descriptors.
const PAUSE: Duration = Duration::from_millis(100);

impl Handle {
    /// Serves pages at `http://ADDRESS/metrics`, on a thread of its own, `coreline-metrics`. A
    /// client that accepts OpenMetrics gets [that format](Format::OpenMetrics). The endpoint has no
    /// encryption and asks for no password, so listen on an address that only the scraper can
    /// reach.
    ///
    /// ```
    /// use coreline_metrics::Recorder;
    ///
    /// let handle = Recorder::builder().install()?;
    /// let endpoint = handle.http_listener(([127, 0, 0, 1], 0).into())?;
    /// println!("scrape http://{}/metrics", endpoint.local_addr());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Fork**: a child has no thread of the endpoint, but has its socket. Connections that reach
    /// only the child are not answered.
    ///
    /// # Errors
    ///
    /// [`ListenError`] if the address is in use or not this machine's, or if the thread cannot be
    /// started.
    pub fn http_listener(&self, address: SocketAddr) -> Result<Listener, ListenError> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        let (local, listener) = bound.map_err(|source| ListenError::Bind { address, source })?;
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(ListenError::Start)?;
        let runtime = Running(Some(runtime));
        let listener = {
            let _inside = runtime.0.as_ref().map(Runtime::enter);
            tokio::net::TcpListener::from_std(listener).map_err(ListenError::Start)?
        };
        let (stop, stopped) = oneshot::channel();
        let handle = self.clone();
        let serve = move || {
            let runtime = runtime;
            if let Some(runtime) = &runtime.0 {
                runtime.block_on(serve(listener, handle, stopped));
            }
        };
        let thread = thread::Builder::new().name("coreline-metrics".into()).spawn(serve);
        Ok(Listener { address: local, stop, thread: thread.map_err(ListenError::Start)? })
    }
}

/// A runtime that may be dropped in another runtime's task, where a blocking shutdown would panic:
/// if there is no thread for it.
struct Running(Option<Runtime>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Serves until it is told to stop. The connections end with the runtime.
async fn serve(listener: tokio::net::TcpListener, handle: Handle, stopped: oneshot::Receiver<()>) {
    let listener = Arc::new(listener);
    tokio::spawn(accept(Arc::clone(&listener), handle));
    if stopped.await.is_err() {
        // The listener was dropped, which stops nothing.
        future::pending::<()>().await;
    }
    // A child that another thread is starting has the socket, too, until it executes its program.
    // So closing ours would leave a socket that takes connections. Where the system cannot shut it
    // down, ours is closed all the same.
    let _ = SockRef::from(&*listener).shutdown(Shutdown::Both);
}

async fn accept(listener: Arc<tokio::net::TcpListener>, handle: Handle) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            time::sleep(PAUSE).await;
            continue;
        };
        let handle = handle.clone();
        let service = service_fn(move |request| answer(handle.clone(), request));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // A client that goes away concerns nothing here.
            let _ = connection.await;
            drop(permit);
        });
    }
}

async fn answer(
    handle: Handle,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let say = |status, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return Ok(say(StatusCode::NOT_FOUND, "the metrics are at /metrics\n"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = say(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let accepts = request.headers().get_all(ACCEPT).iter().filter_map(|it| it.to_str().ok());
    let format = Format::accepted(&accepts.collect::<Vec<_>>().join(","));
    let mut response = Response::new(Full::from(handle.render_as(format)));
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}
