//! Signatures: Ed25519 (RFC 8032).

use std::fmt;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::chain::{hex, unhex};
use crate::error::{Error, Result};

/// The beginning of a key file.
const HEADER: &str = "tallygate signing key 1: ";

/// A key that signs checkpoints. Its text is a secret; nothing else shows it.
///
/// ```
/// let key = tallygate::audit::checkpoint::CheckpointKey::make()?;
/// let again = tallygate::audit::checkpoint::CheckpointKey::parse(&key.secret_text())?;
/// assert_eq!(key.public_key(), again.public_key());
/// # Ok::<(), tallygate::Error>(())
/// ```
#[derive(Clone)]
pub struct CheckpointKey(SigningKey);

impl CheckpointKey {
    /// A new key, random from the operating system.
    ///
    /// # Errors
    /// Database: the operating system has no random numbers.
    pub fn make() -> Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|e| Error::database(format!("the system has no random numbers: {e}")))?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// Reads what [`secret_text`](Self::secret_text) wrote.
    ///
    /// # Errors
    /// Invalid: it is no signing key.
    pub fn parse(text: &str) -> Result<Self> {
        let seed = text.trim_end().strip_prefix(HEADER).and_then(unhex);
        let seed = seed.ok_or_else(|| {
            Error::invalid("the file is no signing key; make one with: tallygate audit key FILE")
        })?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// The secret as one line of text, for a file that only its owner can read.
    pub fn secret_text(&self) -> String {
        format!("{HEADER}{}\n", hex(self.0.as_bytes()))
    }

    /// The public half, by which others know whether a checkpoint was signed with it: 64 hexadecimal digits.
    pub fn public_key(&self) -> String {
        hex(self.0.verifying_key().as_bytes())
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> String {
        hex(&self.0.sign(bytes).to_bytes())
    }
}

impl fmt::Debug for CheckpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckpointKey").field(&self.public_key()).finish()
    }
}

/// True when the owner of the public key signed these bytes.
pub(super) fn is_signed(bytes: &[u8], public_key: &str, signature: &str) -> bool {
    let key = unhex(public_key).and_then(|key| VerifyingKey::from_bytes(&key).ok());
    let signature = unhex(signature).map(|signature| Signature::from_bytes(&signature));
    key.zip(signature).is_some_and(|(key, signature)| key.verify_strict(bytes, &signature).is_ok())
}
