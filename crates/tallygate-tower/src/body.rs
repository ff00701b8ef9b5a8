//! The body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::due::Due;

pin_project! {
    /// The body of an answer: the service's, as it comes, or this layer's own.
    pub struct Body<B> {
        #[pin]
        service: Option<B>,
        // Where there is no other.
        own: Bytes,
        // The work that is due when it ends or is dropped.
        due: Option<Due>,
    }
}

impl<B> Body<B> {
    pub(crate) fn of_service(body: B, due: Option<Due>) -> Self {
        Self { service: Some(body), own: Bytes::new(), due }
    }

    pub(crate) fn own(text: Bytes) -> Self {
        Self { service: None, own: text, due: None }
    }
}

impl<B: http_body::Body<Data = Bytes>> http_body::Body for Body<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let Some(service) = this.service.as_pin_mut() else {
            let own = std::mem::take(this.own);
            return Poll::Ready((!own.is_empty()).then(|| Ok(Frame::data(own))));
        };
        let frame = ready!(service.poll_frame(cx));
        match (&frame, this.due.as_mut()) {
            (Some(Ok(frame)), Some(due)) => {
                let bytes = frame.data_ref().map_or(0, Buf::remaining);
                due.sent = due.sent.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
            }
            (Some(Ok(_)), None) => {}
            // It has ended.
            (None | Some(Err(_)), _) => drop(this.due.take()),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.service.as_ref().map_or(self.own.is_empty(), B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let own = || SizeHint::with_exact(u64::try_from(self.own.len()).unwrap_or(u64::MAX));
        self.service.as_ref().map_or_else(own, B::size_hint)
    }
}
