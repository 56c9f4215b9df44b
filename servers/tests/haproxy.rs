//! HAProxy forwards, is told what to do by its runtime API, and keeps its port over a restart.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "tests")]

use rushgate_servers::{HaProxy, Persistence, Redis, RespConnection, ServerError};

const CONFIG: &str = r#"
defaults
  mode tcp
  timeout connect 2s
  timeout client 10s
  timeout server 10s
frontend front
  bind "127.0.0.1:${FRONT}"
  default_backend back
backend back
  server one "${BACK}"
"#;

#[tokio::test]
async fn tcp_passes_and_servers_are_taken_out_and_put_back() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    redis.cli(&["SET", "sku", "41"]).await.unwrap();
    let haproxy = HaProxy::start(CONFIG, &["FRONT"], &[("BACK", &redis.address())]).await.unwrap();
    let port = haproxy.port("FRONT").unwrap();
    assert!(haproxy.port("BACK").is_err());
    let mut connection = RespConnection::connect(port, None).await.unwrap();
    assert_eq!(connection.call(&["GET", "sku"]).await.unwrap().to_string(), "41");
    haproxy.command("disable server back/one").await.unwrap();
    assert!(haproxy.command("show stat").await.unwrap().contains("MAINT"));
    let mut refused = RespConnection::connect(port, None).await.unwrap();
    assert!(refused.call(&["GET", "sku"]).await.is_err());
    haproxy.command("enable server back/one").await.unwrap();
    let mut connection = RespConnection::connect(port, None).await.unwrap();
    assert_eq!(connection.call(&["GET", "sku"]).await.unwrap().to_string(), "41");

    haproxy.kill9().await.unwrap();
    assert!(connection.call(&["GET", "sku"]).await.is_err());
    haproxy.restart().await.unwrap();
    let mut connection = RespConnection::connect(port, None).await.unwrap();
    assert_eq!(connection.call(&["GET", "sku"]).await.unwrap().to_string(), "41");
}

#[tokio::test]
async fn a_configuration_that_is_wrong_is_shown() {
    let error = HaProxy::start("frontend\n  no such thing\n", &[], &[]).await.unwrap_err();
    assert!(matches!(error, ServerError::Ended { .. }), "{error}");
    assert!(error.to_string().contains("haproxy.cfg"), "{error}");
}
