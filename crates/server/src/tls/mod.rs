//! TLS: the server's certificate and key, and the encrypted form of a connection.
//!
//! ```text
//!   --tls-cert, --tls-key --load--> Identity --accept--> TlsChannel, one for each encrypted connection
//!                  ^                    |
//!                  '---- reload --------'  a pair that cannot be used leaves the old one in place
//! ```
//!
//! The protocol is rustls's with `ring`: TLS 1.2 and 1.3, key exchange with forward secrecy only. Sessions
//! are not resumed, as in PostgreSQL. A connection keeps the identity with which it began.
//!
//! What an error says never contains bytes of the key file.

mod channel;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use pgwire::api::auth::sasl::scram::ScramServerAuth;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use weft::Encryption;

pub use channel::{TlsChannel, accept};

/// The name of PostgreSQL's protocol in ALPN.
pub const ALPN_PROTOCOL: &[u8] = b"postgresql";
/// The longest certificate or key file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the server's certificate, then those that lead to one that clients trust.
    pub certificate: PathBuf,
    /// PEM: the private key of the first certificate, readable by its owner alone.
    pub key: PathBuf,
}

/// The TLS side of a server: its present certificate and key.
pub struct Tls {
    files: TlsFiles,
    identity: RwLock<Arc<Identity>>,
}

/// A certificate with its key, ready for handshakes.
pub struct Identity {
    config: Arc<rustls::ServerConfig>,
    /// Knows the certificate if SCRAM can be bound to it.
    scram: ScramServerAuth,
}

/// Why a certificate and a key cannot be used.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// The certificate's file is not what it should be.
    Certificate(PathBuf, String),
    /// The key's file is not what it should be.
    Key(PathBuf, &'static str),
    /// Others could read the key.
    KeyPermissions(PathBuf),
    /// The key is not the certificate's.
    Mismatch(TlsFiles),
    /// rustls refuses the pair.
    Refused(TlsFiles, rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            TlsError::Certificate(path, problem) => {
                write!(f, "the certificate file {} {problem}", path.display())
            }
            TlsError::Key(path, problem) => write!(f, "the private key file {} {problem}", path.display()),
            TlsError::KeyPermissions(path) => write!(
                f,
                "private key file {} has group or world access: it must have permissions u=rw (0600) or less \
                 if owned by the server's user, or u=rw,g=r (0640) or less if owned by root",
                path.display()
            ),
            TlsError::Mismatch(files) => write!(
                f,
                "the private key in {} does not belong to the certificate in {}",
                files.key.display(),
                files.certificate.display()
            ),
            TlsError::Refused(files, error) => write!(
                f,
                "the certificate in {} with the private key in {} cannot be used: {error}",
                files.certificate.display(),
                files.key.display()
            ),
        }
    }
}

impl std::error::Error for TlsError {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If the pair cannot be used, or others than the server's user could read the key.
    pub fn load(files: TlsFiles) -> Result<Tls, TlsError> {
        let identity = RwLock::new(Arc::new(Identity::read(&files)?));
        Ok(Tls { files, identity })
    }

    /// Reads the files again. Connections from now on get the new pair; after an error they get the old one.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn reload(&self) -> Result<(), TlsError> {
        let identity = Arc::new(Identity::read(&self.files)?);
        *self.identity.write() = identity;
        Ok(())
    }

    /// What a connection that begins now uses.
    pub fn identity(&self) -> Arc<Identity> {
        self.identity.read().clone()
    }
}

impl Identity {
    fn read(files: &TlsFiles) -> Result<Identity, TlsError> {
        let pem = read_file(&files.certificate, |_| true)?;
        let certificates = certificates(&files.certificate, &pem)?;
        let key = private_key(&files.key)?;
        let refused = |error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Mismatch(files.clone()),
            rustls::Error::InvalidCertificate(_) => {
                TlsError::Certificate(files.certificate.clone(), "holds no valid certificate".to_owned())
            }
            error => TlsError::Refused(files.clone(), error),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(refused)?;
        config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let mut scram = ScramServerAuth::new();
        // A certificate whose signature names no hash function, as one by an Ed25519 key, has no such
        // binding.
        let _ = scram.configure_certificate(&pem);
        Ok(Identity {
            config: Arc::new(config),
            scram,
        })
    }

    /// SCRAM's server, with channel binding if the certificate allows it.
    pub fn scram(&self) -> ScramServerAuth {
        self.scram.clone()
    }
}

/// Reads a whole regular file whose metadata `may_be_read` accepts.
fn read_file(path: &Path, may_be_read: impl Fn(&fs::Metadata) -> bool) -> Result<Vec<u8>, TlsError> {
    let failed = |error| TlsError::Read(path.to_owned(), error);
    // What is no regular file could make the reader wait for ever.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    let file = File::open(path).map_err(failed)?;
    if !may_be_read(&file.metadata().map_err(failed)?) {
        return Err(TlsError::KeyPermissions(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(failed(io::Error::other("it is too long"))),
        false => Ok(bytes),
    }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |problem: String| TlsError::Certificate(path.to_owned(), problem);
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(wrong("holds no certificate in PEM format".to_owned()))
        }
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(wrong("is not in PEM format".to_owned())),
    }
}

/// PostgreSQL's rule: nobody else reads or writes the server's own file; a file of root's may be readable by
/// the group through which the server reads it.
fn is_private(metadata: &fs::Metadata) -> bool {
    let forbidden = match metadata.uid() {
        0 => 0o037,
        _ => 0o077,
    };
    metadata.mode() & forbidden == 0
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read_file(path, is_private)?;
    let wrong = |problem| TlsError::Key(path.to_owned(), problem);
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            wrong("holds no private key in PEM format; keys with a passphrase are not supported")
        }
        _ => wrong("is not in PEM format"),
    })
}

/// PostgreSQL's and OpenSSL's names for what rustls negotiated.
fn encryption(connection: &rustls::ServerConnection) -> Encryption {
    use rustls::CipherSuite as Suite;
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLSv1.2",
    };
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    let (cipher, bits) = match suite {
        Some(Suite::TLS13_AES_256_GCM_SHA384) => ("TLS_AES_256_GCM_SHA384", 256),
        Some(Suite::TLS13_AES_128_GCM_SHA256) => ("TLS_AES_128_GCM_SHA256", 128),
        Some(Suite::TLS13_CHACHA20_POLY1305_SHA256) => ("TLS_CHACHA20_POLY1305_SHA256", 256),
        Some(Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384) => ("ECDHE-ECDSA-AES256-GCM-SHA384", 256),
        Some(Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) => ("ECDHE-ECDSA-AES128-GCM-SHA256", 128),
        Some(Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256) => ("ECDHE-ECDSA-CHACHA20-POLY1305", 256),
        Some(Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384) => ("ECDHE-RSA-AES256-GCM-SHA384", 256),
        Some(Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) => ("ECDHE-RSA-AES128-GCM-SHA256", 128),
        Some(Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256) => ("ECDHE-RSA-CHACHA20-POLY1305", 256),
        // Those above are all that `ring` offers.
        _ => ("unknown", 0),
    };
    Encryption {
        version,
        cipher,
        bits,
    }
}
