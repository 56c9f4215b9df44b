//! What it will not start with: one clear message, exit code 2, and nothing was started.

use std::fs;
use std::net::TcpListener;

use super::house::{House, refusal};

#[track_caller]
fn says(message: &str, gist: &[&str]) {
    for part in gist {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
}

#[test]
fn a_port_in_use() {
    let house = House::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let (listen, admin) = (format!("gateway.listen={addr}"), format!("admin.listen={addr}"));
    let message = house.refused(&["serve", "--set", &listen, "--set", "admin.listen=127.0.0.1:0"]);
    says(&message, &["cannot listen on", &addr, "gateway.listen"]);
    let message = house.refused(&["serve", "--set", "gateway.listen=127.0.0.1:0", "--set", &admin]);
    says(&message, &["cannot listen on", &addr, "admin.listen"]);
    // Nothing holds the folder.
    house.serve(&[]);
}

#[test]
fn a_configuration_with_mistakes_touches_nothing() {
    let house = House::new();
    fs::write(house.dir.path().join("typo.toml"), "[gateway]\nlistne = \"127.0.0.1:0\"\n").unwrap();
    fs::write(house.dir.path().join("broken.toml"), "[gateway\n").unwrap();
    for (args, gist) in [
        (&["serve", "--config", "typo.toml"][..], &["listne", "typo.toml", "listen"][..]),
        (&["serve", "--config", "broken.toml"], &["broken.toml"]),
        (&["serve", "--config", "nowhere.toml"], &["nowhere.toml"]),
        (&["serve", "--set", "gateway.listne=127.0.0.1:0"], &["listne", "gateway.listen"]),
        (&["serve", "--set", "stock.patience=soon"], &["stock.patience", "soon"]),
        (&["serve", "--check-config", "--config", "typo.toml"], &["listne"]),
        (&["serve", "--print-config", "--config", "typo.toml"], &["listne"]),
        (&["token", "mint", "--user", "0"], &["--user"]),
    ] {
        says(&house.refused(args), gist);
    }
    let all = house.refused(&["serve", "--set", "gateway.listne=1", "--set", "stock.patience=soon"]);
    says(&all, &["listne", "stock.patience"]);
    assert!(!house.data_dir().exists(), "a data folder was made");
}

#[test]
fn a_variable_that_is_no_key() {
    let house = House::new();
    let args = ["serve", "--check-config"];
    let output = house.command(&args).env("RUSHGATE_GATEWAY_LISTNE", "127.0.0.1:0").output().unwrap();
    says(&refusal(&args, &output), &["RUSHGATE_GATEWAY_LISTNE"]);
}

#[test]
fn arguments_that_do_not_exist() {
    let house = House::new();
    for args in [&["serve", "--no-such-flag"][..], &["sreve"], &[]] {
        let output = house.run(args);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
    }
}

#[test]
fn a_data_folder_that_cannot_be_written() {
    let house = House::new();
    let file = house.dir.path().join("a-file");
    fs::write(&file, "in the way").unwrap();
    let set = format!("store.data_dir={}/data", file.display());
    let args = ["serve", "--set", &set, "--set", "gateway.listen=127.0.0.1:0", "--set", "admin.listen="];
    says(&house.refused(&args), &["cannot use the data folder", "a-file/data", "permissions"]);
    let set = format!("{}/data", file.display());
    says(&house.refused(&["activity", "list", "--data-dir", &set]), &["a-file/data"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "in the way");
}

#[test]
fn a_data_folder_that_another_process_serves() {
    let house = House::with_sale(5);
    let mut serving = house.serve(&[]);
    let args = ["serve", "--set", "gateway.listen=127.0.0.1:0", "--set", "admin.listen="];
    says(&house.refused(&args), &["in use by another rushgate", &format!("process {}", serving.pid())]);
    assert!(serving.is_running());
    house.app(&serving, 1).ping();
}

#[test]
fn a_database_of_a_newer_version() {
    let house = House::with_sale(5);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let file = house.data_dir().join("rushgate.db");
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
        let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
        let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                     VALUES (9999, 'of the future', 1, x'00', 0)";
        sqlx::query(newer).execute(&mut connection).await.unwrap();
        sqlx::Connection::close(connection).await.unwrap();
    });
    let args = ["serve", "--set", "gateway.listen=127.0.0.1:0", "--set", "admin.listen="];
    says(&house.refused(&args), &["from a newer rushgate", "9999"]);
    says(&house.refused(&["activity", "list"]), &["from a newer rushgate", "9999"]);
}

#[test]
fn a_file_that_is_no_database() {
    let house = House::new();
    fs::create_dir(house.data_dir()).unwrap();
    fs::write(house.data_dir().join("rushgate.db"), "this is no database at all, only text".repeat(100))
        .unwrap();
    let args = ["serve", "--set", "gateway.listen=127.0.0.1:0", "--set", "admin.listen="];
    says(&house.refused(&args), &["cannot be read"]);
}

#[test]
fn a_secret_that_cannot_be_used() {
    let house = House::new();
    fs::write(house.dir.path().join("short"), "too short").unwrap();
    for (secret, gist) in [("short", "at least 32"), ("missing", "missing")] {
        let set = format!("auth.secret_file={secret}");
        let args = ["serve", "--set", &set, "--set", "gateway.listen=127.0.0.1:0", "--set", "admin.listen="];
        says(&house.refused(&args), &[gist]);
    }
    let checked = house.refused(&["serve", "--check-config", "--set", "auth.secret_file=missing"]);
    says(&checked, &["auth.secret_file", "missing", "cannot be read"]);
}

#[test]
fn check_config_and_print_config() {
    let house = House::new();
    assert!(house.done(&["serve", "--check-config"]).contains("fine"));
    let set =
        ["serve", "--print-config", "--set", "stock.patience=1500ms", "--set", "gateway.listen=[::1]:9"];
    let printed = house.done(&set);
    assert!(printed.contains("\"1500ms\"") && printed.contains("[::1]:9"), "{printed}");
    fs::write(house.dir.path().join("printed.toml"), &printed).unwrap();
    assert_eq!(house.done(&["serve", "--print-config", "--config", "printed.toml"]), printed);
    // The file that is found without being named.
    fs::rename(house.dir.path().join("printed.toml"), house.dir.path().join("rushgate.toml")).unwrap();
    assert_eq!(house.done(&["serve", "--print-config"]), printed);
    assert!(!house.data_dir().exists());
}
