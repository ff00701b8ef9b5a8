//! TLS: what the server shows of itself, and who shows himself to it.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::Failure;
use crate::config::{Tls, text_of};

/// The settings that a new connection begins with, by files that can be read again.
#[derive(Clone)]
pub(crate) struct Secure {
    files: Tls,
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Secure {
    pub fn new(files: Tls) -> Result<Self, Failure> {
        let current = Arc::new(RwLock::new(Arc::new(read(&files)?)));
        Ok(Self { files, current })
    }

    /// The settings that the files have now, and that nobody is shown yet.
    pub fn read(&self) -> Result<ServerConfig, Failure> {
        read(&self.files)
    }

    pub fn set(&self, config: ServerConfig) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Agrees with the other end, who is to speak this protocol if he names any.
    pub async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        protocol: &[u8],
    ) -> io::Result<TlsStream<S>> {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        let mut config = ServerConfig::clone(&current);
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsAcceptor::from(Arc::new(config)).accept(stream).await
    }
}

fn read(files: &Tls) -> Result<ServerConfig, Failure> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::new(format!("TLS cannot be spoken: {error}")))?;
    let builder = match &files.clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let refused = |error: String| Failure::new(format!("{}: {error}", path.display()));
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| refused(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| refused(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    // The reader's own words could repeat a line of the key.
    let key = PrivateKeyDer::from_pem_slice(text_of(&files.key)?.as_bytes())
        .map_err(|_| Failure::new(format!("{} has no private key as PEM", files.key.display())))?;
    let mut config = builder.with_single_cert(certificates(&files.certificate)?, key).map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        Failure::new(format!("{certificate} with the key {key} cannot be shown: {error}"))
    })?;
    // A client that comes again shows its certificate again, which may have expired since.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Every certificate of a file, and at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let text = text_of(path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => {
            Err(Failure::new(format!("{} has no certificate as PEM, or one that is cut off", path.display())))
        }
    }
}
