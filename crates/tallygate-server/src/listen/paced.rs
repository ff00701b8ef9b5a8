//! A connection whose other end takes what it is sent, or loses it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::Stream;

/// While something that was written is not taken, nothing is read: a caller who does not want his answers asks no more.
pub(super) struct Paced {
    stream: Box<dyn Stream>,
    patience: Duration,
    /// The end of the patience; None while all that is written is taken.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    pub fn new(stream: Box<dyn Stream>, patience: Duration) -> Self {
        Self { stream, patience, stuck: None }
    }

    /// The outcome of a write: an error where nothing was taken for too long.
    fn paced<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            let patience = self.patience;
            let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(patience)));
            return stuck.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()));
        }
        if self.stuck.take().is_some() {
            // Reading was put off.
            context.waker().wake_by_ref();
        }
        written
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stuck {
            Some(stuck) => stuck.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into())),
            None => Pin::new(&mut self.stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.paced(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.paced(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
