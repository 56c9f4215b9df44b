//! Opening a database, and what is wrong with one that cannot be opened.

use rushgate::store::sql::mysql::{MySqlInstallation, MySqlOpenError, MySqlOptions};
use rushgate_servers::ReservedPort;

use crate::fixture::{Scene, options, server};

#[tokio::test]
async fn many_processes_open_an_empty_database_at_once() {
    let database = server().await.create_database().await.unwrap();
    let opening: Vec<_> = (0..6).map(|_| tokio::spawn(MySqlInstallation::open(options(&database)))).collect();
    for opened in opening {
        let opened = opened.await.unwrap().unwrap();
        assert_eq!(opened.version().await.unwrap(), 0);
        assert_eq!(opened.activities().await.unwrap(), []);
        opened.close().await;
    }
}

#[tokio::test]
async fn a_wrong_password_a_missing_database_and_a_server_that_is_down_are_told_apart() {
    let scene = Scene::new().await;
    let good = options(&scene.database);

    let wrong = MySqlOptions { password: Some("another".into()), ..good.clone() };
    let error = MySqlInstallation::open(wrong).await.unwrap_err();
    assert!(matches!(error, MySqlOpenError::AccessDenied { .. }), "{error}");
    assert!(!error.is_temporary());

    let missing = MySqlOptions { database: "rushgate_nowhere".into(), ..good.clone() };
    let error = MySqlInstallation::open(missing).await.unwrap_err();
    assert!(matches!(error, MySqlOpenError::NoDatabase { .. }), "{error}");
    assert!(!error.is_temporary());

    let port = ReservedPort::reserve().unwrap();
    let down = MySqlOptions { port: port.number(), ..good };
    let error = MySqlInstallation::open(down).await.unwrap_err();
    assert!(matches!(error, MySqlOpenError::Unreachable { .. }), "{error}");
    assert!(error.is_temporary());
}

#[tokio::test]
async fn a_schema_of_a_newer_version_is_refused() {
    let scene = Scene::new().await;
    scene.execute("UPDATE _sqlx_migrations SET version = 9999 WHERE version = 1").await;
    let error = MySqlInstallation::open(options(&scene.database)).await.unwrap_err();
    assert!(matches!(error, MySqlOpenError::Newer { .. }), "{error}");
}

#[test]
fn the_password_is_not_shown() {
    let options = MySqlOptions { password: Some("secret".into()), ..MySqlOptions::new("h", 1, "u", "d") };
    assert_eq!(format!("{options:?}"), "MySqlOptions { address: \"h:1/d\", user: \"u\", .. }");
}
