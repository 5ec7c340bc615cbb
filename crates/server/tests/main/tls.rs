//! TLS with a Rust driver: SCRAM bound to the certificate, and a certificate that is replaced.
//!
//! What other clients see, and what a hostile one can try, is in `tests/clients/tls_client.py`.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use postgres::config::{ChannelBinding as BindingMode, SslMode};
use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use postgres::{Client, Config};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sha2::Digest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use weft::{Database, Options};
use weft_server::{Missing, Server, ServerConfig, ServerError, Tls, TlsError, TlsFiles};

/// A client's side of TLS that trusts one certificate.
#[derive(Clone)]
struct Trust {
    config: Arc<ClientConfig>,
    /// What SCRAM is bound to instead of the server's certificate, as with somebody in between.
    bound_to: Option<Vec<u8>>,
}

impl Trust {
    fn of(certificate: &CertificateDer<'static>) -> Trust {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Trust {
            config: Arc::new(config),
            bound_to: None,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Trust {
    type Stream = Encrypted<S>;
    type TlsConnect = Trust;
    type Error = io::Error;

    fn make_tls_connect(&mut self, _: &str) -> io::Result<Trust> {
        Ok(self.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Trust {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from("localhost").unwrap();
            let stream = TlsConnector::from(self.config).connect(name, stream).await?;
            Ok(Encrypted(stream, self.bound_to))
        })
    }
}

struct Encrypted<S>(tokio_rustls::client::TlsStream<S>, Option<Vec<u8>>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, out)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let certificates = self.0.get_ref().1.peer_certificates().unwrap();
        let hash = || sha2::Sha256::digest(&certificates[0]).to_vec();
        ChannelBinding::tls_server_end_point(self.1.clone().unwrap_or_else(hash))
    }
}

/// Writes a new certificate for localhost and its key.
fn issue(dir: &Path) -> (TlsFiles, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = TlsFiles {
        certificate: dir.join("server.crt"),
        key: dir.join("server.key"),
    };
    fs::write(&files.certificate, made.cert.pem()).unwrap();
    fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
    let certificate = CertificateDer::from_pem_file(&files.certificate).unwrap();
    (files, certificate)
}

fn log_in(server: &Server, trust: &Trust, password: &str) -> Result<Client, postgres::Error> {
    let mut config = Config::new();
    config
        .host("127.0.0.1")
        .port(server.address().port())
        .dbname("postgres")
        .user("ann")
        .password(password)
        .ssl_mode(SslMode::Require)
        .channel_binding(BindingMode::Require);
    config.connect(trust.clone())
}

fn serve(database: &Database, tls: &Arc<Tls>) -> Server {
    let config = ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: Some(tls.clone()),
        ..ServerConfig::default()
    };
    Server::start(Arc::new(database.clone()), config).unwrap()
}

#[test]
fn passwords_are_bound_to_the_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path().join("data"), Options::default()).unwrap();
    let (files, certificate) = issue(dir.path());
    let tls = Arc::new(Tls::load(files).unwrap());
    let server = serve(&database, &tls);
    database
        .session()
        .run("create role ann login password 'secret'")
        .unwrap();
    let trust = Trust::of(&certificate);
    let mut client = log_in(&server, &trust, "secret").unwrap();
    let row = client.query_one(
        "select ssl, version, cipher, bits from pg_stat_ssl where pid = pg_backend_pid()",
        &[],
    );
    let row = row.unwrap();
    assert!(row.get::<_, bool>(0));
    assert_eq!(row.get::<_, String>(1), "TLSv1.3");
    assert_eq!(row.get::<_, i32>(3), 256);
    let wrong = log_in(&server, &trust, "Secret").err().unwrap();
    assert_eq!(wrong.code().unwrap().code(), "28P01");
    // Somebody in between has another certificate, and cannot pass the exchange on.
    let mut between = trust.clone();
    between.bound_to = Some(vec![7; 32]);
    let relayed = log_in(&server, &between, "secret").err().unwrap();
    assert_eq!(relayed.code().unwrap().code(), "28P01");
    // A replaced certificate is another one, for the handshake and for SCRAM.
    let (_, replaced) = issue(dir.path());
    tls.reload().unwrap();
    assert!(log_in(&server, &trust, "secret").is_err());
    log_in(&server, &Trust::of(&replaced), "secret").unwrap();
    assert_eq!(client.query("select 1", &[]).unwrap().len(), 1);
    // The files hold halves of two pairs: the pair that is in use stays.
    let kept = fs::read(dir.path().join("server.key")).unwrap();
    issue(dir.path());
    fs::write(dir.path().join("server.key"), kept).unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::Mismatch(_))));
    log_in(&server, &Trust::of(&replaced), "secret").unwrap();
}

#[test]
fn other_machines_are_served_with_tls_and_passwords_only() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path().join("data"), Options::default()).unwrap();
    let tls = Arc::new(Tls::load(issue(dir.path()).0).unwrap());
    let missing = |tls: Option<&Arc<Tls>>| {
        let config = ServerConfig {
            listen: "0.0.0.0:0".parse().unwrap(),
            tls: tls.cloned(),
            ..ServerConfig::default()
        };
        match Server::start(Arc::new(database.clone()), config) {
            Err(ServerError::Exposed(_, missing)) => missing,
            other => panic!("{:?}", other.map(|server| server.address())),
        }
    };
    assert_eq!(missing(None), Missing::Tls);
    assert_eq!(missing(Some(&tls)), Missing::Passwords);
    // Roles alone are not enough: without a password nobody is asked for one.
    database.session().run("create role ann login").unwrap();
    assert_eq!(missing(Some(&tls)), Missing::Passwords);
    assert_eq!(missing(None), Missing::Tls);
}
