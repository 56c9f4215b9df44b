//! Starting: what a signal does to it, and that a rehearsal does not start in a folder that another process serves.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::house::House;
use super::wire::eventually;

#[test]
fn a_signal_ends_a_start_that_is_held_up() {
    let house = House::new();
    // An operator's command holds the folder, as it does for a moment while it applies a load.
    std::fs::create_dir(house.data_dir()).unwrap();
    let lock_path = house.data_dir().join("rushgate.lock");
    std::fs::write(&lock_path, "operator command, process 1\n").unwrap();
    let lock = File::options().read(true).write(true).open(&lock_path).unwrap();
    fs4::FileExt::lock(&lock).unwrap();
    let mut command =
        house.command(&["serve", "--set", "gateway.listen=127.0.0.1:0", "--set", "admin.listen="]);
    let log_path = house.dir.path().join("start.log");
    let mut serve = command.stdout(Stdio::null()).stderr(File::create(&log_path).unwrap()).spawn().unwrap();
    eventually("it has begun", || std::fs::read_to_string(&log_path).unwrap().contains("starting"));
    let began = Instant::now();
    let killed =
        std::process::Command::new("kill").args(["-TERM", &serve.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = serve.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{}", std::fs::read_to_string(&log_path).unwrap());
    assert!(began.elapsed() < Duration::from_secs(3), "it went on waiting for the folder");
}

#[test]
fn a_demo_beside_a_serving_process_puts_nothing_on_sale() {
    let house = House::with_sale(10);
    let serving = house.serve(&[]);
    let before = house.done(&["activity", "list", "--json"]);
    let folder = house.data_dir();
    let output = house.run(&["demo", "--users", "5", "--stock", "1", "--data-dir", folder.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("another rushgate") || message.contains("in use"), "{message}");
    assert_eq!(house.done(&["activity", "list", "--json"]), before);
    serving.kill();
}
